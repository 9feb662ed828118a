"""Whether the gradients of a step are finite: known before it, or later where asking would wait for a CUDA device."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch import Tensor

from rlcore.errors import NonFiniteGradientError
from rlcore.functional import utility as functional
from rlcore.optim.upgd_updates import Group, Position, State, Update, label_of

# No gradient below this is limited by the state's dtype, so that it can be read where it is.
LARGEST_UNBOUNDED: Final = torch.finfo(torch.float32).max / 4

# Steps that may be under way at the start of another. More would keep more to undo; the device has work enough.
MOST_UNANSWERED: Final = 64


def is_deferred(updates: Sequence[Update]) -> bool:
    """Whether all gradients lie on one CUDA device; those on several devices have to meet, which waits anyway.

    :param updates: at least one
    """
    device = updates[0].gradient.device
    return device.type == "cuda" and all(update.gradient.device == device for update in updates)


def largest_gradient(updates: Sequence[Update]) -> float:
    """Largest magnitude of an element; waits for the device.

    :raises NonFiniteGradientError: if it is none
    """
    extremes = [extreme for update in updates for extreme in torch.aminmax(update.gradient)]
    largest = float(functional.gather(extremes).abs().amax())
    if not math.isfinite(largest):
        label = next(part.label for update in updates for part in update.members if not _is_finite(part.gradient))
        raise NonFiniteGradientError(
            label,
            f"the gradient of {label} holds NaN or infinity: through the global maximum of the utility it would "
            "reach every parameter. Nothing was changed; look at the loss and the inputs of this batch.",
        )
    return largest


def _is_finite(values: Tensor) -> bool:
    return bool(values.isfinite().all())


class Mark(Protocol):
    """A place in the work of a device."""

    def query(self) -> bool:
        """Whether the device has passed it."""
        ...

    def synchronize(self) -> None:
        """Wait until it has."""
        ...


def mark(device: torch.device) -> Mark:
    """Behind all work that the current stream of a CUDA device was given so far."""
    event: Mark = torch.cuda.current_stream(device).record_event()
    return event


@dataclass(frozen=True, slots=True)
class _Step:
    """A step that may have been left out.

    :param places: group and position of every parameter with a gradient
    :param before: each of these parameters -> what its state held before the step, None where it had none
    :param admitted: whether the device takes it, 0-dimensional; false from the first step on that is not finite
    :param finite: for each of them, whether its gradient is finite; on the host, to be read after ``arrival``
    """

    places: Sequence[tuple[Group, Position]]
    before: dict[Tensor, State | None]
    admitted: Tensor
    finite: Tensor
    arrival: Mark

    def refused(self) -> str | None:
        """The label of the first parameter whose gradient is not finite, if any; to be asked after ``arrival``."""
        flags = self.finite.tolist()
        return label_of(*self.places[flags.index(False)]) if False in flags else None

    def undo(self, states: MutableMapping[Tensor, State]) -> None:
        """Restore what the host wrote: the counters, and which averages there are."""
        for parameter, entries in self.before.items():
            if entries is None:
                states.pop(parameter, None)
            else:
                states[parameter] = entries


class DeferredCheck:
    """The check of steps that are taken before it is known whether their gradients are finite.

    From the first gradient that is not finite on, the device leaves out every step; the host learns of it later and
    undoes what it counted. So state and parameters are then as they were before that step.

    :param states: what an optimizer keeps for every parameter
    """

    def __init__(self, states: MutableMapping[Tensor, State]) -> None:
        self._states = states
        self._steps: deque[_Step] = deque()

    def admit(self, updates: Sequence[Update]) -> Tensor:
        """Note a step that is about to be taken, without waiting.

        :param updates: at least one, their gradients on one device and as found
        :return: whether it may change anything; 0-dimensional, on that device
        :raises NonFiniteGradientError: as :meth:`read`, where earlier steps were taken on another device
        """
        device = updates[0].gradient.device
        if self._steps and self._steps[-1].admitted.device != device:
            self.read(0)
        finite = torch.stack(torch._foreach_norm([update.gradient for update in updates], math.inf)).isfinite()
        admitted = finite.all()
        if self._steps:
            admitted &= self._steps[-1].admitted
        # The host's side of a copy that does not block is pinned by torch itself.
        flags = finite.to("cpu", non_blocking=True)
        places = [(update.group, update.position) for update in updates]
        before = {update.parameter: self._entries(update.parameter) for update in updates}
        self._steps.append(_Step(places, before, admitted, flags, mark(device)))
        return admitted

    def _entries(self, parameter: Tensor) -> State | None:
        return dict(self._states[parameter]) if parameter in self._states else None

    def read(self, unanswered: int = MOST_UNANSWERED) -> None:
        """Read which steps were taken, as far as the device has come.

        :param unanswered: how many steps may remain open, at least 0; only for more than that the device is waited for
        :raises NonFiniteGradientError: a step was left out; it and all later ones are undone, the next may be taken
        """
        while self._steps:
            first = self._steps[0]
            if len(self._steps) > unanswered:
                first.arrival.synchronize()
            elif not first.arrival.query():
                return
            if (label := first.refused()) is not None:
                self._refuse(label)
            self._steps.popleft()

    def _refuse(self, label: str) -> None:
        """:raises NonFiniteGradientError: after undoing all steps that are noted"""
        skipped = len(self._steps)
        while self._steps:
            self._steps.pop().undo(self._states)
        raise NonFiniteGradientError(
            label,
            f"the gradient of {label} held NaN or infinity in an earlier step, which only now is known because steps "
            f"do not wait for the device. Steps skipped, that one and all after it: {skipped}. Nothing was changed "
            "since before it; look at the loss and the inputs of that batch.",
        )
