"""What :class:`rlcore.optim.scaler.VarianceGradientScaler` is built from: its settings and its parameters, checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Final, Literal, TypeAlias

from torch import nn

from rlcore.errors import SettingError
from rlcore.optim import estimators

Estimator: TypeAlias = Literal["mean", "spatial", "total", "element", "sketch"]
Normalization: TypeAlias = Literal["squared_mean", "second_moment"]
ScalableParameters: TypeAlias = "Iterable[nn.Parameter] | Iterable[tuple[str, nn.Parameter]]"

NORMALIZATIONS: Final = ("squared_mean", "second_moment")


@dataclass(frozen=True)
class ScalerSettings:
    """The settings of :class:`VarianceGradientScaler`, checked and as plain Python values.

    :raises SettingError: a value has the wrong type or lies outside its range
    """

    enabled: bool = True
    beta: float = 0.99
    alpha: float = 0.1
    eps: float = 1e-8
    warmup_steps: int = 100
    estimator: Estimator = "mean"
    normalization: Normalization = "squared_mean"
    min_scaling_factor: float = 0.1
    max_normalized_variance: float = 100.0

    def __post_init__(self) -> None:
        if not isinstance(self.enabled, bool):
            raise SettingError(
                "enabled",
                f"enabled={self.enabled!r} is neither True nor False, so it is unclear whether gradients are to be "
                "scaled; pass a bool.",
            )
        self._set_number("beta", "the decay of the averages, 0 <= beta < 1", lambda x: 0 <= x < 1)
        self._set_number("alpha", "the strength of the scaling, finite and >= 0", lambda x: x >= 0)
        self._set_number("eps", "what keeps the division finite, finite and > 0", lambda x: x > 0)
        self._set_number("min_scaling_factor", "the smallest factor, between 0 and 1", lambda x: 0 <= x <= 1)
        self._set_number("max_normalized_variance", "the cap per tensor, finite and > 0", lambda x: x > 0)
        self._set_steps("warmup_steps")
        self._check_choice("estimator", tuple(estimators.ESTIMATORS))
        self._check_choice("normalization", NORMALIZATIONS)

    def _set_number(self, name: str, meaning: str, allowed: Callable[[float], bool]) -> None:
        value = getattr(self, name)
        usable = isinstance(value, Real) and not isinstance(value, bool)
        if not usable or not math.isfinite(value) or not allowed(float(value)):
            raise SettingError(name, f"{name}={value!r} cannot be used: it is {meaning}; pass such a number.")
        object.__setattr__(self, name, float(value))

    def _set_steps(self, name: str) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 0:
            raise SettingError(name, f"{name}={value!r} is not a number of steps; pass an int >= 0.")
        object.__setattr__(self, name, int(value))

    def _check_choice(self, name: str, choices: Sequence[str]) -> None:
        value = getattr(self, name)
        if not isinstance(value, str) or value not in choices:
            raise SettingError(name, f"{name}={value!r} is unknown; choose one of {', '.join(map(repr, choices))}.")


def checked_parameters(parameters: ScalableParameters) -> tuple[tuple[str | None, ...], tuple[nn.Parameter, ...]]:
    """Return names (None where there is none) and parameters, or raise :class:`SettingError`."""
    if not isinstance(parameters, Iterable):
        raise SettingError("parameters", f"parameters is a {type(parameters).__name__}; pass module.parameters().")
    names: list[str | None] = []
    tensors: list[nn.Parameter] = []
    for position, item in enumerate(parameters):
        name, tensor = item if isinstance(item, tuple) and len(item) == 2 else (None, item)
        names.append(name)
        tensors.append(_checked_parameter(position, tensor))
    if not tensors:
        raise SettingError(
            "parameters", "parameters is empty, so there is nothing to scale; was a generator used up before?"
        )
    if len(set(map(id, tensors))) != len(tensors):
        raise SettingError(
            "parameters", "parameters holds a parameter more than once, so its gradient would be scaled twice."
        )
    return tuple(names), tuple(tensors)


def _checked_parameter(position: int, tensor: object) -> nn.Parameter:
    if not isinstance(tensor, nn.Parameter) or not tensor.is_floating_point():
        kind = str(tensor.dtype) if isinstance(tensor, nn.Parameter) else type(tensor).__name__
        raise SettingError(
            "parameters",
            f"parameters[{position}] is a {kind}, and only a real-valued nn.Parameter can be scaled; "
            "pass module.parameters().",
        )
    return tensor
