"""A population of models that train in turns, copy the better ones and explore."""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from rlcore.errors import CheckpointError, SettingError
from rlcore.pbt import files
from rlcore.pbt.exploit import mean_episode_return
from rlcore.pbt.files import LineageEvent, SavedPopulation
from rlcore.pbt.hyperparams import Hyperparams, HyperparamValue, PBTConfig, check_explorable, check_warm_up
from rlcore.pbt.scheduler import PBTScheduler, PopulationMember
from rlcore.pbt.turns import LiveMember, MakeModel, MemberTask, Performance, Recipe, TurnResult, work_from_file
from rlcore.pbt.workers import Executor, InlineExecutor
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.live import plan_change
from rlcore.ppo.settings import whole_number

_logger = logging.getLogger("rlcore.pbt")


@dataclass(frozen=True)
class MemberStatus:
    """The progress of a member.

    :param step: updates that it has made
    :param performance: its last score; None before the first
    :param exploits: how often it has copied another
    :param copied_from: the member that it has just copied, if this reports an exploit
    """

    member_id: int
    step: int
    performance: float | None
    hyperparams: Hyperparams
    exploits: int
    copied_from: int | None = None


@dataclass(frozen=True)
class PopulationResult:
    """The result of a population.

    :param best: the member of the best score
    :param model_file: its model, for ``DistributionalPPO.load``
    :param table: every member, the best first
    """

    best: MemberStatus
    model_file: Path
    table: tuple[MemberStatus, ...]


Progress: TypeAlias = Callable[[MemberStatus], None]


@dataclass
class _Trainee:
    """A member, with what the scheduler does not know of it.

    :ivar file: its model, by name
    :ivar target: the model file that its work writes; it counts as soon as it is ``file``
    """

    member: PopulationMember
    seed: int
    file: str | None = None
    exploits: int = 0
    vgs_transfers: int = 0
    target: str | None = None

    def status(self, copied_from: int | None = None) -> MemberStatus:
        member, hyperparams = self.member, dict(self.member.hyperparams)
        return MemberStatus(member.member_id, member.step, member.performance, hyperparams, self.exploits, copied_from)

    def saved(self) -> dict[str, Any]:
        return {"file": self.file, "exploits": self.exploits, "vgs_transfers": self.vgs_transfers}


class Population:
    """Population-based training (Jaderberg et al., 2017) of :class:`DistributionalPPO` models.

    Every member makes ``perturbation_interval`` updates a turn; when all have, the scheduler decides who copies whom.
    A member's environments and generators are its own, so that it trains as it would alone. After every turn ``folder``
    holds models, scheduler and lineage as one whole: a population that is made on the same folder goes on exactly where
    the last one was interrupted, also by a kill.

    A member's score counts the episodes that ended since it last copied another, among the last
    ``stats_window_size``; before one has ended it is NaN, which ranks last. So does a member whose observations,
    returns or gradients are no longer finite: it makes no more updates in that turn, and goes on if it copies another.

    With ``ProcessExecutor`` decisions, scores, weights and files are the same, but for the seconds that Monitor notes
    of an episode. Every turn goes on from the member's last file, so environments that cannot be restored (see
    :class:`rlcore.envs.ResumableEnv`) are reset before it. cloudpickle pickles ``make_model`` and ``performance``.

    :param make_model: called once a member, and with workers once a turn
    :param config: its ``hyperparams`` are settings that :func:`set_hyperparameters` can change; its steps are updates
    :param folder: new, empty, or of a population of the same configuration
    :param seed: everything derives from it; default ``config.seed``, or the one that the folder was begun with
    :param performance: the score of a model; default the mean return of the last episodes
    :param initial_hyperparams: one mapping a member, instead of drawn ones
    :param executor: where members train; default :class:`rlcore.InlineExecutor`
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
        performance: Performance | None = None,
        initial_hyperparams: Sequence[Mapping[str, HyperparamValue]] | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.folder = Path(folder)
        self._executor = InlineExecutor() if executor is None else executor
        self._recipe = Recipe(make_model, performance or mean_episode_return, config.optimizer_exploit_strategy)
        state = self._state = files.read_state(self.folder)
        asked = config.seed if seed is None else whole_number("seed", seed)
        self.seed = (secrets.randbits(32) if state is None else state.seed) if asked is None else asked
        own = {} if "checkpoint_dir" in config.model_fields_set else {"checkpoint_dir": self.folder / "checkpoints"}
        self.config = config.model_copy(update={"seed": self.seed, **own})
        self.scheduler = PBTScheduler(self.config)
        self._explored_step = self._lineage_size = 0
        if state is None:
            self.scheduler.initialize_population(initial_hyperparams)
        else:
            self._require_same_config(state)
            self.scheduler.load_state_dict(state.scheduler)
            self._explored_step, self._lineage_size = state.explored_step, state.lineage_size
        saved = [{}] * self.config.population_size if state is None else state.members
        self._trainees = [
            _Trainee(member, member_seed(self.seed, member.member_id), **of_file)
            for member, of_file in zip(self.scheduler.population, saved, strict=True)
        ]
        self._live: list[LiveMember] = []
        self._work: Callable[[MemberTask], TurnResult] = partial(work_from_file, self._recipe)
        if self._executor.in_process:
            self._live = [self._built(trainee) for trainee in self._trainees]
            self._work = lambda task: self._live[task.member_id].work(task)
        with nullcontext(self._live[0]) if self._live else closing(self._built(self._trainees[0])) as first:
            check_explorable(self.config.hyperparams, partial(plan_change, first.model))
            check_warm_up(self.config, first.model, first.model.n_envs)

    @property
    def models(self) -> list[DistributionalPPO]:
        """The members' models, in the order of the members; with workers, built again from the members' files."""
        return [live.model for live in self._live or map(self._built, self._trainees)]

    def statuses(self) -> list[MemberStatus]:
        """Return the progress of the members, in their order."""
        return [trainee.status() for trainee in self._trainees]

    def train(self, updates_per_member: int, progress: Progress | None = None) -> PopulationResult:
        """Train until every member has made ``updates_per_member`` updates in all.

        After the last turn nobody copies, so that the result is what was trained. If a later call asks for more, the
        exploits that were left out come first; schedules then count by the new total.

        :param progress: called after every turn and every exploit, once it is on disk; turns in the order of their end
        :raises SettingError: if ``updates_per_member`` is no whole number of at least 0
        :raises CheckpointError: if another process trains in the folder or has since this population was made, or a
            model cannot be written; the folder is as after the last turn
        :raises WorkerError: if the workers that train a member die again and again; the folder is as above
        """
        total, tell = whole_number("updates_per_member", updates_per_member), progress or (lambda _: None)
        self._model_file("").mkdir(parents=True, exist_ok=True)
        with self._executor, files.locked(self.folder):
            if repr(files.read_state(self.folder)) != repr(self._state):
                raise CheckpointError(self.folder, "was changed since this population was made; make it again")
            if self._lineage_size == 0:
                every = self.scheduler.population
                self._commit([LineageEvent("start", each.member_id, 0, None, dict(each.hyperparams)) for each in every])
            while True:
                due = self._explored_step + self.config.perturbation_interval
                for trainee in self._take_turns(min(due, total), total):
                    tell(trainee.status())
                if due >= total:
                    ranked = [self._trainees[member.member_id] for member in self.scheduler.ranked()]
                    table = tuple(trainee.status() for trainee in ranked)
                    return PopulationResult(table[0], self._model_file(ranked[0].file or ""), table)
                for trainee in self._exploit_and_explore(total):
                    tell(trainee.status(trainee.member.copied_from))

    def _require_same_config(self, state: SavedPopulation) -> None:
        begun = {**state.config, "seed": state.seed}
        for name, value in {**self._described(), "seed": self.seed}.items():
            if begun.get(name) != value:
                begun_with = f"the population in {self.folder} was begun with {begun.get(name)!r}"
                raise SettingError(name, f"{name}={value!r}, and {begun_with}; give the same, or another folder")

    def _described(self) -> dict[str, Any]:
        """Return the settings that must not change when a run goes on."""
        return self.config.model_dump(mode="json", exclude={"checkpoint_dir", "seed"})

    def _built(self, trainee: _Trainee) -> LiveMember:
        """Build a new model, or the one that the folder has."""
        return LiveMember(self._recipe, trainee.seed, trainee.member.hyperparams, self._saved(trainee))

    def _task(self, trainee: _Trainee, trained_under: Hyperparams, total: int, name: str, **work: Any) -> MemberTask:
        """Describe work, of which ``trained_under`` are the hyperparameters of the member's last file."""
        number = trainee.member.member_id
        trainee.target = f"member_{number}_step_{name}.zip"
        saved, target = self._saved(trainee), self._model_file(trainee.target).absolute()
        return MemberTask(number, trainee.seed, trained_under, saved, target, total, **work)

    def _take_turns(self, target: int, total: int) -> Iterator[_Trainee]:
        """Train every member up to the step ``target``, and make each turn durable as it ends."""
        stats = self.scheduler.get_stats()  # once, so that what is logged does not depend on who ends first

        def tasks() -> Iterator[MemberTask]:
            for trainee in self._trainees:
                if trainee.member.step < target:
                    counts = {"pbt/exploit_count": trainee.exploits, "pbt/vgs_transferred": trainee.vgs_transfers}
                    work = {"updates": target - trainee.member.step, "figures": {**counts, **stats}}
                    yield self._task(trainee, dict(trainee.member.hyperparams), total, str(target), **work)

        for task, result in self._executor.map(self._work, tasks()):
            trainee = self._trainees[task.member_id]
            if result.diverged is not None:
                _logger.warning("member %d has diverged and scores NaN: %s", task.member_id, result.diverged)
            trainee.file = trainee.target
            self.scheduler.update_performance(trainee.member, result.score, target, result.parameters)
            self._commit()
            yield trainee

    def _exploit_and_explore(self, total: int) -> list[_Trainee]:
        """Let every member that is due copy and explore, as one whole; return the members that changed."""
        events: dict[int, LineageEvent] = {}
        for task, result in self._executor.map(self._work, self._exploits(events, total)):
            trainee = self._trainees[task.member_id]
            trainee.file = trainee.target
            if trainee.member.copied_from is not None:
                self._count_exploit(trainee, result)
        self._explored_step += self.config.perturbation_interval
        self._commit([events[number] for number in sorted(events)])
        return [self._trainees[number] for number in sorted(events)]

    def _exploits(self, events: dict[int, LineageEvent], total: int) -> Iterator[MemberTask]:
        """Decide member by member, in their order, as the scheduler draws from one generator; add all to ``events``."""
        ranked = self.scheduler.ranked()
        for trainee in self._trainees:
            member = trainee.member
            before = dict(member.hyperparams)
            if not self.scheduler.should_exploit_and_explore(member):
                continue
            parameters, after, checkpoint_format = self.scheduler.exploit_and_explore(member, ranked)
            if parameters is not None or after != before:
                events[member.member_id] = self._event(member, before, checkpoint_format)
                work = {"explored": after, "parameters": parameters}
                yield self._task(trainee, before, total, f"{member.step}_explored", **work)

    def _event(self, member: PopulationMember, before: Hyperparams, checkpoint_format: str | None) -> LineageEvent:
        score = member.performance if math.isfinite(member.performance or 0.0) else None
        what = member.member_id, member.step, score, dict(member.hyperparams), before
        if member.copied_from is None:
            return LineageEvent("explore", *what)
        source = self.scheduler.population[member.copied_from]
        return LineageEvent("exploit", *what, source.member_id, source.step, checkpoint_format)

    def _count_exploit(self, trainee: _Trainee, result: TurnResult) -> None:
        trainee.exploits += 1
        trainee.vgs_transfers += result.vgs_transferred

    def _saved(self, trainee: _Trainee) -> Path | None:
        return None if trainee.file is None else self._model_file(trainee.file).absolute()

    def _model_file(self, name: str) -> Path:
        return self.folder / files.MEMBERS / name

    def _commit(self, events: Sequence[LineageEvent] = ()) -> None:
        """Make everything up to here the state that a resumed run starts from; then remove files without use."""
        lineage = self.folder / files.LINEAGE_FILE
        self._lineage_size = files.append_lineage(lineage, self._lineage_size, events)
        self._state = SavedPopulation(
            seed=self.seed,
            config=self._described(),
            explored_step=self._explored_step,
            lineage_size=self._lineage_size,
            scheduler=self.scheduler.state_dict(),
            members=[trainee.saved() for trainee in self._trainees],
        )
        files.write_state(self._state, self.folder)
        kept = {name for trainee in self._trainees for name in (trainee.file, trainee.target)}
        for path in self._model_file("").glob("member_*_step_*.zip"):
            if path.name not in kept:
                path.unlink(missing_ok=True)


def member_seed(seed: int, member_id: int) -> int:
    """Derive a member's seed; not near another's, for environments count up from it."""
    return int(np.random.SeedSequence([seed, member_id]).generate_state(1)[0])
