"""The registry of training state: every piece has a name here, and every way of saving goes through it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import torch

from rlcore.checkpoint.refusal import unusable
from rlcore.errors import ResumeWarning, StateError
from rlcore.types import StateDict, StateValue
from rlcore.warn import warn_caller


class Scope(Enum):
    """Who takes a piece of state along."""

    LEARNER = "learner"
    """What updates change: taken by ``get_parameters()``, checkpoints, model files and pickles."""
    COLLECTED = "collected"
    """What collecting rollouts changes and belongs to what was learnt: taken like LEARNER."""
    PROGRESS = "progress"
    """How far training has come: model files and pickles."""
    RUN = "run"
    """Where the run stands (environments, generators): model files and pickles, restored when training goes on."""


LEARNT = (Scope.LEARNER, Scope.COLLECTED)
"""The scopes of what parameters consist of."""


def _no_obstacle(_: StateDict | None) -> str | None:
    return None


def _no_check(_: StateDict) -> None:
    pass


@dataclass(frozen=True)
class StatePart:
    """One named piece of training state.

    :param capture: gives the present state, or None where there is nothing to save
    :param restore: puts a state back; raises StateError and changes nothing if it does not fit. That of a RUN part is
        called when training goes on, not before
    :param reset: starts the piece fresh, for when a file does not have it
    :param required: whether a set of parameters without it is incomplete
    :param check: for a RUN part, raises StateError where the state could fit nothing, when it begins to wait
    :param obstacle: for a RUN part, why what was saved (None if nothing was) cannot be restored here, or None
    :param needs: for a RUN part, the key of an earlier one without which it makes no sense
    """

    key: str
    scope: Scope
    capture: Callable[[], StateDict | None]
    restore: Callable[[StateDict], None]
    reset: Callable[[], None] = lambda: None
    required: bool = False
    check: Callable[[StateDict], None] = _no_check
    obstacle: Callable[[StateDict | None], str | None] = _no_obstacle
    needs: str | None = None


def snapshot(value: StateValue) -> StateValue:
    """A copy that shares no tensor with its source, detached from any graph."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: snapshot(item) for key, item in value.items()}
    if isinstance(value, list):
        return [snapshot(item) for item in value]
    return value


class TrainingState:
    """Captures and restores the parts it is given, in their order.

    :param parts: every piece of state of one model
    :param waiting: restored RUN parts by key, until training goes on; captured in place of the present state
    """

    def __init__(self, parts: Sequence[StatePart], waiting: dict[str, StateDict]) -> None:
        self.parts = {part.key: part for part in parts}
        self.waiting = waiting

    def capture(self, *scopes: Scope) -> dict[str, StateDict | None]:
        """Snapshots of the parts of the scopes, by key; None for a part that has nothing to save."""
        return {key: self._capture(part) for key, part in self.parts.items() if part.scope in scopes}

    def _capture(self, part: StatePart) -> StateDict | None:
        state = self.waiting[part.key] if self._waits(part) else part.capture()
        return None if state is None else snapshot(state)  # type: ignore[return-value]

    def _waits(self, part: StatePart) -> bool:
        return part.scope is Scope.RUN and part.key in self.waiting

    def require_scopes(self, states: Mapping[str, StateDict | None], scopes: Collection[Scope]) -> None:
        """
        :raises StateError: if a part of another scope is given
        """
        for key, state in states.items():
            if state is not None and key in self.parts and self.parts[key].scope not in scopes:
                raise StateError(
                    f"{key} says where a run stands, and parameters say what was learnt; leave it out, or load the "
                    "model's file with DistributionalPPO.load(path) to go on with that run"
                )

    def resume(self) -> list[str]:
        """Restore what waited for training to go on; the reasons why some of it starts fresh.

        :raises StateError: if a state does not fit; what waits goes on waiting
        """
        reasons: list[str] = []
        left_out: set[str] = set()
        for part in (part for part in self.parts.values() if part.scope is Scope.RUN):
            state = self.waiting.get(part.key)
            reason = None if part.needs in left_out else part.obstacle(state)
            if reason is not None:
                reasons.append(reason)
            if reason is not None or part.needs in left_out:
                left_out.add(part.key)
            elif state is not None:
                with unusable(part.key):
                    part.restore(snapshot(state))  # type: ignore[arg-type]
        return reasons

    def restore(
        self,
        states: Mapping[str, StateDict | None],
        *,
        exact_match: bool = True,
        expected: Collection[Scope] = LEARNT,
    ) -> None:
        """Restore every given state, or none of them.

        With ``exact_match`` a required part must be given, and a part that is left out starts fresh, which one warning
        says; where a filter makes that warning an error, nothing is changed. Without it, what is left out stays as it
        is, and what finds no home is passed over.

        :param expected: the scopes whose parts count as left out where they are not given
        :raises StateError: for an unknown key, a required part left out, a state that does not fit
        """
        states = {key: state for key, state in states.items() if state is not None or key in self.parts}
        self._reject_unknown(states)
        if exact_match:
            missing = [part.key for part in self.parts.values() if part.required and states.get(part.key) is None]
            if missing:
                raise StateError(
                    f"{', '.join(missing)} missing from {sorted(states)}; give all of it, or exact_match=False to "
                    "restore what is there"
                )
        absent = [
            part
            for part in self.parts.values()
            if exact_match and part.scope in expected and states.get(part.key) is None
            if part.scope is not Scope.RUN or part.key not in states or part.capture() is not None
        ]
        changed = {key: self.parts[key] for key in (*states, *(part.key for part in absent))}
        before = {key: self._capture(part) for key, part in changed.items() if part.scope is not Scope.RUN}
        waited = dict(self.waiting)
        complete = False
        try:
            for key, state in states.items():
                if state is not None:
                    self._restore_part(self.parts[key], state, exact_match)
            self._start_fresh(absent)
            complete = True
        finally:
            if not complete:
                self._put_back(before)
                self.waiting.clear()
                self.waiting.update(waited)

    def _restore_part(self, part: StatePart, state: StateDict, exact_match: bool) -> None:
        if not isinstance(state, Mapping):
            raise StateError(f"{part.key} must be a dict of state, got {type(state).__name__}")
        with unusable(part.key):
            if part.scope is Scope.RUN:
                part.check(state)
                self.waiting[part.key] = snapshot(state)  # type: ignore[assignment]
            elif exact_match or part.scope not in LEARNT or part.capture() is not None:
                part.restore(snapshot(state))  # type: ignore[arg-type]

    def _put_back(self, states: Mapping[str, StateDict | None]) -> None:
        for key, state in states.items():
            if state is not None:
                self.parts[key].restore(state)

    def _start_fresh(self, parts: Iterable[StatePart]) -> None:
        fresh = [part for part in parts if part.scope is Scope.RUN or part.capture() is not None]
        for part in fresh:
            part.reset()
        if fresh:
            warn_caller(
                f"no state for {', '.join(part.key for part in fresh)}: it starts fresh, for what was measured under "
                "other weights or in another way would not fit these, so training does not go on exactly where it "
                "stopped",
                ResumeWarning,
            )

    def _reject_unknown(self, states: Iterable[str]) -> None:
        for key in states:
            if key not in self.parts:
                nearest = difflib.get_close_matches(str(key), list(self.parts), n=1)
                hint = f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(self.parts)}"
                raise StateError(f"no part of the training state is called {key!r}; {hint}")
