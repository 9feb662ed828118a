"""What can be seen of a model's optimizer steps from outside: gradients before and after what is done to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from rlcore import DistributionalPPO


@dataclass(frozen=True)
class Step:
    """One optimizer step.

    :param raw: what backward left behind, by parameter; a parameter without gradient has none
    :param used: what the optimizer was given, by parameter
    :param promised: the factor that the scaler had for this step; 1 without one
    """

    raw: dict[str, Tensor]
    used: dict[str, Tensor]
    promised: float


@contextmanager
def watched(model: DistributionalPPO) -> Iterator[list[Step]]:
    """Watch the optimizer that the model has now; the list grows with every step."""
    steps: list[Step] = []
    raw: dict[str, Tensor] = {}
    named = dict(model.policy.named_parameters())
    names = {parameter: name for name, parameter in named.items()}

    def after_backward(parameter: Any) -> None:
        raw[names[parameter]] = gradient_of(parameter)

    def before_step(*_: Any) -> None:
        used = {name: gradient_of(parameter) for name, parameter in named.items() if parameter.grad is not None}
        scaler = model.variance_gradient_scaler
        steps.append(Step(dict(raw), used, 1.0 if scaler is None else scaler.get_scaling_factor()))
        raw.clear()

    hooks = [
        parameter.register_post_accumulate_grad_hook(after_backward)  # type: ignore[no-untyped-call]
        for parameter in named.values()
    ]
    hooks.append(model.policy.optimizer.register_step_pre_hook(before_step))
    try:
        yield steps
    finally:
        for hook in hooks:
            hook.remove()


def gradient_of(parameter: Tensor) -> Tensor:
    """A copy of the parameter's gradient."""
    assert parameter.grad is not None
    return parameter.grad.detach().clone()
