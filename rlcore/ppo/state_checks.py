"""Whether a saved state fits a model; each check raises StateError and changes nothing."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rlcore.errors import ResumeWarning, StateError
from rlcore.ppo import observations
from rlcore.state.fields import LARGEST_COUNT, describe
from rlcore.types import StateDict
from rlcore.warn import warn_caller

COUNTERS = ("num_timesteps", "_total_timesteps", "_episode_num", "_n_updates")
PROGRESS = "_current_progress_remaining"
WINDOWS = ("ep_info_buffer", "ep_success_buffer")

SUPPORT = "value_support"
"""The buffer of a policy that holds the atoms of its critics, where they have any."""


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
        if tensor.is_meta:
            continue  # what follows takes numbers of both
        if not bool((given.to(tensor.dtype).isfinite() | ~given.isfinite()).all()):
            raise StateError(f"policy[{name!r}] holds numbers beyond {tensor.dtype}; the state is damaged")
        if name == SUPPORT and not torch.equal(given.to(tensor), tensor):
            raise StateError(
                f"the critics' atoms lie from {given[0]:g} to {given[-1]:g}, the model's from {tensor[0]:g} to "
                f"{tensor[-1]:g}, so every value would be another; load it into a model with the same v_min and v_max"
            )


def warn_of_casts(policy: object, optimizer: object, expected: Mapping[str, Tensor]) -> None:
    """Say in one warning which weights and moments have another dtype than the model computes with.

    :param policy: weights by name
    :param optimizer: the part ``policy.optimizer``; what is damaged is left for others to refuse
    :param expected: the model's own weights
    """
    computed = {tensor.dtype for tensor in expected.values() if tensor.is_floating_point()}
    moments = optimizer.get("state") if isinstance(optimizer, Mapping) else None
    states = [policy, *(moments.values() if isinstance(moments, Mapping) else ())]
    given = [each for state in states if isinstance(state, Mapping) for each in state.values()]
    dtypes = [each.dtype for each in given if isinstance(each, Tensor) and each.dim() and each.is_floating_point()]
    others = [str(dtype) for dtype in dtypes if dtype not in computed]
    if others and computed:
        warn_caller(
            f"{len(others)} tensors hold {', '.join(sorted(set(others)))}, and the model computes in "
            f"{', '.join(sorted(map(str, computed)))}: they are cast, so it does not act exactly as the saved one did",
            ResumeWarning,
        )


def check_weights(policy: object) -> None:
    """No parameter may be NaN or infinite: nothing that training does makes one so, and every action would be."""
    for name, tensor in policy.items() if isinstance(policy, Mapping) else ():
        if isinstance(tensor, Tensor) and not torch.isfinite(tensor).all():
            raise StateError(
                f"policy[{name!r}] holds NaN or infinity, which would reach every action; the state is damaged, load "
                "an earlier one"
            )


def check_progress(state: StateDict) -> None:
    """Counters must be counts, the remaining progress a number from 0 to 1, the windows lists or None."""
    require_keys("progress_state", state, (*COUNTERS, PROGRESS, *WINDOWS))
    for name in COUNTERS:
        value = state[name]
        if type(value) is not int or not 0 <= value <= LARGEST_COUNT:
            raise StateError(f"progress_state[{name!r}] is {describe(value)}, no count; the state is damaged")
    remaining: Any = state[PROGRESS]
    if type(remaining) not in (int, float) or not 0 <= remaining <= 1:
        raise StateError(
            f"progress_state[{PROGRESS!r}] is {describe(remaining)}, no number from 0 to 1; the state is damaged"
        )
    infos, successes = (state[name] for name in WINDOWS)
    if infos is not None and not _are_episodes(infos):
        raise StateError(
            "progress_state['ep_info_buffer'] must be None or a list of dicts with a number for 'r' and 'l'; the state "
            "is damaged"
        )
    if successes is not None and not (isinstance(successes, list) and _have_mean(successes)):
        raise StateError("progress_state['ep_success_buffer'] must be None or a list of numbers; the state is damaged")


def _are_episodes(infos: object) -> bool:
    """Whether the logger can average returns and lengths."""
    if not isinstance(infos, list) or not all(isinstance(info, dict) for info in infos):
        return False
    return all(_have_mean([info.get(name) for info in infos]) for name in ("r", "l"))


def _have_mean(values: list[Any]) -> bool:
    """Whether they are numbers, or lists of one shape, as arrays are saved."""
    shapes = {_shape(value) for value in values}
    return None not in shapes and len(shapes) < 2


def _shape(value: object) -> tuple[int, ...] | None:
    """Of a number or nested lists; None if it is neither, or the lists have several shapes or nothing in them."""
    if not isinstance(value, list):
        return () if _is_number(value) else None
    shapes = {_shape(each) for each in value}
    first = shapes.pop() if len(shapes) == 1 else None
    return None if first is None else (len(value), *first)


def _is_number(value: object) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and abs(value) <= LARGEST_COUNT)


def check_lstm(state: StateDict, observation_space: spaces.Space[Any], lstm: tuple[int, int]) -> None:
    """LSTM states, observations and episode starts must be of one number of environments and of this network.

    :param lstm: number of layers and hidden size
    """
    require_keys("lstm_state", state, ("actor", "critic", "observations", "original_observations", "episode_starts"))
    starts = state["episode_starts"]
    if not isinstance(starts, Tensor) or starts.dim() != 1 or not bool(((starts == 0) | (starts == 1)).all()):
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
    if not isinstance(value, Tensor) or tuple(value.shape) != shape or not value.is_floating_point():
        raise StateError(f"{name} is {describe(value)}, the model's has shape {shape}; the state is of another model")
    if not bool(value.isfinite().all()):
        raise StateError(f"{name} holds NaN or infinity, which would reach every action; the state is damaged")


def check_generators(state: StateDict) -> None:
    """The states of the generators must be ones that generators of their kinds take."""
    require_keys("rng_state", state, ("python", "numpy", "torch", "cuda"))
    fields: Any = state
    try:
        _check_positions(fields)
        version, internal, gauss = fields["python"]
        random.Random().setstate((version, tuple(internal), gauss))
        keys, position, has_gauss, cached = fields["numpy"]
        np.random.RandomState().set_state(("MT19937", keys.numpy().astype(np.uint32), position, has_gauss, cached))
        torch.Generator().set_state(fields["torch"].cpu())
        sizes = {tensor.numel() for tensor in fields["cuda"]}
    except (TypeError, ValueError, RuntimeError, AttributeError, OverflowError, LookupError) as error:
        raise StateError(f"rng_state is none that a generator takes ({error}); the state is damaged") from error
    if len(sizes) > 1:
        raise StateError("rng_state['cuda'] holds states of different sizes; the state is damaged")


def _check_positions(fields: Mapping[str, Any]) -> None:
    """What the generators take without a look: NumPy would read beyond its keys."""
    gauss, (keys, position, has_gauss, cached) = fields["python"][2], fields["numpy"]
    in_keys = keys.shape == (624,) and type(position) is int and 0 <= position <= len(keys)
    if not in_keys or type(has_gauss) is not int or type(cached) is not float or type(gauss) not in (float, type(None)):
        raise ValueError("a position, a flag or a kept number is none")


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
