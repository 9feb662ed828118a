"""Settings of the UPGD optimizers and of the gradient scaler: what is accepted, and what is said of the rest."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from torch import Tensor, nn

from rlcore.errors import SettingError

Estimator: TypeAlias = Literal["mean", "spatial", "total", "element"]
Normalization: TypeAlias = Literal["squared_mean", "second_moment"]
ScalableParameters: TypeAlias = "Iterable[nn.Parameter] | Iterable[tuple[str, nn.Parameter]]"

NORMALIZATIONS: Final = get_args(Normalization)
REMOVED_ESTIMATORS: Final = {
    "sketch": "'sketch' was removed. Use 'element', which measures the same over all elements. To load a model file, "
    "pass vgs_estimator='element': its statistics start fresh"
}

_FLOAT32: Final = torch.finfo(torch.float32)
_AVERAGE: Final = "the average it decays would grow without bound, stand still or be undefined. Give a number in [0, 1)"
_NOISE: Final = "the noise would have no standard deviation. Give a finite number of at least 0"


def _plain(value: object) -> object:
    """Numbers of other kinds as Python's, so that a saved state holds none of them; a list as a tuple."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return tuple(value) if isinstance(value, list) else value
    return int(value) if isinstance(value, Integral) else float(value)


Number = Annotated[float, BeforeValidator(_plain), Field(allow_inf_nan=False)]
Whole = Annotated[int, BeforeValidator(_plain)]
Finite32 = Annotated[Number, Field(ge=0, le=_FLOAT32.max)]
Decay = Annotated[Number, Field(ge=0, lt=1)]


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class UPGDSettings(_Settings):
    """Settings of UPGD. A description says what an unusable value does, and what to give instead."""

    lr: Finite32 = Field(
        1e-5, description="the step would climb the loss or destroy the parameters. Give a finite number of at least 0"
    )
    weight_decay: Finite32 = Field(
        1e-3, description="the weights would grow without bound or be undefined. Give a finite number of at least 0"
    )
    beta_utility: Decay = Field(0.999, description=_AVERAGE)
    sigma: Finite32 = Field(1e-3, description=f"{_NOISE}; 0 means no noise")
    adaptive_noise: bool = Field(
        False, description="any text or number that is not 0 would switch it on. Give True or False"
    )
    noise_beta: Decay = Field(0.999, description=_AVERAGE)
    min_noise_std: Finite32 = Field(1e-6, description=_NOISE)
    seed: Annotated[Whole, Field(ge=0, lt=2**64)] = Field(
        default=None,  # type: ignore[assignment]
        description="the noise generator takes 64 bits. Give a whole number in [0, 2**64)",
    )


class AdaptiveSettings(UPGDSettings):
    """Settings of AdaptiveUPGD."""

    betas: Annotated[tuple[Decay, Decay], BeforeValidator(_plain)] = Field(
        (0.9, 0.999), description=f"{_AVERAGE} twice"
    )
    eps: Annotated[Number, Field(ge=_FLOAT32.tiny)] = Field(
        1e-8, description=f"a gradient of 0 would be divided by 0. Give a number of at least {_FLOAT32.tiny:.2g}"
    )


class ScalerSettings(_Settings):
    """Settings of :class:`rlcore.optim.scaler.VarianceGradientScaler`.

    :raises SettingError: a value has the wrong type or lies outside its range
    """

    enabled: bool = Field(
        True, description="it would be unclear whether gradients are to be scaled. Give True or False"
    )
    beta: Decay = Field(0.99, description=_AVERAGE)
    alpha: Annotated[Number, Field(ge=0)] = Field(
        0.1, description="the factor would have no strength to fall with. Give a finite number of at least 0"
    )
    eps: Annotated[Number, Field(gt=0)] = Field(
        1e-8, description="the variance would be divided by 0. Give a finite number above 0"
    )
    warmup_steps: Annotated[Whole, Field(ge=0)] = Field(
        100, description="steps could not be counted up to it. Give a whole number of at least 0"
    )
    estimator: Estimator = Field(
        "mean", description=f"no such variance is known. Give one of {', '.join(map(repr, get_args(Estimator)))}"
    )
    normalization: Normalization = Field(
        "squared_mean", description=f"no such divisor is known. Give one of {', '.join(map(repr, NORMALIZATIONS))}"
    )
    min_scaling_factor: Annotated[Number, Field(ge=0, le=1)] = Field(
        0.1, description="gradients would grow or change their sign. Give a number from 0 to 1"
    )
    max_normalized_variance: Annotated[Number, Field(gt=0)] = Field(
        100.0, description="no tensor could count for anything. Give a finite number above 0"
    )

    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            if name == "estimator" and isinstance(value, str) and value in REMOVED_ESTIMATORS:
                raise SettingError(name, f"{name}={value!r}: {REMOVED_ESTIMATORS[value]}.")
        try:
            super().__init__(**values)
        except ValidationError as error:
            name = str(error.errors(include_url=False)[0]["loc"][0])
            raise SettingError(name, _refusal(type(self), name, name, values[name])) from error


def _refusal(table: type[_Settings], name: str, where: str, value: object) -> str:
    field = table.model_fields[name]
    return f"{where}={value!r}: {field.description} (default {field.default!r})."


def check(name: str, where: str, value: object) -> Any:
    """The value of an optimizer's setting ``name``, which stands at ``where``, as a plain Python value.

    :raises SettingError: with the value, what it breaks and what to give
    """
    try:
        return getattr(AdaptiveSettings(**{name: value}), name)  # type: ignore[arg-type]
    except ValidationError as error:
        raise SettingError(where, _refusal(AdaptiveSettings, name, where, value)) from error


def plain_group(group: dict[str, Any], names: Iterable[str], where: str) -> dict[str, Any]:
    """A copy of a parameter group with its settings checked and made plain; other keys are kept as they are.

    :raises SettingError: for the first setting that is unusable
    """
    held = [name for name in names if name in group]
    return {**group, **{name: check(name, f"{where}[{name!r}]", group[name]) for name in held}}


def check_optimized(parameters: Iterable[object], where: str) -> None:
    """Accept real floating-point parameters, alone or as pairs of name and parameter; leave other types to torch.

    :raises SettingError: for the first that is complex or integer
    """
    for index, entry in enumerate(parameters):
        parameter = entry[1] if isinstance(entry, tuple) and len(entry) == 2 else entry
        if isinstance(parameter, Tensor) and not parameter.is_floating_point():
            raise SettingError(
                f"{where}['params']",
                f"{where}['params'][{index}] has the dtype {parameter.dtype}: utilities are ordered, so only real "
                "floating-point parameters can be optimized. Pass torch.view_as_real of a complex one.",
            )


def checked_parameters(parameters: ScalableParameters) -> tuple[tuple[str | None, ...], tuple[nn.Parameter, ...]]:
    """Return names (None where there is none) and parameters, or raise :class:`SettingError`."""
    if not isinstance(parameters, Iterable):
        raise _unusable(f"parameters is a {type(parameters).__name__}; pass module.parameters().")
    pairs = [each if isinstance(each, tuple) and len(each) == 2 else (None, each) for each in parameters]
    for position, (_, tensor) in enumerate(pairs):
        if not isinstance(tensor, nn.Parameter) or not tensor.is_floating_point():
            kind = str(tensor.dtype) if isinstance(tensor, nn.Parameter) else type(tensor).__name__
            raise _unusable(
                f"parameters[{position}] is a {kind}, and only a real-valued nn.Parameter can be scaled; "
                "pass module.parameters()."
            )
    if not pairs:
        raise _unusable("parameters is empty, so there is nothing to scale; was a generator used up before?")
    if len({id(tensor) for _, tensor in pairs}) != len(pairs):
        raise _unusable("parameters holds a parameter more than once, so its gradient would be scaled twice.")
    return tuple(name for name, _ in pairs), tuple(tensor for _, tensor in pairs)


def _unusable(message: str) -> SettingError:
    return SettingError("parameters", message)
