"""An optimizer of torch on a small problem, in a form that faults can wrap, and its generic faults."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import torch

from rlverify.checks.adapters.adapter import NotSupportedError
from rlverify.checks.engine.faults import GenericFault, after, before, instead
from rlverify.checks.state.tree import digests
from rlverify.records.attempts import Crash, attempt

SHAPES: Final = ((4, 3), (5,))
"""A matrix and a vector; only matrices for optimizers that refuse vectors."""
MATRICES: Final = ((4, 3), (2, 5))

Factory = Callable[[list[Any]], torch.optim.Optimizer]
Gradient = Callable[[torch.Tensor, int], torch.Tensor | None]


def pulled(parameter: torch.Tensor, step: int) -> torch.Tensor:
    """The gradient of the problem: towards a point, with a part that changes from step to step."""
    noise = torch.linspace(-1, 1, parameter.numel(), dtype=parameter.dtype).reshape(parameter.shape)
    return (parameter.detach() - 0.5) + noise * ((step * 7) % 5 - 2) / 4


def pulled_with(value: float, part: slice = slice(1)) -> Gradient:
    """The same gradient, a part of which has a value; by default its first element."""

    def gradient(parameter: torch.Tensor, step: int) -> torch.Tensor:
        found = pulled(parameter, step)
        found.view(-1)[part] = value
        return found

    return gradient


@dataclass
class OptimizerRun:
    """Parameters and their optimizer, in the middle of a problem."""

    parameters: list[torch.nn.Parameter]
    optimizer: torch.optim.Optimizer
    count: int = 0

    @property
    def values(self) -> list[torch.Tensor]:
        """The parameters as plain tensors."""
        return [each.detach() for each in self.parameters]

    def digests(self) -> dict[str, str]:
        """Digests of parameters, and of the optimizer's state."""
        found = {f"parameters{path}": digest for path, digest in digests(self.parameters).items()}
        state = digests(self.optimizer).items()
        return found | {path: digest for path, digest in state if path.startswith(("state[", "param_groups["))}


class OptimizerSubject:
    """What the rules do with an optimizer."""

    def __init__(self, factory: Factory) -> None:
        self.factory = factory

    @cached_property
    def shapes(self) -> Sequence[tuple[int, ...]]:
        """Those of the parameters, as the optimizer takes them."""
        refused = attempt(lambda: self._start(SHAPES, torch.float32))
        return MATRICES if isinstance(refused, Crash) else SHAPES

    @cached_property
    def sparse(self) -> bool:
        """Whether the optimizer takes sparse gradients only."""
        running = self.start()
        for parameter in running.parameters:
            parameter.grad = torch.zeros_like(parameter)
        refused = attempt(lambda: running.optimizer.step(lambda: 0.0))
        return isinstance(refused, Crash) and "sparse" in refused.line.lower()

    def start(self, dtype: torch.dtype = torch.float32) -> OptimizerRun:
        """New parameters, always the same, and a new optimizer of them."""
        return self._start(self.shapes, dtype)

    def _start(self, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> OptimizerRun:
        parameters = []
        for number, shape in enumerate(shapes):
            drawn = torch.randn(shape, generator=torch.Generator().manual_seed(number))
            parameters.append(torch.nn.Parameter(drawn.to(dtype)))
        return OptimizerRun(parameters, training(self.factory(parameters)))

    def started(self, count: int) -> OptimizerRun:
        """New parameters and a new optimizer, after some steps."""
        running = self.start()
        self.steps(running, count)
        return running

    def steps(self, running: OptimizerRun, count: int, gradient: Gradient = pulled) -> None:
        """Make steps with gradients of a function of parameter and step."""
        for _ in range(count):
            self.step(running, gradient)
            running.count += 1

    def step(self, running: OptimizerRun, gradient: Gradient) -> None:
        """Make one step; with sparse gradients where the optimizer takes no dense ones."""

        def closure() -> torch.Tensor:
            total = torch.zeros(())
            for parameter in running.parameters:
                given = gradient(parameter, running.count)
                parameter.grad = given.to_sparse() if given is not None and self.sparse else given
                total = total + (0 if given is None else (given.detach().float() ** 2).sum())
            return total

        closure()
        running.optimizer.step(closure)  # type: ignore[arg-type]

    def saved(self, running: OptimizerRun) -> bytes:
        """The state dictionary as `torch.save` writes it."""
        file = io.BytesIO()
        torch.save(running.optimizer.state_dict(), file)
        return file.getvalue()

    def load(self, running: OptimizerRun, state: dict[str, Any]) -> None:
        """Give an optimizer a state dictionary."""
        running.optimizer.load_state_dict(state)
        training(running.optimizer)

    def evaluated(self, running: OptimizerRun) -> None:
        """Switch to evaluation and back, as an evaluation in the middle of training does."""
        evaluate = getattr(running.optimizer, "eval", None)
        if not callable(evaluate) or not callable(getattr(running.optimizer, "train", None)):
            raise NotSupportedError("the optimizer has no train() and eval()")
        evaluate()
        training(running.optimizer)

    def copied(self, running: OptimizerRun) -> OptimizerRun:
        """A deep copy of parameters and optimizer."""
        return copy.deepcopy(running)


def training(optimizer: Any) -> Any:
    """The optimizer, in the mode in which it can step."""
    if callable(getattr(optimizer, "train", None)):
        optimizer.train()
    return optimizer


def state_of(state: dict[str, Any]) -> Any:
    """What a state dictionary of any shape holds besides options."""
    return (
        state["state"] if "state" in state else {name: each for name, each in state.items() if name != "param_groups"}
    )


def set_options(running: OptimizerRun, **options: Any) -> None:
    """Set options in all groups of an optimizer."""
    for group in running.optimizer.param_groups:
        for name, value in options.items():
            if name not in group:
                raise NotSupportedError(f"{type(running.optimizer).__name__} has no option {name}")
            group[name] = value


def broken_leaves(running: OptimizerRun) -> list[str]:
    """Parameters and leaves of the state that hold NaN or infinity."""
    tensors: dict[str, torch.Tensor] = {f"parameters[{number}]": each for number, each in enumerate(running.parameters)}
    for number, parameter in enumerate(running.parameters):
        for key, value in running.optimizer.state.get(parameter, {}).items():
            if isinstance(value, torch.Tensor):
                tensors[f"state[{number}][{key!r}]"] = value
    return [name for name, each in tensors.items() if each.is_floating_point() and not torch.isfinite(each).all()]


SIZE: Final = 1e-3


def _load_options(_subject: Any, running: OptimizerRun, state: dict[str, Any]) -> None:
    """Load the options and no state; options too, where there is no state; nothing of another shape."""
    if "state" in state:
        running.optimizer.load_state_dict({**state, "state": {}})
        training(running.optimizer)
    if not state_of(state):
        running.optimizer.param_groups[0]["lr"] *= 0.5


def _forget_state(_subject: Any, copied: OptimizerRun, _running: OptimizerRun) -> None:
    if not copied.optimizer.state:
        copied.optimizer.param_groups[0]["lr"] *= 0.5
    copied.optimizer.state.clear()


def _share(_subject: Any, _none: None, running: OptimizerRun, state: dict[str, Any]) -> None:
    for number, parameter in enumerate(running.parameters):
        running.optimizer.state[parameter].update(state.get("state", {}).get(number, {}))


def _stay_in_evaluation(_subject: Any, _none: None, running: OptimizerRun) -> None:
    """An evaluation leaves the parameters where evaluation had them: a little elsewhere."""
    for parameter in running.parameters:
        parameter.data.add_(SIZE)


def _set_own_rate(_subject: Any, running: OptimizerRun, _gradient: Gradient) -> None:
    for group in running.optimizer.param_groups:
        group["lr"] = SIZE


def _swallow_nan(subject: OptimizerSubject, running: OptimizerRun, gradient: Gradient) -> None:
    """Write gradients that are not finite into the parameters."""
    given = [gradient(each, running.count) for each in running.parameters]
    with suppress(RuntimeError, ValueError, ArithmeticError):
        subject.step(running, gradient)
    for parameter, each in zip(running.parameters, given, strict=True):
        if each is not None and not torch.isfinite(each).all():
            parameter.data.add_(each)


def _after_steps(text: str, change: Callable[[OptimizerRun, Any, Any], object]) -> GenericFault:
    """A fault that changes every parameter after each step, given the run, the parameter and its gradient or zeros."""

    def changed(_subject: Any, _none: None, running: OptimizerRun, gradient: Gradient) -> None:
        for parameter in running.parameters:
            given = gradient(parameter, running.count)
            change(running, parameter.data, torch.zeros_like(parameter) if given is None else given)

    return after("step", text, changed)


FORGETS_STATE: Final = instead("load", "forget the state in load_state_dict()", _load_options)
FORGETS_STATE_IN_COPIES: Final = after("copied", "forget the state in a copy", _forget_state)
SHARES: Final = after("load", "keep the tensors of the dictionary in load_state_dict()", _share)
MOVES: Final = _after_steps("move every parameter at every step", lambda _running, data, _given: data.add_(SIZE))
STAYS_IN_EVALUATION: Final = after(
    "evaluated", "leave the parameters of evaluation when training goes on", _stay_in_evaluation
)
OWN_RATE: Final = before("step", "step with another learning rate", _set_own_rate)
SWALLOWS_NAN: Final = instead("step", "add gradients that are not finite to the parameters", _swallow_nan)
OVERFLOWS: Final = _after_steps("add the cube of the gradient", lambda _running, data, given: data.add_(given**3))
DIVIDES_BY_GRADIENT: Final = _after_steps(
    "divide by the gradient", lambda _running, data, given: data.add_(given * 0 / (given.abs() + 1e-45))
)
OTHER_KERNEL: Final = _after_steps(
    "scale the parameters in the implementation for many tensors",
    lambda running, data, _given: data.mul_(1 + SIZE * bool(running.optimizer.param_groups[0].get("foreach"))),
)
