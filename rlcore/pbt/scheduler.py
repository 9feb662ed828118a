"""Population-based training: which member copies which, and what hyperparameters it goes on with."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
from pydantic import BaseModel, ConfigDict

from rlcore.checkpoint import save_checkpoint
from rlcore.checkpoint.formats import save_policy
from rlcore.errors import CallOrderError, SettingError, StateError
from rlcore.pbt import files, selection
from rlcore.pbt.hyperparams import Hyperparams, HyperparamValue, PBTConfig, explored
from rlcore.pbt.selection import Natural, PopulationMember, Ranking, performance_statistics
from rlcore.ppo.settings import plain, whole_number
from rlcore.types import StateDict
from rlcore.warn import warn_caller

_logger = logging.getLogger("rlcore.pbt")


class PBTScheduler:
    """Decides exploits and explorations of a population (Jaderberg et al., 2017); it trains nothing itself.

    Report every member's score and parameters with :meth:`update_performance`; then, whenever
    :meth:`should_exploit_and_explore`, call :meth:`exploit_and_explore`. It draws from a generator of its own.

    :param config: the population's settings
    :param seed: seed of the generator, instead of ``config.seed``
    :raises SettingError: if both seeds are given and differ, or the seed is no whole number
    """

    _ranking: Ranking | None = None

    def __init__(self, config: PBTConfig, seed: int | None = None) -> None:
        self.config = config
        self.population: list[PopulationMember] = []
        self.exploitation_count = 0
        self.exploration_count = 0
        self.generator = make_generator(agreed_seed(config, seed))

    def initialize_population(
        self, initial_hyperparams: Sequence[Mapping[str, HyperparamValue]] | None = None
    ) -> list[PopulationMember]:
        """Start a population, with hyperparameters drawn from their ranges or with the given ones.

        :param initial_hyperparams: one mapping a member, with every configured hyperparameter; others are kept as given
        :raises SettingError: for another number of mappings, a name left out, or a value outside its range
        """
        if initial_hyperparams is None:
            size, ranges = self.config.population_size, self.config.hyperparams
            drawn = [explored({}, ranges, "resample", self.generator) for _ in range(size)]
        else:
            drawn = self._checked_hyperparams(initial_hyperparams)
        self.population = [PopulationMember(member_id, each) for member_id, each in enumerate(drawn)]
        self._ranking = None
        self.exploitation_count = self.exploration_count = 0
        return self.population

    def should_exploit_and_explore(self, member: PopulationMember) -> bool:
        """Return whether the member's step is a multiple of ``perturbation_interval``, and not 0."""
        return member.step > 0 and member.step % self.config.perturbation_interval == 0

    def update_performance(
        self,
        member: PopulationMember,
        performance: float,
        step: int,
        model_parameters: dict[str, Any] | None = None,
        model_state_dict: dict[str, Any] | None = None,
    ) -> None:
        """Record a member's score, and save its parameters for others to copy.

        :param performance: NaN for a member that diverged; it then ranks last
        :param step: in the unit of ``perturbation_interval``
        :param model_parameters: the model's ``get_parameters()``, written as a v2 checkpoint
        :param model_state_dict: deprecated: a bare policy state dict, written as v1, which loses everything else
        :raises SettingError: for no number, no step, or both kinds of parameters
        :raises CheckpointError: if the file cannot be written; the member and its older files are unchanged
        """
        self._require_own(member)
        step, score = whole_number("step", step), plain(performance)
        if isinstance(score, bool) or not isinstance(score, int | float):
            raise SettingError("performance", f"performance={performance!r} is no number; give one, or NaN")
        if model_parameters is not None and model_state_dict is not None:
            words = "model_parameters and model_state_dict are both given; give model_parameters only"
            raise SettingError("model_state_dict", words)
        if model_state_dict is not None:
            message = "model_state_dict saves the policy alone; give model_parameters=model.get_parameters() instead"
            warn_caller(message, DeprecationWarning)
        if model_parameters is not None or model_state_dict is not None:
            self._save(member, float(score), step, model_parameters, model_state_dict)
        member.record_step(step, float(score), member.hyperparams)
        self._ranking = None
        files.prune(self.config.checkpoint_dir, member)

    def exploit_and_explore(self, member: PopulationMember) -> tuple[dict[str, Any] | None, Hyperparams, str | None]:
        """Let a member copy a better one, and let it explore if it did.

        Nothing happens before enough members have reported. ``hyperparams`` of the member are then those that are
        returned, and ``copied_from`` names the source. A source whose file cannot be read is not copied, with one
        ResumeWarning.

        :return: the source's parameters (None if nothing is copied), the hyperparameters to go on with, and the format
            of the source's file (``v2_full_parameters``; ``v1_policy_only`` holds the policy alone; None)
        """
        self._require_own(member)
        member.copied_from = None
        if not self.is_ready():
            return None, dict(member.hyperparams), None
        source = self.choose_source(member)
        checkpoint = None if source is None else files.read_source(source)
        if source is not None and checkpoint is not None:
            trained = source.checkpoint_hyperparams
            member.hyperparams = dict(source.hyperparams if trained is None else trained)
            member.copied_from = source.member_id
            self.exploitation_count += 1
            _logger.info("member %d copies member %d (%s)", member.member_id, source.member_id, source.checkpoint_path)
        if self.explores(exploited=checkpoint is not None):
            ranges, method = self.config.hyperparams, self.config.explore_method
            member.hyperparams = explored(member.hyperparams, ranges, method, self.generator)
            self.exploration_count += 1
        if checkpoint is None:
            return None, dict(member.hyperparams), None
        return cast(dict[str, Any], checkpoint.data), dict(member.hyperparams), checkpoint.format_version

    def choose_source(self, member: PopulationMember) -> PopulationMember | None:
        """Draw the member that ``member`` would copy now, by ``exploit_method``; None if there is none."""
        ranking = self._ranking or self.ranking()
        if member.member_id not in ranking.places:
            return None
        return selection.choose_source(member, ranking, self.config, self.generator)

    def explores(self, *, exploited: bool) -> bool:
        """Return whether a member explores, by whether it has just copied another."""
        return exploited or self.config.explore_without_exploit

    def ready_members(self) -> list[PopulationMember]:
        """Return the members that have reported a performance."""
        return [each for each in self.population if each.performance is not None]

    def is_ready(self) -> bool:
        """Return whether ``ready_percentage`` of the members have reported."""
        needed = selection.ready_count(self.config.population_size, self.config.ready_percentage)
        ready = self.ready_members() if self._ranking is None else self._ranking.ready
        return len(ready) >= needed

    def ranking(self) -> Ranking:
        """Rank the members that have reported, by their last reports."""
        return selection.ranking_of(self.ready_members(), self.config.metric_mode)

    @contextmanager
    def ranked_once(self) -> Iterator[Ranking]:
        """Rank the members once for all decisions inside the block, which changes their cost alone.

        As soon as a member reports, decisions rank for themselves again.
        """
        self._ranking = self.ranking()
        try:
            yield self._ranking
        finally:
            self._ranking = None

    def ranked(self) -> list[PopulationMember]:
        """Return the population from best to worst; those without a number come last."""
        return selection.rank(self.population, self.config.metric_mode)

    def get_stats(self) -> dict[str, int | float]:
        """Return figures for a logger; those of performance are over the finite ones, and NaN if there is none."""
        return {
            "pbt/population_size": len(self.population),
            "pbt/ready_members": len(self.ready_members()),
            **performance_statistics(self.population),
            "pbt/exploitation_count": self.exploitation_count,
            "pbt/exploration_count": self.exploration_count,
        }

    def state_dict(self) -> StateDict:
        """Return members, counters and generator, in plain Python that shares nothing with the scheduler."""
        return {
            "members": [member.state_dict() for member in self.population],
            "generator": self.generator.bit_generator.state,  # type: ignore[dict-item]
            "exploitation_count": self.exploitation_count,
            "exploration_count": self.exploration_count,
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Go on exactly where :meth:`state_dict` was called; ``population`` then holds new members.

        A file in ``checkpoint_dir`` is found there even if the folder was moved.

        :raises StateError: if the state does not fit the configuration or is damaged; nothing is changed
        """
        generator = make_generator(0)
        try:
            given = _State.model_validate(state)
            generator.bit_generator.state = given.generator
            size, found = self.config.population_size, len(given.members)
            if found not in (0, size):
                raise ValueError(f"it has {found} members and population_size={size}")
            for member in given.members:
                _require_values(f"member {member.member_id}", member.hyperparams, self.config)
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            raise StateError(
                f"no state of this scheduler, {files.first_problem(error)}; it is damaged or of another configuration"
            ) from error
        for member in given.members:
            if member.saved_steps:
                member.checkpoint_path = str(files.path_of(self.config.checkpoint_dir, member, member.saved_steps[-1]))
        self.population, self.generator, self._ranking = given.members, generator, None
        self.exploitation_count, self.exploration_count = given.exploitation_count, given.exploration_count

    def _checked_hyperparams(self, given: Sequence[Mapping[str, HyperparamValue]]) -> list[Hyperparams]:
        size = self.config.population_size
        if len(given) != size or not all(isinstance(each, Mapping) for each in given):
            raise SettingError(
                "initial_hyperparams",
                f"initial_hyperparams must hold one mapping for each of population_size={size} members, and is "
                f"a {type(given).__name__} of {len(given)}",
            )
        members = [{name: plain(value) for name, value in each.items()} for each in given]
        for number, each in enumerate(members):
            _require_values(f"initial_hyperparams[{number}]", each, self.config)
        return members

    def _save(
        self,
        member: PopulationMember,
        performance: float,
        step: int,
        parameters: dict[str, Any] | None,
        policy: dict[str, Any] | None,
    ) -> None:
        files.make_folder(self.config.checkpoint_dir)
        path = files.path_of(self.config.checkpoint_dir, member, step)
        if parameters is not None:
            save_checkpoint(path, cast(StateDict, parameters), step=step, performance=performance)
        elif policy is not None:
            save_policy(path, cast(StateDict, policy))
        member.checkpoint_path = str(path)
        member.checkpoint_hyperparams = dict(member.hyperparams)
        member.saved_steps = [*(each for each in member.saved_steps if each != step), step]

    def _require_own(self, member: PopulationMember) -> None:
        if not any(each is member for each in self.population[member.member_id :][:1]):
            raise CallOrderError(f"member {member.member_id} is not of this population; take one of population")


def agreed_seed(config: PBTConfig, given: int | None, of_folder: int | None = None) -> int | None:
    """Return the only seed that was given, or None if there is none.

    :param of_folder: with which the population's folder was begun
    :raises SettingError: if two of them differ, or ``given`` is no whole number
    """
    own = None if given is None else whole_number("seed", given)
    known = {"seed": own, "PBTConfig.seed": config.seed, "the folder's seed": of_folder}
    named = {name: value for name, value in known.items() if value is not None}
    if len(set(named.values())) > 1:
        words = " and ".join(f"{name}={value}" for name, value in named.items())
        raise SettingError("seed", f"{words} contradict each other; give one of them, or another folder")
    return next(iter(named.values()), None)


def make_generator(seed: int | None) -> np.random.Generator:
    """The scheduler's own generator."""
    return np.random.Generator(np.random.PCG64(seed))


def _require_values(who: str, held: Hyperparams, config: PBTConfig) -> None:
    """Raise SettingError if a configured hyperparameter is missing or has a value that it cannot have."""
    for each in config.hyperparams:
        if each.name not in held:
            raise SettingError(
                "initial_hyperparams", f"{who} has no {each.name!r}, only {sorted(held)}; give it a value"
            )
        each.check_value(held[each.name])


class _State(BaseModel):
    """The form of :meth:`PBTScheduler.state_dict`."""

    model_config = ConfigDict(extra="forbid")

    members: list[PopulationMember]
    generator: dict[str, Any]
    exploitation_count: Natural
    exploration_count: Natural
