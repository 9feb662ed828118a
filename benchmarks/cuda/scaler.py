"""What variance gradient scaling adds to the end of an update: clipping the gradients and the optimizer's step."""

from __future__ import annotations

import math
from itertools import cycle
from typing import Any

import torch

from benchmarks.cuda.plan import Plan, Shapes, parameters
from benchmarks.cuda.sizes import compared_by_size
from benchmarks.cuda.timing import Action, Budget, Record
from rlcore import AdaptiveUPGD, VarianceGradientScaler
from rlcore.ppo.losses import clip_norm

REFERENCES = {"off": "off"}
LARGEST_NORM = 0.5


def ends_of_updates(shapes: Shapes, device: torch.device) -> dict[str, Action]:
    """Fresh gradients, scaling or none, clipping, step."""
    return {
        "off": _end_of_update(shapes, device, None),
        "on, estimator mean": _end_of_update(shapes, device, "mean"),
        "on, estimator element": _end_of_update(shapes, device, "element"),
    }


def _end_of_update(shapes: Shapes, device: torch.device, estimator: Any) -> Action:
    own = parameters(shapes, device)
    gradients = [parameter.grad for parameter in own if parameter.grad is not None]
    raw = [gradient.clone() for gradient in gradients]
    changing = cycle([raw, [-0.5 * gradient for gradient in raw]])  # a variance of 0 would need no scaling
    named = [(f"parameter {index}", parameter) for index, parameter in enumerate(own)]
    optimizer = AdaptiveUPGD(own, lr=1e-4, seed=0)
    scaler = None if estimator is None else VarianceGradientScaler(named, estimator=estimator, warmup_steps=1)

    def end_of_update() -> None:
        torch._foreach_copy_(gradients, next(changing))
        if scaler is not None:
            scaler.scale_gradients()
        clip_norm(named, LARGEST_NORM, math.inf if scaler is None else scaler.measured_norm)
        optimizer.step()
        if scaler is not None:
            scaler.step()

    return end_of_update


def measure(plan: Plan, device: torch.device, budget: Budget) -> list[Record]:
    """One comparison for each size."""
    return compared_by_size(ends_of_updates, REFERENCES, plan, device, budget)
