"""State of the UPGD optimizers: its precision, what a saved one must look like, and how it is restored.

An average comes with its own step counter, so that one which was missing can start fresh beside the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeAlias, overload

import torch
from torch import Tensor

from rlcore.errors import StateError

# Counter -> the averages that it counts.
Averages: TypeAlias = Mapping[str, tuple[str, ...]]

NOISE_AVERAGES: Averages = {"noise_step": ("direction_rms",)}
SCALARS = frozenset({"direction_rms"})


def state_dtype(parameter: Tensor) -> torch.dtype:
    """float64 for float64 parameters, else float32: an average with decay 0.999 stands still in bfloat16."""
    return torch.float64 if parameter.dtype == torch.float64 else torch.float32


@overload
def bias_correction(decay: float, steps: int) -> float: ...


@overload
def bias_correction(decay: float, steps: int | Tensor) -> float | Tensor: ...


def bias_correction(decay: float, steps: int | Tensor) -> float | Tensor:
    """Sum of the weights that an average started at zero has given out after ``steps`` steps."""
    return 1.0 - float(decay) ** (steps.double() if isinstance(steps, Tensor) else steps)


def has_averages(saved: dict[str, Any]) -> bool:
    """Whether a saved state is one of a UPGD optimizer that has made steps."""
    return any("utility" in entries for entries in saved["state"].values())


def check(saved: dict[str, Any], groups: list[dict[str, Any]], averages: Averages) -> None:
    """Accept a saved state that fits the parameters.

    :raises StateError: for the first thing that does not fit
    """
    if not {"state", "param_groups"} <= saved.keys():
        raise StateError(
            f"the saved state has the entries {sorted(map(str, saved))}, but 'state' and 'param_groups' are needed. "
            "Pass what an optimizer's state_dict() returned."
        )
    sizes = [len(group["params"]) for group in groups]
    saved_sizes = [len(group["params"]) for group in saved["param_groups"]]
    if sizes != saved_sizes:
        raise StateError(
            f"the saved state has groups of {saved_sizes} parameters, the optimizer has {sizes}: their averages "
            "cannot be matched. Build the optimizer with the groups it was saved with."
        )
    for key, parameter, entries in _matched(saved, groups):
        for counter, names in averages.items():
            _check_counter(key, counter, entries.get(counter, 0))
            for name in names:
                if name in entries:
                    _check_average(key, name, entries[name], parameter)


def restore(state: dict[Any, Any], saved: dict[str, Any], groups: list[dict[str, Any]], averages: Averages) -> None:
    """Write copies of the saved averages into ``state``, in the precision of the state; the rest is left alone."""
    for _, parameter, entries in _matched(saved, groups):
        for counter, names in averages.items():
            if counter in entries:
                state[parameter][counter] = int(entries[counter])
            for name in names:
                if name in entries:
                    state[parameter][name] = entries[name].to(
                        device=parameter.device, dtype=state_dtype(parameter), copy=True
                    )


def rescaled(utility: Tensor, factor: float) -> Tensor:
    """The utility of a parameter that was multiplied by ``factor``, computed in float64, in the range of its dtype."""
    limit = torch.finfo(utility.dtype).max / 4
    return (utility.double() * factor).clamp(-limit, limit).to(utility.dtype)


def with_rescaled_utilities(
    saved: dict[str, Any], groups: list[dict[str, Any]], parameters: Collection[Tensor], factor: float
) -> dict[str, Any]:
    """A saved state as it would be had ``parameters`` been multiplied by ``factor``; what is given stays.

    What is no utility is left for :func:`check` to refuse.

    :param saved: has the groups of ``groups``
    :param parameters: of ``groups``
    """
    chosen = set(map(id, parameters))
    state = dict(saved["state"])
    for key, parameter, entries in _matched(saved, groups):
        utility = entries.get("utility")
        if id(parameter) in chosen and isinstance(utility, Tensor) and utility.is_floating_point():
            state[key] = {**entries, "utility": rescaled(utility.to(state_dtype(parameter)), factor)}
    return {**saved, "state": state}


def _matched(saved: dict[str, Any], groups: list[dict[str, Any]]) -> Iterator[tuple[int, Tensor, dict[str, Any]]]:
    keys = [key for group in saved["param_groups"] for key in group["params"]]
    parameters = [parameter for group in groups for parameter in group["params"]]
    for key, parameter in zip(keys, parameters, strict=True):
        if key in saved["state"]:
            yield key, parameter, saved["state"][key]


def _check_counter(key: int, name: str, value: object) -> None:
    number = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not number >= 0 or number % 1 != 0:
        raise StateError(
            f"state[{key}][{name!r}] is {value!r}: bias correction needs a whole number of steps of at least 0. "
            "Remove the entry to start its averages fresh."
        )


def _check_average(key: int, name: str, value: object, parameter: Tensor) -> None:
    shape = () if name in SCALARS else tuple(parameter.shape)
    if not isinstance(value, Tensor) or not value.is_floating_point() or tuple(value.shape) != shape:
        found = f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
        raise StateError(
            f"state[{key}][{name!r}] is {found}, but a floating-point tensor of shape {shape} is needed: it was saved "
            "for another parameter. Build the optimizer with the parameters it was saved with, in the same order."
        )
    if not torch.isfinite(value).all():
        raise StateError(
            f"state[{key}][{name!r}] holds NaN or infinity, which would reach every parameter in the next step. "
            "Remove the entry to start it fresh, or load an earlier state."
        )
