"""The saved state of an optimizer, fitted to that of the same optimizer after one step over the same parameters.

So no table of moments is needed for each class. The moments of optimizers that are neither torch's nor ours, and of
those that cannot step without a closure, are not known and not checked.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeGuard

import torch
from torch import Tensor

from rlcore.errors import StateError
from rlcore.state.tree import FREE, NOT_NEGATIVE, REMEDY, STEPS, Rule, describe, fit, misfit
from rlcore.types import StateDict

LATER_OPTIONS = {
    *("adaptive_noise", "noise_beta", "min_noise_std"),
    *("maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay"),
}
"""Options of our optimizers and torch's that a state of the same optimizer from before them lacks."""

_RATE = Rule(0.0, torch.finfo(torch.float32).max, may_lack=True)
OF_THE_STATE = {"lr": _RATE, "initial_lr": _RATE, "seed": Rule(0, 2**64 - 1, may_lack=True)}
"""Options that the saved state rules over; all others are the model's settings."""
_NOTES = {"params", "param_names", "initial_lr", "seed"}
"""Keys of a group that say nothing of the optimizer's kind."""

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
    groups = _fit_groups(record["param_groups"], optimizer, where)
    keys = [key for group in groups for key in group["params"]]
    own = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state = _fit_moments(record["state"], dict(zip(keys, own, strict=True)), optimizer, f"{where}['state']")
    return {"state": state, "param_groups": groups}


def _fit_groups(saved: Any, optimizer: torch.optim.Optimizer, where: str) -> Any:
    well_formed = isinstance(saved, list) and all(
        isinstance(g, dict) and isinstance(g.get("params"), list) for g in saved
    )
    if not well_formed:
        raise misfit(f"{where}['param_groups']", "a list of dicts with 'params'", saved)
    sizes, own_sizes = ([len(group["params"]) for group in each] for each in (saved, optimizer.param_groups))
    if sizes != own_sizes:
        raise StateError(
            f"{where} has groups of {sizes} parameters, the model's has {own_sizes}; "
            "load it into a model of the same network"
        )
    keys = [key for group in saved for key in group["params"]]
    if not all(type(key) is int for key in keys) or len(set(keys)) < len(keys):
        raise StateError(f"{where}['param_groups'] must number every parameter once; {REMEDY}")
    pairs = zip(saved, optimizer.param_groups, strict=True)
    return [_fit_group(group, own, optimizer, where, index) for index, (group, own) in enumerate(pairs)]


def _fit_group(
    saved: dict[str, Any], own: dict[str, Any], optimizer: torch.optim.Optimizer, where: str, index: int
) -> Any:
    unknown = set(saved) - set(own) - _NOTES
    missing = set(optimizer.defaults) - set(saved) - LATER_OPTIONS - _NOTES if _is_known(optimizer) else set()
    if unknown or missing:
        what = f"knows no {sorted(map(str, unknown))[:3]}" if unknown else f"also has {sorted(missing)[:3]}"
        raise StateError(
            f"{where} is not the state of a {type(optimizer).__name__}, which {what}; use the same optimizer_class on "
            "both sides"
        )
    given = {name: value for name, value in saved.items() if name in OF_THE_STATE}
    rates = fit(given, {"lr": 0.0, "initial_lr": 0.0, "seed": 0}, f"{where}['param_groups'][{index}]", OF_THE_STATE)
    options = {name: value for name, value in own.items() if name not in {*OF_THE_STATE, "params"}}
    ruling = own if _is_known(optimizer) else {"name", "param_names", *inspect.signature(type(optimizer)).parameters}
    fixed = {name: value for name, value in options.items() if name in ruling}
    group = {"lr": own["lr"], **options, **saved, **rates, **fixed}
    return {name: group[name] for name in (*own, *group) if name in group}  # in the order of the optimizer's own


def _fit_moments(saved: Any, parameters: Mapping[Any, Tensor], optimizer: torch.optim.Optimizer, where: str) -> Any:
    if not is_dict_of_dicts(saved):
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
    """The form of a moment that the optimizer would not make under its present options."""
    return 0 if name in _COUNTERS else torch.zeros(() if name in _SCALARS else parameter.shape, dtype=parameter.dtype)


def missing_moments(
    entries: object, optimizer: torch.optim.Optimizer, options: Mapping[str, Any] = MappingProxyType({})
) -> list[str]:
    """Return the moments that ``optimizer`` needs and some non-empty entry does not have.

    Our optimizers start what is missing by themselves; torch's fail at their next step.

    :param entries: what is kept of each parameter, by its key; none are missing from anything else
    :param options: of every group, in place of those that it has
    """
    if not is_dict_of_dicts(entries) or _is_ours(optimizer):
        return []
    needed = {name for entry in _first_state(optimizer, options) or () for name in entry}
    return sorted({name for entry in entries.values() if entry for name in needed - set(entry)})


def is_dict_of_dicts(entries: object) -> TypeGuard[dict[Any, dict[str, Any]]]:
    """Return whether it has the form of what an optimizer keeps of its parameters."""
    return isinstance(entries, dict) and all(isinstance(entry, dict) for entry in entries.values())


def _first_state(
    optimizer: torch.optim.Optimizer, options: Mapping[str, Any] = MappingProxyType({})
) -> list[dict[str, Any]] | None:
    """Return the state of each parameter after a step with gradients of zero; None where unknown."""
    if not _is_known(optimizer):
        return None
    fresh: Any = type(optimizer)
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
        name: optimizer.defaults[name] for name in inspect.signature(fresh).parameters if name in optimizer.defaults
    }
    try:
        twin = fresh(groups, **settings)
        twin.step()
    except (TypeError, RuntimeError):  # of LBFGS and SparseAdam
        return None
    saved = twin.state_dict()["state"]
    return [saved.get(index, {}) for index in range(len(parameters))]


def _is_ours(optimizer: torch.optim.Optimizer) -> bool:
    return type(optimizer).__module__.startswith("rlcore.")


def _is_known(optimizer: torch.optim.Optimizer) -> bool:
    return _is_ours(optimizer) or type(optimizer).__module__.startswith("torch.optim.")
