"""Slow float64 oracle of the variance gradient scaler, written from the definitions and not from the recursions.

A history is an array ``[t, n]``: the gradients of one tensor of n elements in the t steps in which it had one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def time_weights(steps: int, beta: float) -> Array:
    """Exponential weights ``[steps]``, the newest step last, that sum to 1."""
    weights = np.array([beta ** (steps - 1 - step) for step in range(steps)])
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def time_mean(history: Array, beta: float) -> Array:
    """``E_t``: weighted mean over the first axis."""
    return np.tensordot(time_weights(len(history), beta), history, axes=1)


def time_variance(history: Array, beta: float) -> Array:
    """``Var_t``: weighted population variance over the first axis."""
    return time_mean((history - time_mean(history, beta)) ** 2, beta)


def variance_of_mean(history: Array, beta: float) -> float:
    """M = Var_t[mean_s g]."""
    return float(time_variance(history.mean(axis=1), beta))


def spatial_variance(history: Array, beta: float) -> float:
    """S = E_t[Var_s g]."""
    return float(time_mean(history.var(axis=1), beta))


def total_variance(history: Array, beta: float) -> float:
    """T = E_t[mean_s g^2] - (E_t[mean_s g])^2, computed as the mean squared distance from the mean over all."""
    center = time_mean(history.mean(axis=1), beta)
    return float(time_mean(((history - center) ** 2).mean(axis=1), beta))


def element_variance(history: Array, beta: float) -> float:
    """E = mean_s Var_t[g]."""
    return float(time_variance(history, beta).mean())


ESTIMATES = {
    "mean": variance_of_mean,
    "spatial": spatial_variance,
    "total": total_variance,
    "element": element_variance,
}


def normalized_variance(
    histories: Sequence[Array],
    *,
    beta: float = 0.99,
    eps: float = 1e-8,
    estimator: str = "mean",
    normalization: str = "squared_mean",
    max_normalized_variance: float = 100.0,
) -> float:
    """90th percentile over the tensors of min(variance / (denominator + eps), cap)."""
    ratios = []
    for history in histories:
        if normalization == "squared_mean":
            denominator = float(time_mean(history.mean(axis=1), beta)) ** 2
        else:
            denominator = float(time_mean((history**2).mean(axis=1), beta))
        ratios.append(min(ESTIMATES[estimator](history, beta) / (denominator + eps), max_normalized_variance))
    ratios.sort()
    rank = 0.9 * (len(ratios) - 1)
    below, above = ratios[int(rank)], ratios[min(int(rank) + 1, len(ratios) - 1)]
    return below + (rank - int(rank)) * (above - below)


def scaling_factor(value: float, *, alpha: float = 0.1, min_scaling_factor: float = 0.1) -> float:
    """max(floor, 1 / (1 + alpha * nv))."""
    return max(min_scaling_factor, 1.0 / (1.0 + alpha * value))
