"""Actions side by side, once for each size of the tensors that they work on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from benchmarks.cuda.plan import Plan, Shapes
from benchmarks.cuda.timing import Action, Budget, Record, comparison, side_by_side


def compared_by_size(
    make: Callable[[Shapes, torch.device], dict[str, Action]],
    references: Mapping[str, str],
    plan: Plan,
    device: torch.device,
    budget: Budget,
) -> list[Record]:
    """One comparison for each size.

    :param make: the actions on tensors of some shapes, by name
    :param references: column of the page by the name of the action that the others are compared with
    """
    records = []
    for number, (size, shapes) in enumerate(plan.tensors.items()):
        share = budget.share(len(plan.tensors) - number)
        seconds = side_by_side(make(shapes, device), device, plan.rounds, share)
        records.append(comparison(size, seconds, references, plan.rounds.planned))
    return records
