"""The saved state of a ``VarianceGradientScaler``, read completely before anything is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from rlcore.errors import SettingError, StateError
from rlcore.optim import gradient_variance as estimators
from rlcore.optim.gradient_moments import Floats, Integers
from rlcore.optim.gradient_variance import TensorLayout, VarianceEstimator, read_numbers
from rlcore.optim.settings import ScalerSettings
from rlcore.state.schema import describe, misfit, read_count, read_list, read_number, read_record, read_tensor
from rlcore.types import StateValue

STATE_VERSION: Final = 1
GLOBAL_AVERAGES: Final = ("grad_mean_ema", "grad_var_ema", "grad_norm_ema", "grad_max_ema")
STATE_KEYS: Final = (
    "version",
    "step_count",
    "global_observations",
    *GLOBAL_AVERAGES,
    "shapes",
    "observations",
    "mean",
    "mean_square",
    "estimator_state",
)


@dataclass(frozen=True)
class LoadedState:
    """A state that was checked completely."""

    settings: ScalerSettings
    step_count: int
    global_observations: int
    global_averages: Floats
    observations: Integers
    mean: Floats
    mean_square: Floats
    estimator: VarianceEstimator

    @classmethod
    def read(cls, state: object, layouts: tuple[TensorLayout, ...]) -> LoadedState:
        _check_version(state)
        setting_names = list(ScalerSettings.model_fields)
        entries = read_record(state, "state of the gradient scaler", (*STATE_KEYS, *setting_names))
        settings = _read_settings({name: entries[name] for name in setting_names})
        _check_shapes(entries["shapes"], layouts)
        step_count = read_count(entries["step_count"], "step_count")
        global_observations = read_count(entries["global_observations"], "global_observations", step_count)
        observations = read_tensor(entries["observations"], "observations", (len(layouts),), (torch.int64,), least=0)
        if bool((observations > step_count).any()):
            raise StateError(
                f"observations exceeds step_count={step_count}, the state is damaged; nothing was changed."
            )
        estimator = estimators.ESTIMATORS[settings.estimator](layouts)
        estimator.load_state_dict(entries["estimator_state"])
        return cls(
            settings,
            step_count,
            global_observations,
            np.array([_read_average(entries[name], name, global_observations) for name in GLOBAL_AVERAGES]),
            np.array(observations.cpu().numpy()),
            read_numbers(entries["mean"], "mean", len(layouts)),
            read_numbers(entries["mean_square"], "mean_square", len(layouts), 0.0),
            estimator,
        )


def _check_version(state: object) -> None:
    version = state.get("version") if isinstance(state, Mapping) else None
    if isinstance(version, bool) or version != STATE_VERSION:
        raise StateError(
            f"The state of the gradient scaler has version {describe(version)}, and this program reads version "
            f"{STATE_VERSION}; load it with the program that wrote it. Nothing was changed."
        )


def _read_settings(values: dict[str, Any]) -> ScalerSettings:
    try:
        return ScalerSettings(**values)
    except SettingError as error:
        raise StateError(f"The state of the gradient scaler holds an unusable setting: {error}") from error


def _check_shapes(shapes: StateValue, layouts: Sequence[TensorLayout]) -> None:
    shapes = read_list(shapes, "shapes")
    if len(shapes) != len(layouts):
        raise StateError(
            f"The state is for {len(shapes)} tensors and the scaler has {len(layouts)} parameters; load it into a "
            "scaler of the same network. Nothing was changed."
        )
    for position, (shape, layout) in enumerate(zip(shapes, layouts, strict=True)):
        if repr(shape) != repr(list(layout.shape)):
            raise StateError(
                f"The state is for a tensor of shape {str(shape)[:60]} at position {position}, where the scaler has a "
                f"parameter of shape {layout.shape}; load it into a scaler of the same network. Nothing was changed."
            )


def _read_average(value: StateValue, name: str, observations: int) -> float:
    if observations == 0 and value is None:
        return 0.0
    if observations == 0:
        raise misfit(name, "None after 0 observations", value)
    return read_number(value, name)
