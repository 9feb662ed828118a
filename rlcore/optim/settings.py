"""Settings of the gradient scaler: their types and ranges."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from rlcore.errors import refused_value

Estimator: TypeAlias = Literal["mean", "spatial", "total", "element"]
Normalization: TypeAlias = Literal["squared_mean", "second_moment"]

NORMALIZATIONS: Final = get_args(Normalization)
REMOVED_ESTIMATORS: Final = {
    "sketch": "'sketch' was removed. Use 'element', which measures the same over all elements. To load a model file, "
    "pass vgs_estimator='element': its statistics start fresh"
}


def _plain(value: object) -> object:
    """Numbers of other kinds as Python's, so that a saved state holds none of them."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


Number = Annotated[float, BeforeValidator(_plain), Field(allow_inf_nan=False)]


class ScalerSettings(BaseModel):
    """Settings of :class:`VarianceGradientScaler`, which describes them.

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
