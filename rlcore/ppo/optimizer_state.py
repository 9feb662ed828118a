"""The saved state of an optimizer: what it must look like, and what of it is taken over."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeGuard

import torch
from torch import Tensor

from rlcore.errors import StateError
from rlcore.ppo.optimizers import OPTIMIZERS, optimizer_options
from rlcore.state.schema import LARGEST_COUNT, describe, misfit, read_count, read_number, read_record, read_tensor
from rlcore.types import StateDict

GROUP_NOTES = {"param_names", "initial_lr", "seed"}
"""Keys of a parameter group that say nothing of the optimizer's kind."""

LATER_OPTIONS = {
    *("adaptive_noise", "noise_beta", "min_noise_std"),
    *("maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay"),
}
"""Options of our optimizers and torch's that a state of the same optimizer from before them lacks."""

OF_THE_STATE = {"params", "lr", "initial_lr", "seed"}
"""Keys of a parameter group that the saved state rules over; all other options are the model's settings."""

COUNTERS = {"step", "moment_step", "noise_step"}
SCALARS = {"direction_rms"}
NEVER_NEGATIVE = {"exp_avg_sq", "max_exp_avg_sq", "square_avg", "second_moment", "direction_rms"}


def check_optimizer(state: StateDict, optimizer: torch.optim.Optimizer) -> None:
    """An optimizer's state must be of the same kind of optimizer over the same parameters, with usable numbers.

    Moments must be finite and of their parameter's shape, second moments and counters not negative. Of optimizers that
    are not in ``OPTIMIZERS`` the moments are not known, so they are not checked.

    :raises StateError: for the first thing that does not fit
    """
    record = read_record(state, "policy.optimizer", ("state", "param_groups"))
    keys = _check_groups(record["param_groups"], optimizer)
    own = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    _check_entries(record["state"], dict(zip(keys, own, strict=True)), optimizer)


def with_own_options(state: StateDict, optimizer: torch.optim.Optimizer) -> StateDict:
    """A checked state, in groups that have the options of ``optimizer`` and the rates of the state.

    Of an optimizer that is not in ``OPTIMIZERS`` the constructor's options are the model's, and other keys the state's:
    some optimizers keep in their groups what they measure. The options are in the order of ``optimizer``, so that what
    is saved next has the bytes that it would have had without the load.
    """
    groups: list[Any] = state["param_groups"]  # type: ignore[assignment]
    known = type(optimizer) in OPTIMIZERS.values()
    fitted: list[Any] = []
    for theirs, own in zip(groups, optimizer.param_groups, strict=True):
        ruling = set(own) if known else {"name", "param_names", *optimizer_options(type(optimizer))}
        options = {name: value for name, value in own.items() if name not in OF_THE_STATE}
        fixed = {name: value for name, value in options.items() if name in ruling}
        group = {"lr": own["lr"], **options, **theirs, **fixed}
        fitted.append({name: group[name] for name in (*own, *group) if name in group})
    return {**state, "param_groups": fitted}


def _check_groups(groups: Any, optimizer: torch.optim.Optimizer) -> list[int]:
    """The keys of the parameters, in order."""
    well_formed = isinstance(groups, list) and all(
        isinstance(group, dict) and isinstance(group.get("params"), list) for group in groups
    )
    if not well_formed:
        raise StateError("policy.optimizer['param_groups'] must be a list of dicts with 'params'; the state is damaged")
    sizes, own_sizes = ([len(group["params"]) for group in each] for each in (groups, optimizer.param_groups))
    if sizes != own_sizes:
        raise StateError(
            f"policy.optimizer has groups of {sizes} parameters, the model's has {own_sizes}; "
            "load it into a model of the same network"
        )
    for group, own in zip(groups, optimizer.param_groups, strict=True):
        _check_options(group, own, optimizer)
    keys = [key for group in groups for key in group["params"]]
    if not all(type(key) is int for key in keys) or len(set(keys)) < len(keys):
        raise StateError("policy.optimizer['param_groups'] must number every parameter once; the state is damaged")
    return keys


def _check_options(group: Mapping[str, Any], own: Mapping[str, Any], optimizer: torch.optim.Optimizer) -> None:
    known = type(optimizer) in OPTIMIZERS.values()
    unknown = set(group) - set(own) - GROUP_NOTES
    missing = set(optimizer.defaults) - set(group) - LATER_OPTIONS - GROUP_NOTES if known else set()
    if unknown or missing:
        what = f"knows no {sorted(map(str, unknown))[:3]}" if unknown else f"also has {sorted(missing)[:3]}"
        raise StateError(
            f"policy.optimizer is not the state of a {type(optimizer).__name__}, which {what}; use the same "
            "optimizer_class on both sides"
        )
    for name in set(group) - GROUP_NOTES - {"params"}:
        kinds = {_kind(group[name]), _kind(own[name])} - {"NoneType"}
        if len(kinds) > 1:
            raise StateError(
                f"policy.optimizer's {name!r} is {describe(group[name])}, the model's {describe(own[name])}; the state "
                "is damaged"
            )
    where = "policy.optimizer['param_groups'][...]"
    for name in {"lr", "initial_lr"}.intersection(group):
        read_number(group[name], f"{where}[{name!r}]", 0.0, torch.finfo(torch.float32).max)
    read_count(group.get("seed", 0), f"{where}['seed']", 2**64 - 1)


def _check_entries(entries: Any, parameters: Mapping[Any, Tensor], optimizer: torch.optim.Optimizer) -> None:
    if not is_dict_of_dicts(entries):
        raise StateError("policy.optimizer['state'] must be a dict of dicts; the state is damaged")
    unknown = [key for key in entries if key not in parameters]
    if unknown:
        raise StateError(f"policy.optimizer has moments of parameter {describe(unknown[0])}, which no group names")
    if type(optimizer) not in OPTIMIZERS.values():
        return
    missing = missing_moments(entries, optimizer)
    if missing:
        raise StateError(f"policy.optimizer has no {missing}; the state is damaged, or of other options")
    for key, entry in entries.items():
        for name, value in entry.items():
            where = f"policy.optimizer['state'][{key}][{describe(name)}]"
            if name in COUNTERS:
                _check_counter(where, value)
            elif value is not None or not isinstance(optimizer, torch.optim.SGD):  # which has None without momentum
                _check_moment(where, str(name), value, parameters[key])


def _check_counter(where: str, value: object) -> None:
    number = value.item() if isinstance(value, Tensor) and value.dim() == 0 and value.is_floating_point() else value
    if type(number) not in (int, float) or not 0 <= number <= LARGEST_COUNT or number % 1 != 0:  # type: ignore[operator]
        raise misfit(where, f"a whole number from 0 to {LARGEST_COUNT}", value)


def _check_moment(where: str, name: str, value: object, parameter: Tensor) -> None:
    shape = () if name in SCALARS else tuple(parameter.shape)
    moment = read_tensor(value, where, shape, None, least=0.0 if name in NEVER_NEGATIVE else -math.inf)
    if moment.dtype == torch.float64 and parameter.dtype != torch.float64:
        read_tensor(moment.float(), where, shape)  # what it becomes in the optimizer must be finite, too


def is_dict_of_dicts(entries: object) -> TypeGuard[dict[Any, dict[str, Any]]]:
    """Whether it has the form of what an optimizer keeps of its parameters."""
    return isinstance(entries, dict) and all(isinstance(entry, dict) for entry in entries.values())


def missing_moments(
    entries: object, optimizer: torch.optim.Optimizer, options: Mapping[str, Any] = MappingProxyType({})
) -> list[str]:
    """The moments that ``optimizer`` needs and some non-empty entry does not have.

    UPGD starts what is missing by itself; torch's optimizers fail at their next step.

    :param entries: what is kept of each parameter, by its key; none are missing from anything else
    :param options: of every group, in place of those that it has
    """
    if not is_dict_of_dicts(entries):
        return []
    needed = {name for group in optimizer.param_groups for name in _moments(optimizer, {**group, **options})}
    return sorted({name for entry in entries.values() if entry for name in needed - set(entry)})


def _moments(optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> list[str]:
    if isinstance(optimizer, torch.optim.Adam):
        return ["step", "exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if group["amsgrad"] else [])]
    if isinstance(optimizer, torch.optim.RMSprop):
        momentum = ["momentum_buffer"] if group["momentum"] > 0 else []
        return ["step", "square_avg", *momentum, *(["grad_avg"] if group["centered"] else [])]
    return []


def _kind(value: object) -> str:
    """What an option is; all numbers are of one kind, and a bool is none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number"
    return "sequence" if isinstance(value, list | tuple) else type(value).__name__
