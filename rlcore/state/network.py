"""Builds the network of a file: without memory, to compare it with saved weights, then without what takes long."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from rlcore.checkpoint.container import unusable
from rlcore.errors import StateError
from rlcore.state.tree import Rule, fit

_COUNTS = ("n_lstm_layers", "n_critics")
"""Of layers and heads, by which the number of modules grows."""
MOST_LAYERS = 1000
"""Of a network in a file."""


def _longest(value: object) -> int:
    """Return the length of the longest list, tuple or array in a description of layers."""
    if isinstance(value, np.ndarray | Tensor):
        return int(np.prod(value.shape))
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return max([len(inside), *map(_longest, inside)])


class _Staying(TorchFunctionMode):
    """Leaves tensors where they are: those of the device ``meta`` cannot be moved to another, and have no truth."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__bool__:
            return True
        return args[0] if func is Tensor.to else func(*args, **(kwargs or {}))


class _NotOrthogonal(TorchFunctionMode):
    """Leaves weights as they were drawn where they would be made orthogonal, which takes seconds for large ones."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return (args[0], args[0]) if func is torch.linalg.qr else func(*args, **(kwargs or {}))


def quickly_drawn(algorithm: type, settings: Mapping[str, Any]) -> AbstractContextManager[object]:
    """Return a context for building a model whose weights a file replaces, so that they need not be orthogonal.

    A class of the user's may keep what no file has, so with one of them everything is built as usual.
    """
    return _NotOrthogonal() if _are_known(settings, algorithm) else nullcontext()


def _are_known(settings: Mapping[str, Any], *more: object) -> bool:
    """Return whether the classes of a model are torch's, Stable-Baselines3's and ours alone."""
    options = settings.get("policy_kwargs") or {}
    named = [settings.get("policy_class"), settings.get("policy"), *options.values(), *more]
    modules = [each.__module__ for each in named if isinstance(each, type)]
    return all(each.startswith(("rlcore.", "stable_baselines3.", "sb3_contrib.", "torch.")) for each in modules)


def require_network(
    settings: Mapping[str, Any],
    weights: object,
    build: Callable[[], nn.Module],
    rules: Mapping[str, Rule] | None = None,
) -> None:
    """Build the network without memory for its tensors, and compare it with saved weights.

    :param settings: of the model, with ``policy_kwargs`` among them
    :param weights: the saved state dict of the policy
    :param build: builds the network
    :param rules: of single weights, as for :func:`rlcore.state.tree.fit`
    :raises StateError: names, shapes or numbers do not fit
    """
    network = settings.get("policy_kwargs") or {}
    counts = [own.get(name) or 1 for name in _COUNTS for own in (network, settings)]
    layers = max([*counts, _longest(network.get("net_arch"))])
    if not isinstance(weights, dict) or layers > len(weights):
        raise StateError(f"holds no policy of the {layers} layers that policy_kwargs ask for")
    if layers > MOST_LAYERS or {"device", "dtype"} & set(network.get("lstm_kwargs") or ()):
        raise StateError(
            f"policy_kwargs ask for {layers} layers, of at most {MOST_LAYERS}, or for a device of their own"
        )
    try:
        with torch.device("meta"), _Staying(), unusable("the network of policy_kwargs, n_quantiles and num_atoms"):
            expected: dict[str, Tensor] = build().state_dict()
    except StateError:
        if _are_known(settings):
            raise
        return  # a class of the user's own that needs real tensors: the weights are compared once it is built
    fit(weights, expected, "policy", rules or {})
