"""Known bugs of the optimizers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from rlcore.functional.utility import UtilityExtremes
from verification.faults import fault, healthy


def _unguarded_gate(utility: Tensor, extremes: UtilityExtremes) -> Tensor:
    """sigmoid(u / max u), whatever the maximum: 0/0 where every utility is 0."""
    return torch.sigmoid(utility / extremes.maximum)


@fault("bug-05-zero-over-zero", target="rlcore.optim.upgd:UtilityGatedOptimizer._protection", pins="00540e0dfa1d4ef4")
def zero_over_zero(self: Any, utility: Tensor, extremes: UtilityExtremes) -> Tensor:  # noqa: ARG001
    """No guard, in any of the optimizers."""
    return _unguarded_gate(utility, extremes)


@fault("bug-05-fixed-in-upgd-only", target="rlcore.optim.upgd:AdaptiveUPGD._protection", pins="00540e0dfa1d4ef4")
def fixed_in_upgd_only(self: Any, utility: Tensor, extremes: UtilityExtremes) -> Tensor:  # noqa: ARG001
    """UPGD got its guard, AdaptiveUPGD did not."""
    return _unguarded_gate(utility, extremes)


@fault(
    "bug-06-maximum-starts-at-minus-infinity",
    target="rlcore.functional.utility:utility_extremes",
    pins="919e2b1b80352f1d",
)
def maximum_starts_at_minus_infinity(utilities: Sequence[Tensor]) -> UtilityExtremes:
    """The maximum begins at -inf and rises tensor by tensor, as the published implementation has it."""
    extremes: UtilityExtremes = healthy("bug-06-maximum-starts-at-minus-infinity")(utilities)
    start = torch.full_like(utilities[0].new_empty(()), -torch.inf)
    return replace(extremes, maximum=reduce(torch.maximum, (each.max().to(start.device) for each in utilities), start))
