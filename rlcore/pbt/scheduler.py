"""Population-based training: the members, how they rank, who copies whom, and what each goes on with."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from rlcore.checkpoint.formats import Checkpoint, load_checkpoint, save_checkpoint, save_policy
from rlcore.errors import CheckpointError, ResumeWarning, SettingError, StateError, warn_caller
from rlcore.pbt.hyperparams import Hyperparams, HyperparamValue, PBTConfig, explored
from rlcore.ppo.settings import whole_number
from rlcore.types import plain

KEPT = 2
"""Files kept of a member: the newest, and the one before, which the population's last saved state may still name."""
_ROUNDING = 1e-9
"""A product that is below a whole number by less counts as that number, such as 100 * 0.29 = 28.999999999999996."""

_logger = logging.getLogger("rlcore.pbt")


@dataclass
class PopulationMember:
    """One member, in plain Python.

    :param member_id: its number in the population, from 0
    :param hyperparams: values by name, which train it now
    :param performance: its last score; None before the first, NaN if it diverged
    :param step: of the last report
    :param checkpoint_path: file of its last saved parameters, or None
    :param history: one ``{"step", "performance", "hyperparams"}`` a report, oldest first
    :param checkpoint_hyperparams: those that trained the parameters in the file; None for ``hyperparams``
    :param saved_steps: steps of its files, in the order of writing
    :param copied_from: the member that it has copied since its last report, or None
    :param exploits: how often it has copied another; :class:`rlcore.Population` counts
    :param vgs_transfers: how often that brought statistics of variance gradient scaling
    :param model_file: name of its model in a population's folder, or None
    """

    member_id: int
    hyperparams: Hyperparams
    performance: float | None = None
    step: int = 0
    checkpoint_path: str | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    checkpoint_hyperparams: Hyperparams | None = None
    saved_steps: list[int] = field(default_factory=list)
    copied_from: int | None = None
    exploits: int = 0
    vgs_transfers: int = 0
    model_file: str | None = None

    def record_step(self, step: int, performance: float, hyperparams: Mapping[str, HyperparamValue]) -> None:
        """Record a score that was reached under ``hyperparams``."""
        self.step, self.performance, self.copied_from = step, performance, None
        self.history.append({"step": step, "performance": performance, "hyperparams": dict(hyperparams)})

    def state_dict(self) -> dict[str, Any]:
        """Return the member as plain Python that shares nothing with it."""
        return asdict(self)


class PBTScheduler:
    """Decides exploits and explorations of a population (Jaderberg et al., 2017); it trains nothing itself.

    Report every member's score and parameters with :meth:`update_performance`; then, whenever
    :meth:`should_exploit_and_explore`, call :meth:`exploit_and_explore`. It draws from a generator of its own.

    :param config: the population's settings
    :param seed: seed of the generator, instead of ``config.seed``
    :raises SettingError: if the seed is no whole number
    """

    def __init__(self, config: PBTConfig, seed: int | None = None) -> None:
        self.config = config
        self.population: list[PopulationMember] = []
        self.exploitation_count = self.exploration_count = 0
        self.generator = make_generator(config.seed if seed is None else whole_number("seed", seed))

    def initialize_population(
        self, initial_hyperparams: Sequence[Mapping[str, HyperparamValue]] | None = None
    ) -> list[PopulationMember]:
        """Start a population, with hyperparameters drawn from their ranges or with the given ones.

        :param initial_hyperparams: one mapping a member, with every configured hyperparameter; others are kept as given
        :raises SettingError: for another number of mappings, or a value that is left out or outside its range
        """
        if initial_hyperparams is None:
            size, ranges = self.config.population_size, self.config.hyperparams
            drawn = [explored({}, ranges, "resample", self.generator) for _ in range(size)]
        else:
            drawn = self._checked_hyperparams(initial_hyperparams)
        self.population = [PopulationMember(member_id, each) for member_id, each in enumerate(drawn)]
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
        :raises SettingError: if ``step`` is no whole number
        :raises CheckpointError: if the file cannot be written; the member and its older files are unchanged
        """
        step, score = whole_number("step", step), float(performance)
        if model_state_dict is not None:
            message = "model_state_dict saves the policy alone; give model_parameters=model.get_parameters() instead"
            warn_caller(message, DeprecationWarning)
        if model_parameters is not None or model_state_dict is not None:
            self._save(member, score, step, model_parameters, model_state_dict)
        member.record_step(step, score, member.hyperparams)
        prune(self.config.checkpoint_dir, member)

    def exploit_and_explore(
        self, member: PopulationMember, ranked: Sequence[PopulationMember] | None = None
    ) -> tuple[dict[str, Any] | None, Hyperparams, str | None]:
        """Let a member copy a better one, and let it explore if it did, once enough members have reported.

        A source whose file cannot be read is not copied, with one ResumeWarning.

        :param ranked: :meth:`ranked`, which a round of decisions needs once; it holds until a member reports
        :return: the source's parameters (None if nothing is copied), the hyperparameters to go on with, and the format
            of the source's file (``v2_full_parameters``; ``v1_policy_only`` holds the policy alone; None)
        """
        member.copied_from = None
        if not self.is_ready():
            return None, dict(member.hyperparams), None
        source = self.choose_source(member, ranked)
        checkpoint = None if source is None else read_source(source)
        if source is not None and checkpoint is not None:
            member.hyperparams = dict(source.checkpoint_hyperparams or source.hyperparams)
            member.copied_from = source.member_id
            self.exploitation_count += 1
            _logger.info("member %d copies member %d (%s)", member.member_id, source.member_id, source.checkpoint_path)
        if self.explores(exploited=checkpoint is not None):
            ranges, method = self.config.hyperparams, self.config.explore_method
            member.hyperparams = explored(member.hyperparams, ranges, method, self.generator)
            self.exploration_count += 1
        parameters, kind = (None, None) if checkpoint is None else (checkpoint.data, checkpoint.format_version)
        return cast(Any, parameters), dict(member.hyperparams), kind

    def choose_source(
        self, member: PopulationMember, ranked: Sequence[PopulationMember] | None = None
    ) -> PopulationMember | None:
        """Draw the better member that ``member`` would copy now; ``ranked`` as in :meth:`exploit_and_explore`."""
        if member.performance is None:
            return None
        if self.config.exploit_method == "binary_tournament":
            return tournament_source(member, self.ready_members(), self.config, self.generator)
        ready = [each for each in ranked or self.ranked() if each.performance is not None]
        return truncation_source(member, ready, self.config, self.generator)

    def explores(self, *, exploited: bool) -> bool:
        """Return whether a member explores, by whether it has just copied another."""
        return exploited or self.config.explore_without_exploit

    def ready_members(self) -> list[PopulationMember]:
        """Return the members that have reported a performance."""
        return [each for each in self.population if each.performance is not None]

    def is_ready(self) -> bool:
        """Return whether ``ready_percentage`` of the members have reported."""
        return len(self.ready_members()) >= ready_count(self.config.population_size, self.config.ready_percentage)

    def ranked(self) -> list[PopulationMember]:
        """Return the population from best to worst; those without a number come last."""
        return rank(self.population, self.config.metric_mode)

    def get_stats(self) -> dict[str, int | float]:
        """Return figures for a logger; those of performance are over the finite ones, and NaN if there is none."""
        return {
            "pbt/population_size": len(self.population),
            "pbt/ready_members": len(self.ready_members()),
            **performance_statistics(self.population),
            "pbt/exploitation_count": self.exploitation_count,
            "pbt/exploration_count": self.exploration_count,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return members, counters and generator, in plain Python that shares nothing with the scheduler."""
        return {
            "members": [member.state_dict() for member in self.population],
            "generator": self.generator.bit_generator.state,
            "exploitation_count": self.exploitation_count,
            "exploration_count": self.exploration_count,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where :meth:`state_dict` was called; ``population`` then holds new members.

        A file in ``checkpoint_dir`` is found there even if the folder was moved.

        :raises StateError: if the state is of another ``population_size``; nothing is changed
        """
        given = deepcopy(dict(state))
        generator, members = make_generator(0), [PopulationMember(**each) for each in given["members"]]
        generator.bit_generator.state = given["generator"]
        if len(members) not in (0, size := self.config.population_size):
            raise StateError(f"the state has {len(members)} members and population_size={size}; give that of this one")
        for member in members:
            if member.saved_steps:
                member.checkpoint_path = str(path_of(self.config.checkpoint_dir, member, member.saved_steps[-1]))
        self.population, self.generator = members, generator
        self.exploitation_count, self.exploration_count = given["exploitation_count"], given["exploration_count"]

    def _checked_hyperparams(self, given: Sequence[Mapping[str, HyperparamValue]]) -> list[Hyperparams]:
        size = self.config.population_size
        if len(given) != size:
            problem = f"initial_hyperparams holds {len(given)} mappings for population_size={size}; give as many"
            raise SettingError("initial_hyperparams", problem)
        members = [{name: plain(value) for name, value in each.items()} for each in given]
        for held in members:
            for each in self.config.hyperparams:
                each.check_value(held.get(each.name))
        return members

    def _save(self, member: PopulationMember, score: float, step: int, parameters: Any, policy: Any) -> None:
        self.config.checkpoint_dir.mkdir(parents=True, exist_ok=True)
        path = path_of(self.config.checkpoint_dir, member, step)
        if parameters is not None:
            save_checkpoint(path, parameters, step=step, performance=score)
        else:
            save_policy(path, policy)
        member.checkpoint_path, member.checkpoint_hyperparams = str(path), dict(member.hyperparams)
        member.saved_steps = [*(each for each in member.saved_steps if each != step), step]


def make_generator(seed: int | None) -> np.random.Generator:
    """The scheduler's own generator."""
    return np.random.Generator(np.random.PCG64(seed))


def path_of(folder: Path, member: PopulationMember, step: int) -> Path:
    """Return the file of a member's parameters of a step."""
    return folder / f"member_{member.member_id}_step_{step}.pt"


def read_source(source: PopulationMember) -> Checkpoint | None:
    """Read what a member last saved, in tensors of its own; None, with one ResumeWarning, if it cannot be read."""
    if source.checkpoint_path is None:
        reason = f"member {source.member_id} has saved no checkpoint; give model_parameters to update_performance"
    else:
        try:
            return load_checkpoint(source.checkpoint_path)
        except CheckpointError as error:
            reason = str(error)
    message = f"nothing was copied from member {source.member_id}, so the parameters stay as they are: {reason}"
    warn_caller(message, ResumeWarning)
    return None


def prune(folder: Path, member: PopulationMember) -> None:
    """Remove the member's files but the last :data:`KEPT`."""
    for step in member.saved_steps[:-KEPT]:
        path_of(folder, member, step).unlink(missing_ok=True)
        member.saved_steps.remove(step)


def performance_statistics(members: Sequence[PopulationMember]) -> dict[str, float]:
    """Return mean, population standard deviation, smallest and largest finite performance; NaN if there is none."""
    numbers = [each.performance for each in members if each.performance is not None]
    finite = np.array([number for number in numbers if math.isfinite(number)] or [math.nan])
    figures = {"mean": finite.mean(), "std": finite.std(), "min": finite.min(), "max": finite.max()}
    return {f"pbt/{name}_performance": float(figure) for name, figure in figures.items()}


def truncation_source(
    member: PopulationMember, ranked: Sequence[PopulationMember], config: PBTConfig, generator: np.random.Generator
) -> PopulationMember | None:
    """Draw from the best that are better than ``member`` if it is among the worst, by ``ranked``, all with a score."""
    count = truncation_count(len(ranked), config.truncation_ratio)
    if not any(each is member for each in ranked[len(ranked) - count :]):
        return None
    return _draw(eligible_sources(member, ranked[:count], config.metric_mode), generator)


def tournament_source(
    member: PopulationMember, members: Sequence[PopulationMember], config: PBTConfig, generator: np.random.Generator
) -> PopulationMember | None:
    """Draw one opponent from all others; None unless it is better: with b better of n others, P(copied) = b / n."""
    opponent = _draw([each for each in members if each is not member], generator)
    candidates = [] if opponent is None else [opponent]
    return _draw(eligible_sources(member, candidates, config.metric_mode), generator)


def rank(members: Sequence[PopulationMember], metric_mode: str) -> list[PopulationMember]:
    """Sort members from best to worst; equal ones keep their order, and those without a number come last."""
    return sorted(members, key=lambda each: ranking_key(each, metric_mode), reverse=True)


def ranking_key(member: PopulationMember, metric_mode: str) -> tuple[bool, float]:
    """Return a key that is larger for better members: NaN or None is worse than every number, infinity included."""
    performance = member.performance
    if performance is None or math.isnan(performance):
        return False, 0.0
    return True, performance if metric_mode == "max" else -performance


def eligible_sources(
    member: PopulationMember, candidates: Sequence[PopulationMember], metric_mode: str
) -> list[PopulationMember]:
    """Return the candidates that are strictly better than ``member``, as copying an equal one would lose diversity."""
    own = ranking_key(member, metric_mode)
    return [each for each in candidates if ranking_key(each, metric_mode) > own]


def truncation_count(size: int, ratio: float) -> int:
    """Return the number of members at either end: the share of ``size``, rounded down, and at least one."""
    return max(1, math.floor(size * ratio + _ROUNDING))


def ready_count(size: int, ready_percentage: float) -> int:
    """Return the number of members that must have reported: the share of ``size``, rounded up, and at least two."""
    return max(2, math.ceil(size * ready_percentage - _ROUNDING))


def _draw(candidates: Sequence[PopulationMember], generator: np.random.Generator) -> PopulationMember | None:
    return candidates[int(generator.integers(len(candidates)))] if candidates else None
