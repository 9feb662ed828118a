"""Rules for transforms of gradients, such as clipping and scaling, and the function that runs them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Unpack

import torch

from rlverify.checks.adapters.adapter import NotSupportedError
from rlverify.checks.engine.check_records import CheckFinding, CheckRecord
from rlverify.checks.engine.faults import GenericFault, after, instead
from rlverify.checks.engine.kinds import CheckOptions, Kind
from rlverify.checks.engine.rule import failing, passing
from rlverify.checks.rules.optimizer_faults import pulled, pulled_with
from rlverify.checks.state.tree import walk
from rlverify.records.attempts import Crash, attempt

SHAPES: Final = ((4, 3), (5,), (2, 2))
STEPS: Final = 3
HUGE: Final = 1e25
Make = Callable[[list[Any]], Any]
Apply = Callable[[Any], object]
Gradient = Callable[[Any, int], Any]


@dataclass(frozen=True)
class TransformSubject:
    """A transform, and how to use it."""

    make: Make
    apply: Apply

    def start(self, dtype: torch.dtype = torch.float32) -> tuple[list[Any], Any]:
        """Parameters, always the same, and a new transform of them."""
        generator = torch.Generator().manual_seed(0)
        drawn = [torch.randn(shape, generator=generator).to(dtype) for shape in SHAPES]
        parameters = [torch.nn.Parameter(each) for each in drawn]
        return parameters, self.make(parameters)

    def steps(self, parameters: list[Any], transform: Any, count: int, gradient: Gradient = pulled) -> None:
        """Set gradients and transform them, some times."""
        for step in range(count):
            for parameter in parameters:
                parameter.grad = gradient(parameter, step)
            self.use(parameters, transform)

    def use(self, parameters: list[Any], transform: Any) -> None:  # noqa: ARG002  # faults change them
        """Transform the gradients of parameters."""
        self.apply(transform)

    def load(self, transform: Any, state: Any) -> None:
        """Give a transform a state dictionary."""
        transform.load_state_dict(state)


TRANSFORMS: Final = Kind[TransformSubject]("gradient transforms", "check_gradient_transform")


def check_gradient_transform(
    factory: Make, *, apply: Apply = lambda transform: transform(), **options: Unpack[CheckOptions]
) -> list[CheckRecord]:
    """Run the rules for transforms of gradients; nothing is raised for what the transform does.

    :param factory: makes a transform of a list of parameters
    :param apply: transforms the gradients of these parameters in place; by default the transform is called
    :param options: as `CheckOptions` says
    :raises UnknownRuleError: if there is no rule of a name
    """
    subject = TransformSubject(factory, apply)
    return TRANSFORMS.check(subject, factory, lambda: subject.steps(*subject.start(), 1), **options)


def _after(text: str, action: Callable[[Any], object]) -> GenericFault:
    """A fault that does something to every parameter after each use of the transform."""
    return after("use", text, lambda _subject, _none, parameters, _transform: [action(each) for each in parameters])


def _shift(parameter: Any) -> None:
    if parameter.grad is not None:
        parameter.grad.add_(1e-3)


def _fill(parameter: Any) -> None:
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)


def _widen(parameter: Any) -> None:
    parameter.data = parameter.data.double()
    parameter.grad = parameter.grad.double()


def _overflow(parameter: Any) -> None:
    if parameter.grad.abs().max() > 0:
        parameter.grad.mul_(1e39)


def _spread(subject: TransformSubject, parameters: list[Any], transform: Any) -> None:
    """Catch errors and make all gradients NaN."""
    attempt(lambda: subject.use(parameters, transform))
    for each in parameters:
        each.grad.fill_(math.nan)


@TRANSFORMS.rule("high", faults=[_after("move the parameters", lambda parameter: parameter.data.add_(1e-3))])
def transform_changes_gradients_only(subject: TransformSubject) -> CheckFinding:
    """A transform leaves the parameters as they are.

    A transform that moves parameters makes steps that no learning rate controls.
    """
    parameters, transform = subject.start()
    before = walk(parameters)
    subject.steps(parameters, transform, STEPS)
    moved = [path for path, leaf in walk(parameters).items() if before.get(path) != leaf]
    return failing(f"{len(moved)} parameters moved", where=f"parameters{moved[0]}") if moved else passing()


@TRANSFORMS.rule("medium", faults=[_after("add a constant to the gradients", _shift)])
def zero_gradients_stay_zero(subject: TransformSubject) -> CheckFinding:
    """Gradients of zero stay zero.

    Division by a norm of zero gives NaN, which one more step spreads to all parameters.
    """
    parameters, transform = subject.start()
    subject.steps(parameters, transform, 1, lambda parameter, _step: torch.zeros_like(parameter))
    for number, parameter in enumerate(parameters):
        if not torch.equal(parameter.grad, torch.zeros_like(parameter)):
            return failing(
                f"the gradient is {parameter.grad.flatten()[0]:g}, expected 0", where=f"parameters[{number}]"
            )
    return passing()


@TRANSFORMS.rule("medium", faults=[_after("fill missing gradients", _fill)])
def missing_gradients_stay_missing(subject: TransformSubject) -> CheckFinding:
    """A missing gradient stays missing.

    An optimizer skips a parameter without a gradient; one with a gradient of zero it moves by momentum and decay.
    """
    parameters, transform = subject.start()
    last = parameters[-1]
    given: Gradient = lambda each, step: None if each is last else pulled(each, step)  # noqa: E731
    ended = attempt(lambda: subject.steps(parameters, transform, STEPS, given))
    if isinstance(ended, Crash):
        return failing(f"the transform raises {ended.line}")
    if last.grad is None:
        return passing()
    return failing("the missing gradient became a tensor", where=f"parameters[{len(parameters) - 1}]")


@TRANSFORMS.rule("medium", faults=[_after("use doubles", _widen)])
def gradients_keep_their_form(subject: TransformSubject) -> CheckFinding:
    """Gradients keep their shapes and types, in half precision too.

    A gradient of float32 or bfloat16 has its shape and its type afterwards, and is finite. Otherwise the optimizer
    computes in another precision than the model, or fails at the first step on a GPU.
    """
    for dtype in (torch.float32, torch.bfloat16):
        parameters, transform = subject.start(dtype)
        subject.steps(parameters, transform, 1)
        for number, (parameter, shape) in enumerate(zip(parameters, SHAPES, strict=True)):
            found = parameter.grad
            if found.dtype != dtype or tuple(found.shape) != shape or not torch.isfinite(found).all():
                text = f"the gradient is {found.dtype}{list(found.shape)}, expected a finite {dtype}{list(shape)}"
                return failing(text, where=f"parameters[{number}]")
    return passing()


@TRANSFORMS.rule("low", faults=[_after("scale the gradients by 1e39", _overflow)])
def huge_gradients_stay_finite(subject: TransformSubject) -> CheckFinding:
    """Gradients of 1e+25 stay finite.

    Norms and second moments square gradients before they divide by them.
    """
    parameters, transform = subject.start()
    subject.steps(parameters, transform, 1, lambda each, step: pulled(each, step).sign() * HUGE)
    return _finite_after(subject, parameters, transform)


def _finite_after(subject: TransformSubject, parameters: list[Any], transform: Any) -> CheckFinding:
    """Passing if the gradients are finite, and those of later steps too."""
    for moment in ("", " in the steps after it"):
        broken = [number for number, each in enumerate(parameters) if not torch.isfinite(each.grad).all()]
        if broken:
            return failing(f"{len(broken)} gradients are not finite{moment}", where=f"parameters[{broken[0]}]")
        subject.steps(parameters, transform, STEPS)
    return passing()


@TRANSFORMS.rule("low", faults=[instead("use", "make all gradients NaN", _spread)])
def nan_gradients_do_not_spread(subject: TransformSubject) -> CheckFinding:
    """A gradient of NaN is reported, or breaks its own parameter only.

    A global norm of NaN makes every gradient NaN, and one bad head destroys the whole model.
    """
    parameters, transform = subject.start()
    spoilt: Gradient = lambda each, step: (pulled_with(math.nan) if each is parameters[0] else pulled)(each, step)  # noqa: E731
    ended = attempt(lambda: subject.steps(parameters, transform, 1, spoilt))
    if isinstance(ended, Crash):
        return passing(seen=f"reported: {ended.line}")
    parameters[0].grad = torch.zeros_like(parameters[0])
    return _finite_after(subject, parameters, transform)


@TRANSFORMS.rule("high", faults=[instead("load", "forget the state in load_state_dict()", lambda *_: None)])
def transform_state_continues(subject: TransformSubject) -> CheckFinding:
    """A saved and loaded state continues exactly.

    Running averages that are not saved start from zero after every restart.
    """
    parameters, transform = subject.start()
    if not hasattr(transform, "state_dict"):
        raise NotSupportedError(f"{type(transform).__name__} has no state_dict()")
    subject.steps(parameters, transform, STEPS, lambda each, step: 3 * pulled(each, step))
    others, resumed = subject.start()
    subject.load(resumed, transform.state_dict())
    for own, parameter in zip(others, parameters, strict=True):
        own.data.copy_(parameter.data)
    for each in ((parameters, transform), (others, resumed)):
        subject.steps(*each, STEPS)
    for number, (one, other) in enumerate(zip(parameters, others, strict=True)):
        if not torch.equal(one.grad, other.grad):
            largest = float((one.grad - other.grad).abs().max())
            return failing(f"the gradients differ by up to {largest:.3g}", where=f"parameters[{number}]")
    return passing()
