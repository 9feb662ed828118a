"""The registry of training state: every part has a name here, and every way of saving goes through it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import torch

from rlcore.checkpoint.container import unusable
from rlcore.errors import ResumeWarning, StateError, warn_caller
from rlcore.types import StateDict, StateValue


class Scope(Enum):
    """Who takes a part of the state along."""

    LEARNER = "learner"
    """What updates change: taken by ``get_parameters()``, checkpoints, model files and pickles."""
    COLLECTED = "collected"
    """What collecting rollouts changes and belongs to what was learnt: taken like LEARNER."""
    PROGRESS = "progress"
    """How far training has come: model files and pickles."""
    RUN = "run"
    """Where the run is (environments, generators): model files and pickles, restored when training goes on."""


LEARNT = (Scope.LEARNER, Scope.COLLECTED)
"""The scopes of what parameters consist of."""


def _nothing(*_: StateDict) -> None:
    pass


@dataclass(frozen=True)
class StatePart:
    """One named part of a training.

    :param capture: returns the present state, or None where there is nothing to save
    :param restore: restores a state; raises StateError and changes nothing if it does not fit. That of a RUN part is
        called when training goes on, not before
    :param reset: starts the part fresh, for a file that does not have it
    :param required: whether a set of parameters without it is incomplete
    :param check: raises StateError for a state of a RUN part that could never be restored
    """

    key: str
    scope: Scope
    capture: Callable[[], StateDict | None]
    restore: Callable[[StateDict], None]
    reset: Callable[[], None] = _nothing
    required: bool = False
    check: Callable[[StateDict], object] = _nothing


def snapshot(value: StateValue) -> StateValue:
    """Return a copy that shares no tensor with its source, detached from any graph."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: snapshot(item) for key, item in value.items()}
    if isinstance(value, list):
        return [snapshot(item) for item in value]
    return value


class TrainingState:
    """Captures and restores the parts of one model, in their order.

    :param pending: RUN parts by key that were given and not yet restored; captured in place of the present state
    """

    def __init__(self, parts: Sequence[StatePart], pending: dict[str, StateDict]) -> None:
        self.parts = {part.key: part for part in parts}
        self.pending = pending

    def capture(self, *scopes: Scope) -> dict[str, StateDict | None]:
        """Return snapshots of the parts of these scopes, by key; None for a part that has nothing to save."""
        found: dict[str, StateDict | None] = {}
        for key, part in self.parts.items():
            if part.scope in scopes:
                is_pending = part.scope is Scope.RUN and key in self.pending
                found[key] = snapshot(self.pending[key] if is_pending else part.capture())  # type: ignore[assignment]
        return found

    def resume(self) -> None:
        """Restore the pending parts.

        :raises StateError: a state does not fit; all stay pending
        """
        for part in self.parts.values():
            if part.scope is Scope.RUN and part.key in self.pending:
                with unusable(part.key):
                    part.restore(snapshot(self.pending[part.key]))  # type: ignore[arg-type]

    def restore(
        self,
        states: Mapping[str, StateDict | None],
        *,
        exact_match: bool = True,
        expected: Collection[Scope] = LEARNT,
    ) -> None:
        """Restore every given state, or none of them; those of RUN parts become pending.

        With ``exact_match`` a required part must be given, and a part that is left out starts fresh, with one warning.
        Without it, what is left out stays as it is, and a state that the model has no use for is passed over.

        :param expected: the scopes that may be given, and whose parts count as left out where they are not
        :raises StateError: for an unknown key, a required part left out, a state that does not fit
        :raises ResumeWarning: where a filter makes an error of the warning; nothing is changed
        """
        given = {key: state for key, state in states.items() if state is not None}
        known = {key for key, part in self.parts.items() if part.scope in expected}
        missing = [part.key for part in self.parts.values() if part.required and part.key not in given and exact_match]
        if missing or not known.issuperset(given):
            unknown = sorted(map(str, given.keys() - known))
            raise StateError(f"missing are {missing}, and unknown here {unknown}; known are {sorted(known)}")
        absent = [p for p in self.parts.values() if exact_match and p.scope in expected and p.key not in given]
        fresh = [p for p in absent if (p.key not in states if p.scope is Scope.RUN else p.capture() is not None)]
        before, pending = self.capture(*LEARNT, Scope.PROGRESS), dict(self.pending)
        try:
            for key, state in given.items():
                self._restore_part(self.parts[key], state, exact_match)
            self._start_fresh(fresh)
        except BaseException:
            self._put_back(before)
            self.pending.clear()
            self.pending.update(pending)
            raise

    def _restore_part(self, part: StatePart, state: StateDict, exact_match: bool) -> None:
        with unusable(part.key):
            if not isinstance(state, Mapping):
                raise StateError(f"{part.key} must be a dict of state, got {type(state).__name__}")
            if part.scope is Scope.RUN:
                part.check(state)
                self.pending[part.key] = snapshot(state)  # type: ignore[assignment]
            elif exact_match or part.scope not in LEARNT or part.capture() is not None:
                part.restore(snapshot(state))  # type: ignore[arg-type]

    def _put_back(self, states: Mapping[str, StateDict | None]) -> None:
        for key, state in states.items():
            if state is not None:
                self.parts[key].restore(state)

    def _start_fresh(self, parts: Iterable[StatePart]) -> None:
        keys = []
        for part in parts:
            part.reset()
            keys.append(part.key)
        if keys:
            warn_caller(
                f"no state for {', '.join(keys)}: it starts fresh, for what was measured under other weights or in "
                "another way would not fit these, so training does not go on exactly where it stopped",
                ResumeWarning,
            )
