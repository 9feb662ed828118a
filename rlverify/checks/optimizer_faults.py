"""Generic faults of optimizers: each does one thing wrong with any optimizer."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import torch

from rlverify.checks.generic_faults import GenericFault
from rlverify.checks.optimizer_subject import Gradient, OptimizerRun, OptimizerSubject

SIZE: Final = 1e-3


class _ForgetsState(OptimizerSubject):
    def load(self, running: OptimizerRun, state: dict[str, Any]) -> None:
        """Load the options and no state; options too, where there is no state."""
        running.optimizer.load_state_dict({**state, "state": {}})
        if not state["state"]:
            running.optimizer.param_groups[0]["lr"] *= 0.5


class _ForgetsStateInCopies(OptimizerSubject):
    def copied(self, running: OptimizerRun) -> OptimizerRun:
        found = super().copied(running)
        if not found.optimizer.state:
            found.optimizer.param_groups[0]["lr"] *= 0.5
        found.optimizer.state.clear()
        return found


class _Shares(OptimizerSubject):
    def load(self, running: OptimizerRun, state: dict[str, Any]) -> None:
        super().load(running, state)
        for number, parameter in enumerate(running.parameters):
            running.optimizer.state[parameter].update(state["state"].get(number, {}))


class _Moves(OptimizerSubject):
    """Every step moves every parameter by a constant, whatever the gradient."""

    def step(self, running: OptimizerRun, gradient: Gradient) -> None:
        super().step(running, gradient)
        for parameter in running.parameters:
            parameter.data.add_(SIZE)


class _OwnRate(OptimizerSubject):
    """Steps with a learning rate of its own."""

    def step(self, running: OptimizerRun, gradient: Gradient) -> None:
        for group in running.optimizer.param_groups:
            group["lr"] = SIZE
        super().step(running, gradient)


class _SwallowsNan(OptimizerSubject):
    """Writes gradients that are not finite into the parameters."""

    def step(self, running: OptimizerRun, gradient: Gradient) -> None:
        given = [gradient(each, running.count) for each in running.parameters]
        with suppress(RuntimeError, ValueError, ArithmeticError):
            super().step(running, gradient)
        for parameter, each in zip(running.parameters, given, strict=True):
            if each is not None and not torch.isfinite(each).all():
                parameter.data.add_(each)


class _Overflows(OptimizerSubject):
    """Adds the cube of the gradient."""

    def step(self, running: OptimizerRun, gradient: Gradient) -> None:
        super().step(running, gradient)
        for parameter in running.parameters:
            given = gradient(parameter, running.count)
            if given is not None:
                parameter.data.add_(given**3)


class _DividesByGradient(OptimizerSubject):
    """Adds nothing, divided by the size of the gradient plus a number that half precision rounds to zero."""

    def step(self, running: OptimizerRun, gradient: Gradient) -> None:
        super().step(running, gradient)
        for parameter in running.parameters:
            given = gradient(parameter, running.count)
            if given is not None:
                parameter.data.add_(given * 0 / (given.abs() + 1e-45))


class _OtherKernel(OptimizerSubject):
    """The implementation for many tensors at once moves parameters further."""

    def step(self, running: OptimizerRun, gradient: Gradient) -> None:
        super().step(running, gradient)
        if running.optimizer.param_groups[0].get("foreach"):
            for parameter in running.parameters:
                parameter.data.mul_(1 + SIZE)


def _planted(text: str, kind: type[OptimizerSubject]) -> GenericFault:
    return GenericFault(text, lambda subject: kind(subject.factory))


FORGETS_STATE: Final = _planted("forget the state in load_state_dict()", _ForgetsState)
FORGETS_STATE_IN_COPIES: Final = _planted("forget the state in a copy", _ForgetsStateInCopies)
SHARES: Final = _planted("keep the tensors of the dictionary in load_state_dict()", _Shares)
MOVES: Final = _planted("move every parameter at every step", _Moves)
OWN_RATE: Final = _planted("step with another learning rate", _OwnRate)
SWALLOWS_NAN: Final = _planted("add gradients that are not finite to the parameters", _SwallowsNan)
OVERFLOWS: Final = _planted("add the cube of the gradient", _Overflows)
DIVIDES_BY_GRADIENT: Final = _planted("divide by the gradient", _DividesByGradient)
OTHER_KERNEL: Final = _planted("scale the parameters in the implementation for many tensors", _OtherKernel)
