"""The saved state of an optimizer, fitted to that of the same optimizer after one step over the same parameters.

The moments of optimizers that are neither torch's nor ours, and of those that need a closure, are not checked.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeGuard

import torch
from torch import Tensor

from rlcore.errors import StateError
from rlcore.state.tree import COUNT, FREE, NOT_NEGATIVE, REMEDY, STEPS, Rule, describe, fit, misfit
from rlcore.types import StateDict

LATER_OPTIONS = {
    *("adaptive_noise", "noise_beta", "min_noise_std"),
    *("maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay"),
}
"""Options of our optimizers and torch's that a state of the same optimizer from before them lacks."""

_RATE = Rule(0.0, torch.finfo(torch.float32).max, may_lack=True)
OF_THE_STATE = {"lr": _RATE, "initial_lr": _RATE, "seed": Rule(0, 2**64 - 1, may_lack=True)}
"""Options that the saved state rules over; all others are the model's settings."""

_COUNTERS = dict.fromkeys(("step", "moment_step", "noise_step"), STEPS)
_SQUARES = ("exp_avg_sq", "max_exp_avg_sq", "square_avg", "second_moment", "direction_rms", "row_var", "col_var", "sum")
_MOMENTS = {**_COUNTERS, **dict.fromkeys(_SQUARES, NOT_NEGATIVE)}
_SCALARS = {"direction_rms"}


def fit_optimizer(saved: object, optimizer: torch.optim.Optimizer, where: str = "policy.optimizer") -> StateDict:
    """Return a saved state with the options of ``optimizer`` and the rates and the seed of the saved groups.

    Moments are finite and of their parameter's shape, second moments not negative, counters whole. A parameter without
    moments has not stepped. Of an optimizer that is not known here the constructor's options are the model's, and other
    keys the state's: some optimizers keep in their groups what they measure.

    :raises StateError: for the first leaf that does not fit
    """
    record = fit(saved, {"state": {}, "param_groups": []}, where, {"state": FREE, "param_groups": FREE})
    found, own = record["param_groups"], optimizer.param_groups
    if not isinstance(found, list) or len(found) != len(own):
        raise misfit(f"{where}['param_groups']", f"a list of {len(own)} groups", found)
    groups = [
        _fit_group(group, mine, optimizer, f"{where}['param_groups'][{index}]")
        for index, (group, mine) in enumerate(zip(found, own, strict=True))
    ]
    keys = [key for group in groups for key in group["params"]]
    if len(set(keys)) < len(keys):
        raise StateError(f"{where}['param_groups'] must number every parameter once; {REMEDY}")
    parameters = dict(zip(keys, [each for group in own for each in group["params"]], strict=True))
    return {"state": _fit_moments(record["state"], parameters, optimizer, f"{where}['state']"), "param_groups": groups}


def _fit_group(saved: object, own: dict[str, Any], optimizer: torch.optim.Optimizer, where: str) -> Any:
    is_known, of_constructor = _is_known(optimizer), inspect.signature(type(optimizer)).parameters
    form = {**own, "lr": 0.0, "initial_lr": 0.0, "seed": 0, "params": [0] * len(own["params"]), "param_names": None}
    needed = set(optimizer.defaults) - LATER_OPTIONS if is_known else {"params"}
    rules = {name: Rule(free=True, may_lack=name not in needed) for name in form}
    fitted = fit(saved, form, where, {**rules, **OF_THE_STATE, "params": COUNT})
    ruling = own if is_known else {"name", "param_names", *of_constructor}
    fixed = {name: own[name] for name in own if name in ruling and name not in {*OF_THE_STATE, "params"}}
    return {**own, **fitted, **fixed}


def _fit_moments(saved: Any, parameters: Mapping[Any, Tensor], optimizer: torch.optim.Optimizer, where: str) -> Any:
    if not _is_dict_of_dicts(saved):
        raise misfit(where, "a dict of dicts", saved)
    unknown = [key for key in saved if key not in parameters]
    if unknown:
        raise StateError(f"{where} has moments of parameter {describe(unknown[0])}, which no group names; {REMEDY}")
    stepped = _first_state(optimizer) if any(saved.values()) else None
    if stepped is None:
        return saved
    rules = {**_MOMENTS, "momentum_buffer": Rule(optional=True)} if isinstance(optimizer, torch.optim.SGD) else _MOMENTS
    fitted = {}
    for key, like in zip(parameters, stepped, strict=True):
        entry = saved.get(key)
        if entry:
            idle = {name: _like(name, parameters[key]) for name in entry if name not in like}
            needed = {name: value for name, value in like.items() if name in entry or not _is_ours(optimizer)}
            fitted[key] = fit(entry, {**needed, **idle}, f"{where}[{key}]", rules)
        elif key in saved:
            fitted[key] = entry
    return fitted


def _like(name: str, parameter: Tensor) -> object:
    """Return the form of a moment that the optimizer would not make under its present options."""
    return 0 if name in _COUNTERS else torch.zeros(() if name in _SCALARS else parameter.shape, dtype=parameter.dtype)


def missing_moments(
    entries: object, optimizer: torch.optim.Optimizer, options: Mapping[str, Any] = MappingProxyType({})
) -> list[str]:
    """Return the moments that ``optimizer`` needs and some non-empty entry does not have; ours need none.

    :param entries: what is kept of each parameter, by its key; none are missing from anything else
    :param options: of every group, in place of those that it has
    """
    if not _is_dict_of_dicts(entries) or _is_ours(optimizer):
        return []
    needed = {name for entry in _first_state(optimizer, options) or () for name in entry}
    return sorted({name for entry in entries.values() if entry for name in needed - set(entry)})


def _is_dict_of_dicts(entries: object) -> TypeGuard[dict[Any, dict[str, Any]]]:
    return isinstance(entries, dict) and all(isinstance(entry, dict) for entry in entries.values())


def _first_state(
    optimizer: torch.optim.Optimizer, options: Mapping[str, Any] = MappingProxyType({})
) -> list[dict[str, Any]] | None:
    """Return the state of each parameter after a step with gradients of zero; None where unknown."""
    if not _is_known(optimizer):
        return None
    groups = [
        {
            **{name: value for name, value in group.items() if name != "param_names"},
            **options,
            "params": [torch.zeros_like(parameter, requires_grad=True) for parameter in group["params"]],
        }
        for group in optimizer.param_groups
    ]
    parameters = [parameter for group in groups for parameter in group["params"]]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    settings = {
        name: optimizer.defaults[name]
        for name in inspect.signature(type(optimizer)).parameters
        if name in optimizer.defaults
    }
    try:
        twin = type(optimizer)(groups, **settings)
        twin.step()
    except (TypeError, RuntimeError):  # of LBFGS and SparseAdam
        return None
    saved = twin.state_dict()["state"]
    return [saved.get(index, {}) for index in range(len(parameters))]


def _is_ours(optimizer: torch.optim.Optimizer) -> bool:
    return type(optimizer).__module__.startswith("rlcore.")


def _is_known(optimizer: torch.optim.Optimizer) -> bool:
    return _is_ours(optimizer) or type(optimizer).__module__.startswith("torch.optim.")
