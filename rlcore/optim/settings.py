"""Settings of the UPGD optimizers and of the gradient scaler: their types and ranges."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from rlcore.errors import SettingError, refused_value

Estimator: TypeAlias = Literal["mean", "spatial", "total", "element"]
Normalization: TypeAlias = Literal["squared_mean", "second_moment"]

NORMALIZATIONS: Final = get_args(Normalization)
REMOVED_ESTIMATORS: Final = {
    "sketch": "'sketch' was removed. Use 'element', which measures the same over all elements. To load a model file, "
    "pass vgs_estimator='element': its statistics start fresh"
}

_FLOAT32: Final = torch.finfo(torch.float32)
_DECAY: Final = (0.0, math.nextafter(1.0, 0.0), "a number in [0, 1)")
_SIZE: Final = (0.0, _FLOAT32.max, "a finite number of at least 0")
_RANGES: Final = {
    **dict.fromkeys(("lr", "weight_decay", "sigma", "min_noise_std"), _SIZE),
    **dict.fromkeys(("beta_utility", "noise_beta", "betas"), _DECAY),
    "eps": (_FLOAT32.tiny, _FLOAT32.max, f"a finite number of at least {_FLOAT32.tiny:.2g}"),
    "seed": (0, 2**64 - 1, "a whole number in [0, 2**64)"),
    "adaptive_noise": (0, 1, "True or False"),
}


def checked(name: str, where: str, value: Any) -> Any:
    """Return a setting as a plain Python value.

    :raises SettingError: the value cannot be used; the error names ``where``
    """
    low, high, wanted = _RANGES[name]
    kind = {"seed": Integral, "adaptive_noise": bool}.get(name, Real)
    values = value if name == "betas" and isinstance(value, tuple | list) else [value]
    fits = [_is_of(x, kind) and low <= x <= high for x in values]
    if not all(fits) or len(fits) != 1 + (name == "betas"):
        raise SettingError(where, f"{where}={value!r}: the optimizer cannot make steps with it. Give {wanted}.")
    plain = {"seed": int, "adaptive_noise": bool}.get(name, float)
    return tuple(map(plain, values)) if name == "betas" else plain(value)


def _is_of(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and isinstance(value, bool) == (kind is bool)


def _plain(value: object) -> object:
    """Numbers of other kinds as Python's, so that a saved state holds none of them."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


Number = Annotated[float, BeforeValidator(_plain), Field(allow_inf_nan=False)]


class ScalerSettings(BaseModel):
    """Settings of :class:`rlcore.optim.scaler.VarianceGradientScaler`, which describes them.

    :raises SettingError: a value has the wrong type or lies outside its range
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    enabled: bool = True
    beta: Annotated[Number, Field(ge=0, lt=1)] = 0.99
    alpha: Annotated[Number, Field(ge=0)] = 0.1
    eps: Annotated[Number, Field(gt=0)] = 1e-8
    warmup_steps: Annotated[int, BeforeValidator(_plain), Field(ge=0)] = 100
    estimator: Estimator = "mean"
    normalization: Normalization = "squared_mean"
    min_scaling_factor: Annotated[Number, Field(ge=0, le=1)] = 0.1
    max_normalized_variance: Annotated[Number, Field(gt=0)] = 100.0

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise refused_value(error, type(self), values) from error
