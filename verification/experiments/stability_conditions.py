"""How even the steps of training are, under other conditions than those of `verification.experiments.stability`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlcore import DistributionalPPO
from rlverify import experiment
from verification.experiments.second_environment import in_drift
from verification.experiments.stability import GRID, compared, model_of, step_lengths, unevenness
from verification.probes.make import Make


@experiment("stability-under-sgd-longer")
def longer_under_sgd(make: Make, seed: int) -> Mapping[str, float]:
    """See `early_and_late`."""
    return early_and_late(make, seed, "sgd")


@experiment("stability-under-adam-longer")
def longer_under_adam(make: Make, seed: int) -> Mapping[str, float]:
    """See `early_and_late`."""
    return early_and_late(make, seed, "adam")


@experiment("stability-under-upgd-longer")
def longer_under_upgd(make: Make, seed: int) -> Mapping[str, float]:
    """See `early_and_late`."""
    return early_and_late(make, seed, "upgd")


@experiment("stability-under-adaptive-upgd-longer")
def longer_under_adaptive_upgd(make: Make, seed: int) -> Mapping[str, float]:
    """See `early_and_late`."""
    return early_and_late(make, seed, "adaptive_upgd")


@experiment("stability-under-sgd-drift")
def sgd_in_drift(make: Make, seed: int) -> Mapping[str, float]:
    """In Drift."""
    return compared(in_drift(make), seed, "sgd")


@experiment("stability-under-adam-drift")
def adam_in_drift(make: Make, seed: int) -> Mapping[str, float]:
    """In Drift."""
    return compared(in_drift(make), seed, "adam")


@experiment("stability-under-upgd-drift")
def upgd_in_drift(make: Make, seed: int) -> Mapping[str, float]:
    """In Drift."""
    return compared(in_drift(make), seed, "upgd")


@experiment("stability-under-adaptive-upgd-drift")
def adaptive_upgd_in_drift(make: Make, seed: int) -> Mapping[str, float]:
    """In Drift."""
    return compared(in_drift(make), seed, "adaptive_upgd")


def early_and_late(make: Make, seed: int, optimizer: str) -> Mapping[str, float]:
    """The first half of the steps that `compared` counts, and as many updates again after all of these."""
    without = _parts(model_of(make, seed, optimizer, variance_gradient_scaling=False))
    changes = []
    for estimator, normalization in GRID:
        scaled = _parts(model_of(make, seed, optimizer, vgs_estimator=estimator, vgs_normalization=normalization))
        changes.append([100.0 * (1.0 - with_it / plain) for with_it, plain in zip(scaled, without, strict=True)])
    early, late = np.mean(changes, axis=0)
    return {"unevenness lowered, half": float(early), "unevenness lowered, later": float(late)}


def _parts(model: DistributionalPPO) -> Sequence[Any]:
    lengths = step_lengths(model)
    return [unevenness(lengths[: len(lengths) // 2]), unevenness(step_lengths(model))]
