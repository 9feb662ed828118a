"""A population of models that train in turns, copy the better ones and explore, and the files that they leave."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, cast

import numpy as np

from rlcore.checkpoint.container import bytes_of, locked, refusals_name, unusable, write_atomic
from rlcore.errors import CheckpointError, SettingError
from rlcore.pbt.hyperparams import Hyperparams, HyperparamValue, PBTConfig, check_explorable, check_warm_up
from rlcore.pbt.scheduler import PBTScheduler, PopulationMember
from rlcore.pbt.turns import (
    LiveMember,
    MakeModel,
    MemberTask,
    Performance,
    Recipe,
    TurnResult,
    mean_episode_return,
    work_from_file,
)
from rlcore.pbt.workers import Executor, InlineExecutor
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.live import plan_change
from rlcore.ppo.settings import whole_number

STATE_FILE: Final = "population.json"
MEMBERS: Final = "members"
LINEAGE_FILE: Final = "lineage.jsonl"
LOCK_FILE: Final = "lock"
DIGEST: Final = "digest"
"""The entry of the state's file for the digest of the others, which files of earlier versions lack."""
STATE_FORM: Final = {"seed": int, "config": dict, "explored_step": int, "lineage_size": int, "scheduler": dict}

_logger = logging.getLogger("rlcore.pbt")


@dataclass(frozen=True)
class PopulationResult:
    """The members, the best first, and the model of the best one, for ``DistributionalPPO.load``."""

    best: PopulationMember
    model_file: Path
    table: tuple[PopulationMember, ...]


class Population:
    """Population-based training (Jaderberg et al., 2017) of :class:`DistributionalPPO` models.

    Every member makes ``perturbation_interval`` updates a turn; when all have, the scheduler decides who copies whom.
    A member's environments and generators are its own, so that it trains as it would alone. After every turn ``folder``
    holds models, scheduler and lineage as one whole: a population that is made on the same folder goes on exactly where
    the last one was interrupted, also by a kill.

    A member's score counts the episodes that ended since it last copied another, among the last
    ``stats_window_size``; before one has ended it is NaN, which ranks last. So does a member whose observations,
    returns or gradients are no longer finite: it makes no more updates in that turn, and goes on if it copies another.

    With ``ProcessExecutor`` every turn goes on from the member's last file, so environments that cannot be restored
    (see :class:`rlcore.ResumableEnv`) are reset before it. cloudpickle pickles ``make_model`` and ``performance``.

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
        self._executor = executor or InlineExecutor()
        self._recipe = Recipe(make_model, performance or mean_episode_return, config.optimizer_exploit_strategy)
        state = self._state = read_state(self.folder)
        asked = config.seed if seed is None else whole_number("seed", seed)
        self.seed = (state["seed"] if state else secrets.randbits(32)) if asked is None else asked
        own = {} if "checkpoint_dir" in config.model_fields_set else {"checkpoint_dir": self.folder / "checkpoints"}
        self.config = config.model_copy(update={"seed": self.seed, **own})
        self.scheduler = PBTScheduler(self.config)
        self._explored_step = self._lineage_size = 0
        if state is None:
            self.scheduler.initialize_population(initial_hyperparams)
        else:
            self._require_same_config(state)
            with refusals_name(self.folder / STATE_FILE), unusable("scheduler"):
                self.scheduler.load_state_dict(state["scheduler"])
            self._explored_step, self._lineage_size = state["explored_step"], state["lineage_size"]
        self._live: list[LiveMember] = []
        self._work: Callable[[MemberTask], TurnResult] = partial(work_from_file, self._recipe)
        if self._executor.in_process:
            self._live = [self._built(member) for member in self.scheduler.population]
            self._work = lambda task: self._live[task.member_id].work(task)
        first = self._live[0] if self._live else self._built(self.scheduler.population[0])
        check_explorable(self.config.hyperparams, partial(plan_change, first.model))
        check_warm_up(self.config, first.model, first.model.n_envs)
        if not self._live:
            first.close()

    @property
    def models(self) -> list[DistributionalPPO]:
        """The members' models, in the order of the members; with workers, built again from the members' files."""
        return [live.model for live in self._live or map(self._built, self.scheduler.population)]

    def train(
        self, updates_per_member: int, progress: Callable[[PopulationMember], object] = lambda _: None
    ) -> PopulationResult:
        """Train until every member has made ``updates_per_member`` updates in all.

        After the last turn no member copies, so that the result is what was trained. If a later call asks for more, the
        exploits that were left out come first; schedules then count by the new total.

        :param progress: called with a member after every turn (in the order of their end) and after every exploit, once
            it is on disk
        :raises SettingError: if ``updates_per_member`` is no whole number of at least 0
        :raises CheckpointError: if another process trains in the folder or has since this population was made, or a
            model cannot be written; the folder is as after the last turn
        :raises WorkerError: if the workers that train a member die again and again; the folder is as above
        """
        total = whole_number("updates_per_member", updates_per_member)
        self._model_file("").mkdir(parents=True, exist_ok=True)
        with self._executor, locked(self.folder / LOCK_FILE):
            if repr(read_state(self.folder)) != repr(self._state):
                raise CheckpointError(self.folder, "was changed since this population was made; make it again")
            if self._lineage_size == 0:
                every = self.scheduler.population
                self._commit([LineageEvent("start", each.member_id, 0, None, each.hyperparams) for each in every])
            while True:
                due = self._explored_step + self.config.perturbation_interval
                for member in self._take_turns(min(due, total), total):
                    progress(deepcopy(member))
                if due >= total:
                    table = tuple(map(deepcopy, self.scheduler.ranked()))
                    return PopulationResult(table[0], self._model_file(table[0].model_file or ""), table)
                for member in self._exploit_and_explore(total):
                    progress(deepcopy(member))

    def _require_same_config(self, state: Mapping[str, Any]) -> None:
        begun = {**state["config"], "seed": state["seed"]}
        for name, value in {**self._described(), "seed": self.seed}.items():
            if begun.get(name) != value:
                begun_with = f"the population in {self.folder} was begun with {begun.get(name)!r}"
                raise SettingError(name, f"{name}={value!r}, and {begun_with}; give the same, or another folder")

    def _described(self) -> dict[str, Any]:
        """Return the settings that must not change when a run goes on."""
        return self.config.model_dump(mode="json", exclude={"checkpoint_dir", "seed"})

    def _built(self, member: PopulationMember) -> LiveMember:
        """Build a new model, or the one that the folder has."""
        seed = member_seed(self.seed, member.member_id)
        return LiveMember(self._recipe, seed, member.hyperparams, self._saved(member))

    def _task(
        self, member: PopulationMember, trained_under: Hyperparams, total: int, name: str, **work: Any
    ) -> MemberTask:
        """Describe work, of which ``trained_under`` are the hyperparameters of the member's last file."""
        number = member.member_id
        seed, target = member_seed(self.seed, number), self._model_file(f"member_{number}_step_{name}.zip")
        return MemberTask(number, seed, trained_under, self._saved(member), target, total, **work)

    def _take_turns(self, target: int, total: int) -> Iterator[PopulationMember]:
        """Train every member up to the step ``target``, and make each turn durable as it ends."""
        stats = self.scheduler.get_stats()  # once, so that what is logged does not depend on who ends first

        def tasks() -> Iterator[MemberTask]:
            for member in self.scheduler.population:
                if member.step < target:
                    counts = {"pbt/exploit_count": member.exploits, "pbt/vgs_transferred": member.vgs_transfers}
                    work = {"updates": target - member.step, "figures": {**counts, **stats}}
                    yield self._task(member, member.hyperparams, total, str(target), **work)

        for task, result in self._executor.map(self._work, tasks()):
            member = self.scheduler.population[task.member_id]
            if result.diverged is not None:
                _logger.warning("member %d has diverged and scores NaN: %s", task.member_id, result.diverged)
            member.model_file = task.target.name
            self.scheduler.update_performance(member, result.score, target, result.parameters)
            self._commit(changed=[member])
            yield member

    def _exploit_and_explore(self, total: int) -> list[PopulationMember]:
        """Let every member that is due copy and explore, as one whole; return the members that changed."""
        events: dict[int, LineageEvent] = {}
        for task, result in self._executor.map(self._work, self._exploits(events, total)):
            member = self.scheduler.population[task.member_id]
            member.model_file = task.target.name
            if member.copied_from is not None:
                self._count_exploit(member, result)
        self._explored_step += self.config.perturbation_interval
        changed = [self.scheduler.population[number] for number in events]
        self._commit(events.values(), changed)
        return changed

    def _exploits(self, events: dict[int, LineageEvent], total: int) -> Iterator[MemberTask]:
        """Decide member by member, in their order, as the scheduler draws from one generator; add all to ``events``."""
        ranked = self.scheduler.ranked()
        for member in filter(self.scheduler.should_exploit_and_explore, self.scheduler.population):
            before = member.hyperparams
            parameters, after, checkpoint_format = self.scheduler.exploit_and_explore(member, ranked)
            if parameters is not None or after != before:
                events[member.member_id] = self._event(member, before, checkpoint_format)
                work = {"explored": after, "parameters": parameters}
                yield self._task(member, before, total, f"{member.step}_explored", **work)

    def _event(self, member: PopulationMember, before: Hyperparams, checkpoint_format: str | None) -> LineageEvent:
        score = member.performance if math.isfinite(member.performance or 0.0) else None
        what = member.member_id, member.step, score, member.hyperparams, before
        if member.copied_from is None:
            return LineageEvent("explore", *what)
        source = self.scheduler.population[member.copied_from]
        return LineageEvent("exploit", *what, source.member_id, source.step, checkpoint_format)

    def _count_exploit(self, member: PopulationMember, result: TurnResult) -> None:
        member.exploits += 1
        member.vgs_transfers += result.vgs_transferred

    def _saved(self, member: PopulationMember) -> Path | None:
        return None if member.model_file is None else self._model_file(member.model_file)

    def _model_file(self, name: str) -> Path:
        return (self.folder / MEMBERS / name).absolute()

    def _commit(self, events: Iterable[LineageEvent] = (), changed: Iterable[PopulationMember] = ()) -> None:
        """Make everything up to here the state that a resumed run starts from; then remove older models of members."""
        self._lineage_size = append_lineage(self.folder / LINEAGE_FILE, self._lineage_size, events)
        self._state = {
            "seed": self.seed,
            "config": self._described(),
            "explored_step": self._explored_step,
            "lineage_size": self._lineage_size,
            "scheduler": self.scheduler.state_dict(),
        }
        write_atomic(self.folder / STATE_FILE, json.dumps(self._state | {DIGEST: _digest(self._state)}).encode())
        for member in changed:
            for path in self._model_file("").glob(f"member_{member.member_id}_step_*.zip"):
                if path.name != member.model_file:
                    path.unlink(missing_ok=True)


def member_seed(seed: int, member_id: int) -> int:
    """Derive a member's seed; not near another's, for environments count up from it."""
    return int(np.random.SeedSequence([seed, member_id]).generate_state(1)[0])


def read_state(folder: Path) -> dict[str, Any] | None:
    """Read the state that a run last committed, or return None if none was begun.

    :raises CheckpointError: if the file or the lineage is damaged, or is missing where members have models
    """
    path, members, lineage = folder / STATE_FILE, folder / MEMBERS, folder / LINEAGE_FILE
    if path.exists():
        try:
            with refusals_name(path, "read"):
                content = bytes_of(path).tobytes()
            state: Any = json.loads(content)
            if isinstance(state, dict) and state.pop(DIGEST, _digest(state)) != _digest(state):
                raise ValueError("its digest does not fit its content")
            if not isinstance(state, dict) or {name: type(each) for name, each in state.items()} != STATE_FORM:
                raise ValueError(f"it does not hold {', '.join(STATE_FORM)} of their types")
        except (ValueError, RecursionError) as error:
            raise CheckpointError(path, f"is damaged ({error}); give another folder") from error
        if not lineage.is_file() or lineage.stat().st_size < state["lineage_size"]:
            raise CheckpointError(lineage, f"is damaged, as {STATE_FILE} counts more bytes; give another folder")
        return cast(dict[str, Any], state)
    if any(members.glob("*.zip")):
        raise CheckpointError(members, f"holds models whose {STATE_FILE} is missing; give another folder")
    return None


def _digest(state: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()


@dataclass(frozen=True)
class LineageEvent:
    """An event in the life of one member.

    :param event: ``exploit`` if it copied another, ``explore`` if only its hyperparameters changed
    :param step: updates that the member had made
    :param performance: its score then; None for none, or none that is finite
    :param hyperparams: those that train from here on
    :param hyperparams_before: those that trained until here; None at the start
    :param source: the member that was copied, after ``source_step`` updates
    :param format: of the source's checkpoint
    """

    event: Literal["start", "exploit", "explore"]
    member: int
    step: int
    performance: float | None
    hyperparams: Hyperparams
    hyperparams_before: Hyperparams | None = None
    source: int | None = None
    source_step: int | None = None
    format: str | None = None


def append_lineage(path: Path, size: int, events: Iterable[LineageEvent]) -> int:
    """Append events so that the file of an interrupted run that goes on holds each of them once.

    :param size: bytes that are committed; what follows them is cut off first
    :return: the bytes with those of the events
    """
    known = [{name: value for name, value in asdict(event).items() if value is not None} for event in events]
    lines = "".join(f"{json.dumps(event, allow_nan=False)}\n" for event in known).encode()
    if lines:
        with path.open("r+b" if size else "w+b") as file:
            file.truncate(size)
            file.seek(size)
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
    return size + len(lines)


def read_lineage(path: str | Path, size: int | None = None) -> list[LineageEvent]:
    """Read the events of a file, oldest first; a last line that was cut off while it was written is left out.

    :param path: the file, or the folder of the population that it is in
    :param size: bytes to read; default all
    :raises CheckpointError: if the file cannot be read, or a line is damaged
    """
    path = Path(path)
    file = path / LINEAGE_FILE if path.is_dir() else path
    with refusals_name(file, "read"):
        content = bytes_of(file).tobytes()[:size]
    try:
        return [LineageEvent(**{"performance": None, **json.loads(line)}) for line in content.split(b"\n")[:-1]]
    except (ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(file, f"has a line that is not an event ({str(error)[:100]}); it is damaged") from error


def ancestors(events: Sequence[LineageEvent], member: int) -> list[tuple[int, int]]:
    """Return the members that a member's weights come from and their updates then, latest first.

    If the source copied another member at the same step, its weights from before that were copied.
    """
    found: list[tuple[int, int]] = []
    step = math.inf
    while copies := [each for each in events if (each.event, each.member) == ("exploit", member) and each.step < step]:
        member, step = cast(int, copies[-1].source), cast(int, copies[-1].source_step)
        found.append((member, step))
    return found
