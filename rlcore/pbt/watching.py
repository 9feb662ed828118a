"""A population as its files describe it; they are neither locked nor changed, so another process may be training."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from rlcore.checkpoint import load_checkpoint
from rlcore.errors import CheckpointError, RLCoreError
from rlcore.optim.scaler import VarianceGradientScaler
from rlcore.pbt import files
from rlcore.pbt.files import LineageEvent, SavedPopulation
from rlcore.pbt.hyperparams import Hyperparams, PBTConfig
from rlcore.pbt.scheduler import PBTScheduler
from rlcore.pbt.selection import PopulationMember

CHECKPOINTS: Final = "checkpoints"
"""The folder of the members' checkpoints in that of the population, unless ``checkpoint_dir`` names another."""


@dataclass(frozen=True)
class GradientScale:
    """Variance gradient scaling in a member's last checkpoint.

    :param step: updates that the member had made
    :param factor: by which its next gradients are multiplied, in [0, 1]; None if the scaling is off
    :param warming_up: whether the factor is 1 because too few steps are measured
    """

    step: int
    factor: float | None
    warming_up: bool = False


@dataclass(frozen=True)
class Unscored:
    """Reports without a number, up to the last one.

    :param since: updates that the member had made at the first of them
    :param diverged: True if the same weights had a score before. False if they never had one: they diverged, or no
        episode has ended since the start or since the last copy
    """

    since: int
    diverged: bool


@dataclass(frozen=True)
class WatchedMember:
    """One member, after its last report and what it copied since.

    :param rank: 1 for the best
    :param score: of the last report; None before the first, NaN if it has none
    :param trend: difference of the last two scores; None if there are no two finite ones
    :param step: updates at the last report
    :param before: hyperparameters before the last exploit or exploration; None if there was none
    :param exploits: how often it copied another
    :param sources: the member that it copied last, the one that this one had copied by then, and so on
    :param copied_at: updates that it had made at its last copy
    :param scale: None if no checkpoint of it could be read
    """

    rank: int
    member: int
    score: float | None
    trend: float | None
    step: int
    hyperparams: Hyperparams
    before: Hyperparams | None
    exploits: int
    sources: tuple[int, ...]
    copied_at: int | None
    scale: GradientScale | None
    unscored: Unscored | None


@dataclass(frozen=True)
class WatchedPopulation:
    """What the files of a population say.

    :param changed: when a member last reported or copied, in seconds since 1970
    :param metric: what a score is
    :param mode: ``max`` or ``min``: which score is best
    :param interval: updates between two exploits
    :param next_exploits: updates after which members copy next
    :param members: the best first
    :param events: of the lineage, the oldest first
    :param figures: those of :meth:`rlcore.pbt.PBTScheduler.get_stats`
    """

    folder: Path
    changed: float
    metric: str
    mode: str
    interval: int
    next_exploits: int
    members: tuple[WatchedMember, ...]
    events: tuple[LineageEvent, ...]
    figures: Mapping[str, float]


class PopulationFiles:
    """Reads a population again and again; what cannot be read at the moment is as it was when it last could.

    :param folder: of the population
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._committed: tuple[SavedPopulation, PBTScheduler] | None = None
        self._changed = 0.0
        self._events: tuple[LineageEvent, ...] = ()
        self._scales: dict[int, tuple[Path, GradientScale]] = {}
        self._seen: tuple[int, int] | None = None

    def has_changed(self) -> bool:
        """Whether the state was committed again since the last :meth:`look`."""
        return self._signature() not in (None, self._seen)

    def look(self) -> WatchedPopulation:
        """The population now.

        :raises CheckpointError: at the first look, if there is no population or its state cannot be read
        :raises StateError: at the first look, if the state is damaged
        """
        state, scheduler = self._read_state()
        self._read_events(state.lineage_size)
        ranked = enumerate(scheduler.ranked(), start=1)
        interval = scheduler.config.perturbation_interval
        return WatchedPopulation(
            self.folder,
            self._changed,
            scheduler.config.metric_name,
            scheduler.config.metric_mode,
            interval,
            state.explored_step + interval,
            tuple(self._watched(rank, member, state) for rank, member in ranked),
            self._events,
            scheduler.get_stats(),
        )

    def _signature(self) -> tuple[int, int] | None:
        with suppress(OSError):
            found = (self.folder / files.STATE_FILE).stat()
            self._changed = found.st_mtime
            return found.st_mtime_ns, found.st_size
        return None

    def _read_state(self) -> tuple[SavedPopulation, PBTScheduler]:
        signature = self._signature()
        try:
            state = files.read_state(self.folder)
            if state is None:
                raise CheckpointError(
                    self.folder, f"holds no population: there is no {files.STATE_FILE}; give the folder of one"
                )
            self._committed = state, _scheduler_of(state, self.folder / CHECKPOINTS)
            self._seen = signature
        except RLCoreError:
            if self._committed is None:
                raise
        return self._committed

    def _read_events(self, size: int) -> None:
        """Those that are committed: a run that was killed may have left one more, which will be cut off."""
        with suppress(OSError, ValueError, TypeError):
            lines = (self.folder / files.LINEAGE_FILE).read_bytes()[:size].split(b"\n")[:-1]
            self._events = tuple(LineageEvent(**{"performance": None, **json.loads(line)}) for line in lines)

    def _watched(self, rank: int, member: PopulationMember, state: SavedPopulation) -> WatchedMember:
        own = [each for each in self._events if each.member == member.member_id and each.event != "start"]
        copies = [each.step for each in own if each.event == "exploit"]
        return WatchedMember(
            rank,
            member.member_id,
            member.performance,
            trend_of(member.history),
            member.step,
            member.hyperparams,
            own[-1].hyperparams_before if own else None,
            state.members[member.member_id].exploits,
            tuple(each.member for each in files.ancestors(self._events, member.member_id)),
            copies[-1] if copies else None,
            self._scale_of(member, state),
            unscored(member.history, copies),
        )

    def _scale_of(self, member: PopulationMember, state: SavedPopulation) -> GradientScale | None:
        if member.saved_steps:
            step = member.saved_steps[-1]
            path = _where(self.folder, member, state.scheduler["members"][member.member_id]["checkpoint_path"], step)
            if self._scales.get(member.member_id, (None,))[0] != path:
                with suppress(RLCoreError):  # it was pruned meanwhile: the next look finds a newer one
                    self._scales[member.member_id] = path, gradient_scale(load_checkpoint(path).data, step)
        return self._scales[member.member_id][1] if member.member_id in self._scales else None


def gradient_scale(parameters: Mapping[Any, Any], step: int) -> GradientScale:
    """The scaling in the parameters of a checkpoint.

    :param step: updates that the member had made
    :raises StateError: if the state of the scaling is damaged
    """
    state = parameters.get("vgs_state")
    if state is None:
        return GradientScale(step, None)
    scaler = VarianceGradientScaler([nn.Parameter(torch.empty(shape)) for shape in state["shapes"]])
    scaler.load_state_dict(state)
    if not scaler.settings.enabled:
        return GradientScale(step, None)
    return GradientScale(step, scaler.get_scaling_factor(), scaler.is_warming_up)


def trend_of(history: Sequence[Mapping[str, Any]]) -> float | None:
    """The last score minus the one before; None if there are no two or one is not finite."""
    if len(history) < 2:
        return None
    before, last = (float(each["performance"]) for each in history[-2:])
    return last - before if math.isfinite(last) and math.isfinite(before) else None


def unscored(history: Sequence[Mapping[str, Any]], copies: Sequence[int]) -> Unscored | None:
    """Since when a member's reports have no number; None if the last one has.

    :param copies: updates that it had made when it copied another, after its report of that step
    """
    without = [*takewhile(lambda each: math.isnan(each["performance"]), reversed(history))]
    if not without:
        return None
    since = int(without[-1]["step"])
    copied = max((step for step in copies if step < since), default=-1)
    return Unscored(since, any(copied < each["step"] < since for each in history))


def _scheduler_of(state: SavedPopulation, checkpoints: Path) -> PBTScheduler:
    given = {name: value for name, value in state.config.items() if name != "truncation_ratio"}
    if state.config.get("exploit_method") == "truncation":  # the other methods refuse a ratio
        given = dict(state.config)
    scheduler = PBTScheduler(PBTConfig.from_mapping({**given, "checkpoint_dir": checkpoints}))
    scheduler.load_state_dict(state.scheduler)
    return scheduler


def _where(folder: Path, member: PopulationMember, saved: str | None, step: int) -> Path:
    """A member's checkpoint: in the folder, which may have been moved, or where the population put it."""
    own = files.path_of(folder / CHECKPOINTS, member, step)
    return own if saved is None or own.exists() else Path(saved)
