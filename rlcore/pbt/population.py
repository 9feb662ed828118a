"""A population of models that train in turns in one process, copy the better ones and explore."""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from stable_baselines3.common.utils import set_random_seed

from rlcore.checkpoint import save_container
from rlcore.errors import CheckpointError, NonFiniteError, SettingError
from rlcore.pbt import files, hyperparams
from rlcore.pbt.exploit import apply_exploit, mean_episode_return
from rlcore.pbt.files import LineageEvent, LineageFile, SavedMember, SavedPopulation
from rlcore.pbt.hyperparams import Hyperparams, HyperparamValue, PBTConfig
from rlcore.pbt.scheduler import PBTScheduler, agreed_seed
from rlcore.pbt.selection import PopulationMember
from rlcore.ppo import continuing
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.arguments import whole_number
from rlcore.ppo.live_settings import plan_change, set_hyperparameters
from rlcore.state.generators import apply_generators, capture_generators
from rlcore.types import StateDict


class OwnGenerators:
    """The global generators as one member has them: what others draw in between changes nothing for it.

    :param seed: of Python's, NumPy's and torch's generators at first
    """

    def __init__(self, seed: int) -> None:
        self._state = capture_generators()
        with self.in_place():
            set_random_seed(seed)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Apply them, and restore the others afterwards."""
        outside = capture_generators()
        apply_generators(self._state)
        try:
            yield
        finally:
            self._state = capture_generators()
            apply_generators(outside)


class TurnwiseTraining:
    """``learn()`` in pieces: after all of them the model has the bits that one call would have left.

    A model that was loaded goes on where its run stood.

    :param total_timesteps: of the whole run, what the model has already made included; schedules count by it
    :param name: of the run in TensorBoard
    """

    def __init__(self, model: DistributionalPPO, total_timesteps: int, name: str) -> None:
        self.model = model
        left = max(0, total_timesteps - model.num_timesteps)
        self.total_timesteps, self._callback = model._setup_learn(left, reset_num_timesteps=False, tb_log_name=name)

    def advance(self, updates: int, figures: Mapping[str, float]) -> None:
        """Collect a rollout and update, several times.

        :param figures: what is logged with every rollout beside the model's own
        :raises NonFiniteError: if a rollout or an update cannot be made; it leaves no trace, the rollout is lost, and
            the next turn goes on from where the environments are, or from a reset if they returned NaN
        """
        for _ in range(updates):
            try:
                self._advance_once(figures)
            except NonFiniteError:
                self.model._boundary = None
                with suppress(NonFiniteError):  # an environment that returns NaN again is reset in the next turn
                    self._reset_if_lost()
                raise

    def _reset_if_lost(self) -> None:
        """Reset the environments if what they returned last could not be used."""
        model = self.model
        assert model.env is not None, "learn() cannot be entered without an environment"
        if model._last_obs is None:
            model._last_obs = model.env.reset()
            model._last_episode_starts = np.ones(model.n_envs, dtype=bool)

    def _advance_once(self, figures: Mapping[str, float]) -> None:
        model = self.model
        self._reset_if_lost()
        assert model.env is not None
        model.collect_rollouts(model.env, self._callback, model.rollout_buffer, n_rollout_steps=model.n_steps)
        model._update_current_progress_remaining(model.num_timesteps, self.total_timesteps)
        for key, value in figures.items():
            model.logger.record(key, value)
        model.dump_logs(model.num_timesteps // (model.n_steps * model.n_envs))
        model.train()


_logger = logging.getLogger("rlcore.pbt")

MakeModel: TypeAlias = Callable[[Mapping[str, HyperparamValue], int], DistributionalPPO]
"""Builds a member's model, with environments of its own, from its hyperparameters and its seed."""


@dataclass(frozen=True)
class MemberStatus:
    """Where a member is.

    :param step: updates that it has made
    :param performance: its last score; None before the first
    :param exploits: how often it has copied another
    :param copied_from: the member that it has just copied, where this reports an exploit
    """

    member_id: int
    step: int
    performance: float | None
    hyperparams: Hyperparams
    exploits: int
    copied_from: int | None = None


@dataclass(frozen=True)
class PopulationResult:
    """What a population came to.

    :param best: the member of the best score
    :param model_file: its model, for ``DistributionalPPO.load``
    :param table: every member, the best first
    """

    best: MemberStatus
    model_file: Path
    table: tuple[MemberStatus, ...]


Progress: TypeAlias = Callable[[MemberStatus], None]


class _Trainee:
    """A member's model, with what trains it; counts what the scheduler does not know of."""

    def __init__(self, member: PopulationMember, seed: int, saved: SavedMember) -> None:
        self.member = member
        self.seed = seed
        self.generators = OwnGenerators(seed)
        self.model: DistributionalPPO
        self.training: TurnwiseTraining
        self.file, self.exploits, self.vgs_transfers = saved.file, saved.exploits, saved.vgs_transfers

    def status(self, copied_from: int | None = None) -> MemberStatus:
        member = self.member
        return MemberStatus(
            member.member_id, member.step, member.performance, dict(member.hyperparams), self.exploits, copied_from
        )


class Population:
    """Population-based training (Jaderberg et al., 2017) of :class:`DistributionalPPO` models, one after the other.

    Every member makes ``perturbation_interval`` updates a turn; when all have, the scheduler decides who copies whom.
    A member's environments and generators are its own, so that it trains as it would alone. All is kept in ``folder``:
    after every turn the models, the scheduler and the lineage are there as one whole, and a population made on the
    same folder goes on exactly where the last one was interrupted, also by a kill. After an exception make a new one
    on the folder. A member's checkpoint that has gone missing or is damaged is not copied: who was to copy it keeps its
    own parameters, and one ResumeWarning names the file.

    A member's score counts the episodes that ended since it last copied another, among the last
    ``stats_window_size``; before one has ended it is NaN, which ranks last. So does a member whose observations,
    returns or gradients are no longer finite: it makes no more updates in that turn, and goes on if it is let copy
    another.

    :param make_model: called once a member
    :param config: its ``hyperparams`` are settings that :func:`set_hyperparameters` can change; its steps are updates
    :param folder: new, empty, or of a population of the same configuration
    :param seed: everything derives from it; default ``config.seed``, or the one that the folder was begun with
    :param performance: the score of a model; default the mean return of the last episodes
    :param initial_hyperparams: one mapping a member, instead of drawn ones
    :raises SettingError: a setting that cannot be used, or another than the folder was begun with
    :raises CheckpointError: files in the folder that cannot be read
    """

    def __init__(
        self,
        make_model: MakeModel,
        config: PBTConfig,
        *,
        folder: str | Path,
        seed: int | None = None,
        performance: Callable[[DistributionalPPO], float] | None = None,
        initial_hyperparams: Sequence[Mapping[str, HyperparamValue]] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self._performance = performance or _default_performance(config)
        self._make_model = make_model
        state = files.read_state(self.folder)
        agreed = agreed_seed(config, seed, None if state is None else state.seed)
        self.seed = secrets.randbits(32) if agreed is None else agreed
        own = {} if "checkpoint_dir" in config.model_fields_set else {"checkpoint_dir": self.folder / "checkpoints"}
        self.config = config.model_copy(update={"seed": self.seed, **own})
        self.scheduler = PBTScheduler(self.config)
        self._lineage = LineageFile(self.folder / files.LINEAGE_FILE)
        self._explored_step = 0
        if state is None:
            self.scheduler.initialize_population(initial_hyperparams)
        else:
            files.require_same_config(self.config, state, self.folder)
            self.scheduler.load_state_dict(state.scheduler)
            files.require_checkpoints(self.scheduler.population, state)
            self._explored_step, self._lineage.size = state.explored_step, state.lineage_size
        saved = [SavedMember()] * self.config.population_size if state is None else state.members
        self._trainees = [
            _Trainee(member, member_seed(self.seed, member.member_id), of_file)
            for member, of_file in zip(self.scheduler.population, saved, strict=True)
        ]
        for trainee in self._trainees:
            self._build(trainee)

    @property
    def models(self) -> list[DistributionalPPO]:
        """The members' models, in the order of the members."""
        return [trainee.model for trainee in self._trainees]

    def statuses(self) -> list[MemberStatus]:
        """Where the members stand, in their order."""
        return [trainee.status() for trainee in self._trainees]

    def train(self, updates_per_member: int, progress: Progress | None = None) -> PopulationResult:
        """Train until every member has made ``updates_per_member`` updates in all.

        After the last turn nobody copies, so that the result is what was trained. Asked for more later, the exploits
        that were left out are made up for; schedules then count by the new total.

        :param progress: told of every turn and every exploit, once it is on disk
        :raises SettingError: if ``updates_per_member`` is no whole number of at least 0
        :raises CheckpointError: if something cannot be written, the folder is as after the last turn; or if another
            process trains in it
        """
        total, tell = whole_number("updates_per_member", updates_per_member), progress or (lambda _: None)
        files.make_folder(self.folder)
        with files.locked(self.folder):
            self._begin(total)
            while True:
                due = self._explored_step + self.config.perturbation_interval
                for trainee in self._trainees:
                    if trainee.member.step < min(due, total):
                        self._take_turn(trainee, min(due, total))
                        tell(trainee.status())
                if due >= total:
                    return self._result()
                for trainee in self._exploit_and_explore():
                    tell(trainee.status(trainee.member.copied_from))

    def _build(self, trainee: _Trainee) -> None:
        """Make the model, or load the one that the folder has, and check that its hyperparameters can be explored."""
        with trainee.generators.in_place():
            model = self._make_model(dict(trainee.member.hyperparams), trainee.seed)
            set_hyperparameters(model, trainee.member.hyperparams)
            if trainee.file is not None:
                path = self._model_file(trainee.file)
                try:
                    model = continuing.continued(path, model)
                except CheckpointError as error:
                    reason = f"{error.reason}; without it the population cannot go on: {files.BRING_BACK}"
                    raise CheckpointError(path, reason) from error
        hyperparams.check_explorable(self.config.hyperparams, model, partial(plan_change, model))
        hyperparams.check_warm_up(self.config, model, model.n_envs)
        trainee.model = model

    def _take_turn(self, trainee: _Trainee, target: int) -> None:
        """Train up to the step ``target``, score, and make it durable."""
        member, model = trainee.member, trainee.model
        figures = {
            "pbt/exploit_count": trainee.exploits,
            "pbt/vgs_transferred": trainee.vgs_transfers,
            **self.scheduler.get_stats(),
        }
        with trainee.generators.in_place():
            score = self._trained_score(trainee, target - member.step, figures)
            self._save_model(trainee, f"member_{member.member_id}_step_{target}.zip")
        self.scheduler.update_performance(member, score, target, model.get_parameters())
        self._commit()

    def _trained_score(self, trainee: _Trainee, updates: int, figures: Mapping[str, float]) -> float:
        """Train, and say what came of it: NaN where the member has diverged."""
        try:
            trainee.training.advance(updates, figures)
        except NonFiniteError as error:
            _logger.warning("member %d has diverged and scores NaN: %s", trainee.member.member_id, error)
            return math.nan
        return float(self._performance(trainee.model))

    def _save_model(self, trainee: _Trainee, name: str) -> None:
        """Write the model under a name that no committed state uses yet."""
        trainee.model.save(self._model_file(name))
        trainee.file = name

    def _model_file(self, name: str) -> Path:
        return self.folder / files.MEMBERS / name

    def _exploit_and_explore(self) -> list[_Trainee]:
        """Let every member that is due copy and explore, as one whole; the members for which something changed."""
        with self.scheduler.ranked_once():
            events = [(trainee, self._exploit(trainee)) for trainee in self._trainees]
        self._explored_step += self.config.perturbation_interval
        self._commit([event for _, event in events if event is not None])
        return [trainee for trainee, event in events if event is not None]

    def _exploit(self, trainee: _Trainee) -> LineageEvent | None:
        member = trainee.member
        before = dict(member.hyperparams)
        if not self.scheduler.should_exploit_and_explore(member):
            return None
        parameters, hyperparams, checkpoint_format = self.scheduler.exploit_and_explore(member)
        if parameters is None and hyperparams == before:
            return None
        with trainee.generators.in_place():
            if parameters is None:
                set_hyperparameters(trainee.model, hyperparams)
            else:
                self._take_over(trainee, parameters, hyperparams)
            self._save_model(trainee, f"member_{member.member_id}_step_{member.step}_explored.zip")
        score = member.performance if math.isfinite(member.performance or 0.0) else None
        if member.copied_from is None:
            return LineageEvent("explore", member.member_id, member.step, score, hyperparams, before)
        source = self.scheduler.population[member.copied_from]
        who = source.member_id, source.step, checkpoint_format
        return LineageEvent("exploit", member.member_id, member.step, score, hyperparams, before, *who)

    def _take_over(self, trainee: _Trainee, parameters: Mapping[Any, Any], hyperparams: Hyperparams) -> None:
        """Apply an exploit; what was earned with the old weights is no longer counted."""
        model = trainee.model
        apply_exploit(model, parameters, hyperparams, optimizer_exploit_strategy=self.config.optimizer_exploit_strategy)
        for window in (model.ep_info_buffer, model.ep_success_buffer):
            if window is not None:
                window.clear()
        trainee.exploits += 1
        trainee.vgs_transfers += model.variance_gradient_scaler is not None and parameters.get("vgs_state") is not None

    def _begin(self, total: int) -> None:
        for trainee in self._trainees:
            model = trainee.model
            with trainee.generators.in_place():
                trainee.training = TurnwiseTraining(
                    model, total * model.n_steps * model.n_envs, f"member_{trainee.member.member_id}"
                )
        if self._lineage.size == 0:
            members = self.scheduler.population
            self._commit([LineageEvent("start", each.member_id, 0, None, dict(each.hyperparams)) for each in members])

    def _commit(self, events: Sequence[LineageEvent] = ()) -> None:
        """Make everything up to here what a resumed run starts from; then remove what no longer counts."""
        self._lineage.append(events)
        state = SavedPopulation(
            seed=self.seed,
            config=files.described(self.config),
            explored_step=self._explored_step,
            lineage_size=self._lineage.size,
            scheduler=self.scheduler.state_dict(),
            members=[SavedMember.model_validate(each, from_attributes=True) for each in self._trainees],
        )
        save_container(self.folder / files.STATE_FILE, cast(StateDict, state.model_dump()))
        for trainee in self._trainees:
            for path in self._model_file("").glob(f"member_{trainee.member.member_id}_step_*.zip"):
                if path.name != trainee.file:
                    path.unlink(missing_ok=True)

    def _result(self) -> PopulationResult:
        ranked = [self._trainees[member.member_id] for member in self.scheduler.ranked()]
        table = tuple(trainee.status() for trainee in ranked)
        return PopulationResult(table[0], self._model_file(ranked[0].file or ""), table)


def _default_performance(config: PBTConfig) -> Callable[[DistributionalPPO], float]:
    default = PBTConfig.model_fields["metric_name"].default
    if config.metric_name != default:
        raise SettingError(
            "PBTConfig['metric_name']",
            f"metric_name={config.metric_name!r} only names what performance measures, and without performance=... "
            f"that is {default!r}; give Population a function that measures it",
        )
    return mean_episode_return


def member_seed(seed: int, member_id: int) -> int:
    """A member's seed; not near another's, for environments count up from it."""
    return int(np.random.SeedSequence([seed, member_id]).generate_state(1)[0])
