"""Whether a saved state fits a model; each check raises StateError and changes nothing."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeGuard

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rlcore.errors import StateError
from rlcore.ppo import observations
from rlcore.ppo.optimizers import OPTIMIZERS
from rlcore.state_fields import describe
from rlcore.types import StateDict

COUNTERS = ("num_timesteps", "_total_timesteps", "_episode_num", "_n_updates")
PROGRESS = "_current_progress_remaining"
WINDOWS = ("ep_info_buffer", "ep_success_buffer")

SUPPORT = "value_support"
"""The buffer of a policy that holds the atoms of its critics, where they have any."""

GROUP_NOTES = {"param_names", "initial_lr"}
"""Keys of a parameter group that say nothing of the optimizer's kind."""

LATER_OPTIONS = {
    *("adaptive_noise", "noise_beta", "min_noise_std"),
    *("maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay"),
}
"""Options of our optimizers and torch's that a state of the same optimizer from before them lacks."""


def check_policy(state: StateDict, expected: Mapping[str, Tensor]) -> None:
    """A policy's parameters must have the names, shapes and kind of number of the model's, and the same atoms."""
    if (SUPPORT in state) != (SUPPORT in expected):
        meant, read_as = ("atoms", "quantiles") if SUPPORT in state else ("quantiles", "atoms")
        raise StateError(
            f"the critics' outputs are about {meant}, and the model would read them as {read_as}; use the same "
            "value_distribution on both sides"
        )
    require_keys("policy", state, expected)
    for name, tensor in expected.items():
        given = state[name]
        if not isinstance(given, Tensor) or given.shape != tensor.shape:
            raise StateError(
                f"policy[{name!r}] is {describe(given)}, the model's has shape {tuple(tensor.shape)}; "
                "load it into a model with the same network sizes"
            )
        if given.is_floating_point() != tensor.is_floating_point():
            raise StateError(f"policy[{name!r}] holds {given.dtype}, the model's {tensor.dtype}; the state is damaged")
        if name == SUPPORT and not torch.equal(given.to(tensor), tensor):
            raise StateError(
                f"the critics' atoms lie from {given[0]:g} to {given[-1]:g}, the model's from {tensor[0]:g} to "
                f"{tensor[-1]:g}, so every value would be another; load it into a model with the same v_min and v_max"
            )


def check_weights(policy: object) -> None:
    """No parameter may be NaN or infinite: nothing that training does makes one so, and every action would be."""
    for name, tensor in policy.items() if isinstance(policy, Mapping) else ():
        if isinstance(tensor, Tensor) and not torch.isfinite(tensor).all():
            raise StateError(
                f"policy[{name!r}] holds NaN or infinity, which would reach every action; the state is damaged, load "
                "an earlier one"
            )


def check_optimizer(state: StateDict, optimizer: torch.optim.Optimizer) -> None:
    """An optimizer's state must be of the same kind of optimizer over the same parameters."""
    require_keys("policy.optimizer", state, ("state", "param_groups"))
    keys = _check_groups(state["param_groups"], optimizer)
    own = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    _check_entries(state["state"], dict(zip(keys, own, strict=True)), optimizer)


def _check_groups(groups: Any, optimizer: torch.optim.Optimizer) -> list[Any]:
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
    return [key for group in groups for key in group["params"]]


def _check_options(group: Mapping[str, Any], own: Mapping[str, Any], optimizer: torch.optim.Optimizer) -> None:
    unknown = set(group) - set(own) - GROUP_NOTES
    known = type(optimizer) in OPTIMIZERS.values()
    missing = set(optimizer.defaults) - set(group) - LATER_OPTIONS if known else set()
    if unknown or missing:
        what = f"knows no {sorted(map(str, unknown))[:3]}" if unknown else f"has {sorted(missing)[:3]} besides"
        raise StateError(
            f"policy.optimizer is not the state of a {type(optimizer).__name__}, which {what}; use the same "
            "optimizer_class on both sides"
        )
    for name in set(group) - GROUP_NOTES - {"params"}:
        kinds = {_kind(group[name]), _kind(own[name])} - {"NoneType"}
        if len(kinds) > 1:
            raise StateError(
                f"policy.optimizer's {name!r} is {group[name]!r}, the model's {own[name]!r}; the state is damaged"
            )


def _check_entries(entries: Any, parameters: Mapping[Any, Tensor], optimizer: torch.optim.Optimizer) -> None:
    if not is_dict_of_dicts(entries):
        raise StateError("policy.optimizer['state'] must be a dict of dicts; the state is damaged")
    unknown = [key for key in entries if key not in parameters]
    if unknown:
        raise StateError(f"policy.optimizer has moments of parameter {unknown[0]!r}, which no group names")
    if type(optimizer) not in OPTIMIZERS.values():
        return  # nothing is known of the moments of an optimizer that is not ours
    missing = missing_moments(entries, optimizer)
    if missing:
        raise StateError(f"policy.optimizer has no {missing}; the state is damaged, or of other options")
    for key, entry in entries.items():
        for name, value in entry.items():
            shape = parameters[key].shape
            if isinstance(value, Tensor) and value.dim() > 0 and value.shape != shape:
                raise StateError(
                    f"policy.optimizer's {name!r} of parameter {key} is {describe(value)}, "
                    f"the parameter has shape {tuple(shape)}"
                )


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


def check_progress(state: StateDict) -> None:
    """Counters must be counts, the remaining progress a number from 0 to 1, the windows lists or None."""
    require_keys("progress_state", state, (*COUNTERS, PROGRESS, *WINDOWS))
    for name in COUNTERS:
        value = state[name]
        if type(value) is not int or value < 0:
            raise StateError(f"progress_state[{name!r}] is {describe(value)}, no count; the state is damaged")
    remaining: Any = state[PROGRESS]
    if type(remaining) not in (int, float) or not 0 <= remaining <= 1:
        raise StateError(
            f"progress_state[{PROGRESS!r}] is {describe(remaining)}, no number from 0 to 1; the state is damaged"
        )
    infos, successes = (state[name] for name in WINDOWS)
    if infos is not None and not (isinstance(infos, list) and all(isinstance(info, dict) for info in infos)):
        raise StateError("progress_state['ep_info_buffer'] must be a list of dicts or None; the state is damaged")
    if successes is not None and not isinstance(successes, list):
        raise StateError("progress_state['ep_success_buffer'] must be a list or None; the state is damaged")


def check_lstm(state: StateDict, observation_space: spaces.Space[Any], lstm: tuple[int, int]) -> None:
    """LSTM states, observations and episode starts must be of one number of environments and of this network.

    :param lstm: number of layers and hidden size
    """
    require_keys("lstm_state", state, ("actor", "critic", "observations", "original_observations", "episode_starts"))
    starts = state["episode_starts"]
    if not isinstance(starts, Tensor) or starts.dim() != 1:
        raise StateError(f"lstm_state['episode_starts'] is {describe(starts)}, not one flag an environment")
    layers, hidden_size = lstm
    for name in ("actor", "critic"):
        pair: Any = state[name]
        if not isinstance(pair, list) or len(pair) != 2:
            raise StateError(f"lstm_state[{name!r}] must hold a hidden and a cell state; the state is damaged")
        for part in pair:
            _check_shape(f"lstm_state[{name!r}]", part, (layers, len(starts), hidden_size))
    observations.check("lstm_state['observations']", state["observations"], observation_space, len(starts))
    original = state["original_observations"]
    if original is not None:
        observations.check_number("lstm_state['original_observations']", original, len(starts))


def _check_shape(name: str, value: object, shape: tuple[int, ...]) -> None:
    if not isinstance(value, Tensor) or tuple(value.shape) != shape:
        raise StateError(f"{name} is {describe(value)}, the model's has shape {shape}; the state is of another model")


def check_generators(state: StateDict) -> None:
    """The states of the generators must be ones that generators of their kinds take."""
    require_keys("rng_state", state, ("python", "numpy", "torch", "cuda"))
    fields: Any = state
    try:
        version, internal, gauss = fields["python"]
        random.Random().setstate((version, tuple(internal), gauss))
        keys, position, has_gauss, cached = fields["numpy"]
        np.random.RandomState().set_state(("MT19937", keys.numpy().astype(np.uint32), position, has_gauss, cached))
        torch.Generator().set_state(fields["torch"].cpu())
        sizes = {tensor.numel() for tensor in fields["cuda"]}
    except (TypeError, ValueError, RuntimeError, AttributeError, OverflowError) as error:
        raise StateError(f"rng_state is none that a generator takes ({error}); the state is damaged") from error
    if len(sizes) > 1:
        raise StateError("rng_state['cuda'] holds states of different sizes; the state is damaged")


def require_keys(name: str, state: StateDict, expected: Iterable[str]) -> None:
    """
    :raises StateError: naming what is missing and what is not known
    """
    wanted: set[Any] = set(expected)
    if set(state) != wanted:
        missing, surplus = sorted(map(str, wanted - set(state))), sorted(map(str, set(state) - wanted))
        raise StateError(f"{name} does not fit the model: missing {_few(missing)}, not known {_few(surplus)}")


def _few(names: list[str]) -> str:
    return f"{names[:3]}{' ...' if len(names) > 3 else ''}"


def _kind(value: object) -> str:
    """What an option is; all numbers are of one kind, and a bool is none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number"
    return "sequence" if isinstance(value, list | tuple) else type(value).__name__
