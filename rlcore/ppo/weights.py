"""Whether saved weights fit a network; each check raises StateError and changes nothing."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rlcore.errors import ResumeWarning, StateError
from rlcore.state.schema import describe, read_record
from rlcore.types import StateDict
from rlcore.warn import warn_caller

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
    read_record(state, "policy", expected)
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
