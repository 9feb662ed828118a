"""A step of UPGD and AdaptiveUPGD next to one of AdamW, in each of the ways in which torch computes it."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.cuda.plan import Plan, Shapes, parameters
from benchmarks.cuda.sizes import compared_by_size
from benchmarks.cuda.timing import Action, Budget, Record
from rlcore import UPGD, AdaptiveUPGD

REFERENCES = {"AdamW, foreach": "foreach", "AdamW, loop": "loop", "AdamW, fused": "fused"}
"""Column of the page by the name of the action."""


def steps(shapes: Shapes, device: torch.device) -> dict[str, Action]:
    """The step of each optimizer over parameters of its own."""

    def adamw(**how: Any) -> torch.optim.AdamW:
        return torch.optim.AdamW(parameters(shapes, device), lr=1e-4, **how)

    optimizers: dict[str, torch.optim.Optimizer] = {
        "UPGD": UPGD(parameters(shapes, device), lr=1e-4, seed=0),
        "AdaptiveUPGD": AdaptiveUPGD(parameters(shapes, device), lr=1e-4, seed=0),
        "AdaptiveUPGD, no noise": AdaptiveUPGD(parameters(shapes, device), lr=1e-4, sigma=0.0, seed=0),
        "AdamW, foreach": adamw(foreach=True),
        "AdamW, loop": adamw(foreach=False, fused=False),
        "AdamW, fused": adamw(fused=True),
    }
    return {name: optimizer.step for name, optimizer in optimizers.items()}


def measure(plan: Plan, device: torch.device, budget: Budget) -> list[Record]:
    """One comparison for each size."""
    return compared_by_size(steps, REFERENCES, plan, device, budget)
