"""An optimizer with momentum, and subclasses with one defect each."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer


class Momentum(Optimizer):
    """Gradient descent with momentum; sound."""

    SETTINGS: dict[str, Any] = {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.0, "foreach": False}  # noqa: RUF012

    def __init__(self, parameters: list[Any]) -> None:
        super().__init__(parameters, dict(self.SETTINGS))

    def load_state_dict(self, state_dict: Any) -> None:
        super().load_state_dict(copy.deepcopy(state_dict))

    def train(self) -> None:
        """Train."""

    def eval(self) -> None:
        """Evaluate."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]  # noqa: ARG002
        gradients = [each.grad for group in self.param_groups for each in group["params"] if each.grad is not None]
        self.check(gradients)
        for group in self.param_groups:
            for parameter in group["params"]:
                if self.uses(parameter):
                    self.update(group, parameter)

    def check(self, gradients: list[Any]) -> None:
        if not all(torch.isfinite(each).all() for each in gradients):
            raise ValueError("a gradient is not finite")

    def uses(self, parameter: Any) -> bool:
        return parameter.grad is not None

    def update(self, group: dict[str, Any], parameter: Any) -> None:
        state = self.state[parameter]
        average = state.setdefault("average", torch.zeros_like(parameter))
        average.mul_(group["momentum"]).add_(self.direction(parameter))
        parameter.sub_(group["lr"] * (average + group["weight_decay"] * parameter))

    def direction(self, parameter: Any) -> Any:
        return parameter.grad


class HidesState(Momentum):
    """Keeps a counter that is not in the state dictionary."""

    def __init__(self, parameters: list[Any]) -> None:
        super().__init__(parameters)
        self.made: dict[str, float] = {"steps": 0.0}

    def __deepcopy__(self, memo: dict[int, Any]) -> HidesState:
        found = type(self)(copy.deepcopy(self.param_groups[0]["params"], memo))
        found.state.update(copy.deepcopy(self.state, memo))
        found.made = dict(self.made)
        return found

    def direction(self, parameter: Any) -> Any:
        self.made["steps"] += 1
        return parameter.grad / self.made["steps"]


class CopyStartsAgain(Momentum):
    def __deepcopy__(self, memo: dict[int, Any]) -> CopyStartsAgain:
        return CopyStartsAgain(copy.deepcopy(self.param_groups[0]["params"], memo))


class SharesState(Momentum):
    def load_state_dict(self, state_dict: Any) -> None:
        Optimizer.load_state_dict(self, state_dict)


class Drifts(Momentum):
    """Moves by a multiple of the learning rate where there is no gradient to follow."""

    def direction(self, parameter: Any) -> Any:
        return parameter.grad + 1e-3


class SmallestStep(Momentum):
    def update(self, group: dict[str, Any], parameter: Any) -> None:
        super().update({**group, "lr": max(group["lr"], 1e-5)}, parameter)


class NeedsGradients(Momentum):
    def uses(self, parameter: Any) -> bool:
        return parameter.grad.numel() > 0  # type: ignore[no-any-return]


class TrustsGradients(Momentum):
    def check(self, gradients: list[Any]) -> None:
        """Accept everything."""


class Squares(Momentum):
    def direction(self, parameter: Any) -> Any:
        return parameter.grad / (1 + (parameter.grad**2).sum() / (1 + (parameter.grad**2).sum()))


class Divides(Momentum):
    def direction(self, parameter: Any) -> Any:
        return parameter.grad / torch.sqrt(parameter.grad.abs() + torch.full((), 1e-12, dtype=parameter.dtype))


class TwoFormulas(Momentum):
    def update(self, group: dict[str, Any], parameter: Any) -> None:
        super().update({**group, "lr": group["lr"] * (0.99 if group["foreach"] else 1)}, parameter)


class StaysEvaluated(Momentum):
    def eval(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.mul_(0.9)


class OtherShape(Momentum):
    """A state dictionary that is no pair of state and groups."""

    def state_dict(self) -> Any:
        return {"inner": copy.deepcopy(super().state_dict())}

    def load_state_dict(self, state_dict: Any) -> None:
        super().load_state_dict(state_dict["inner"])
