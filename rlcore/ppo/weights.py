"""Compare saved weights with a network; nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from rlcore.errors import ResumeWarning, StateError
from rlcore.state.tree import SAME, fit
from rlcore.types import StateDict
from rlcore.warn import warn_caller

SUPPORT = "value_support"
"""The buffer of a policy that holds the atoms of its critics, where they have any."""


def check_policy(state: StateDict, expected: Mapping[str, Tensor]) -> None:
    """Compare saved parameters with the model's: names, shapes, kinds of number, finite values, and the same atoms.

    :raises StateError: for the first that does not fit
    """
    if (SUPPORT in state) != (SUPPORT in expected):
        meant, read_as = ("atoms", "quantiles") if SUPPORT in state else ("quantiles", "atoms")
        raise StateError(
            f"the critics' outputs are about {meant}, and the model would read them as {read_as}; use the same "
            "value_distribution on both sides"
        )
    fit(state, expected, "policy", {SUPPORT: SAME})


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
