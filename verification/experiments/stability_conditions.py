"""How even the steps of training are, under other conditions than those of `verification.experiments.stability`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlcore import DistributionalPPO
from rlverify import experiment
from verification.experiments.second_environment import in_drift
from verification.experiments.stability import GRID, RATES, compared, model_of, step_lengths, unevenness
from verification.probes.make import Make


def early_and_late(make: Make, seed: int, optimizer: str) -> Mapping[str, float]:
    """The first half of the steps that `compared` counts, and as many updates again after all of these."""
    without = _parts(model_of(make, seed, optimizer, variance_gradient_scaling=False))
    changes = []
    for estimator, normalization in GRID:
        scaled = _parts(model_of(make, seed, optimizer, vgs_estimator=estimator, vgs_normalization=normalization))
        changes.append([100.0 * (1.0 - with_it / plain) for with_it, plain in zip(scaled, without, strict=True)])
    early, late = np.mean(changes, axis=0)
    return {"unevenness lowered, half": float(early), "unevenness lowered, later": float(late)}


def _registered(optimizer: str) -> None:
    name = optimizer.replace("_", "-")
    experiment(f"stability-under-{name}-longer")(lambda make, seed: early_and_late(make, seed, optimizer))
    experiment(f"stability-under-{name}-drift")(lambda make, seed: compared(in_drift(make), seed, optimizer))


for _optimizer in RATES:
    _registered(_optimizer)


def _parts(model: DistributionalPPO) -> Sequence[Any]:
    lengths = step_lengths(model)
    return [unevenness(lengths[: len(lengths) // 2]), unevenness(step_lengths(model))]
