"""Whether variance gradient scaling evens out the steps of training, by optimizer, estimator and normalisation.

How uneven steps are is the mean magnitude of the logarithm of the length of each over that of the one before it: steps
that are smaller throughout, or grow as a policy learns, are not uneven for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Final, get_args

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector

from rlcore import DistributionalPPO
from rlcore.optim.gradient_variance import Estimator, Normalization
from rlverify import experiment
from verification.experiments.training import untrained, update
from verification.probes.make import Make

SETTINGS: Final[Mapping[str, Any]] = {"n_steps": 32, "batch_size": 128, "return_scale": "zero_lag"}
UPDATES: Final = 9
WARM_UP: Final = 32
"""Of 144 optimizer steps; they are counted neither with scaling nor without."""

RATES: Final = {"sgd": 0.5, "adam": 2e-3, "upgd": 1.0, "adaptive_upgd": 2e-3}
"""Learning rates with which CartPole is learnt within these steps."""

GRID: Final = tuple(product(get_args(Estimator), get_args(Normalization)))


def compared(make: Make, seed: int, optimizer: str) -> Mapping[str, float]:
    """The same run without scaling and with each kind of it.

    :return: how much less uneven the steps are with it, in % of that without; of all kinds together and of each
    """
    without = unevenness(step_lengths(model_of(make, seed, optimizer, variance_gradient_scaling=False)))
    lowered = {}
    for estimator, normalization in GRID:
        scaled = model_of(make, seed, optimizer, vgs_estimator=estimator, vgs_normalization=normalization)
        change = 1.0 - unevenness(step_lengths(scaled)) / without
        lowered[f"unevenness lowered, {estimator}, {normalization}"] = 100.0 * change
    return {"unevenness lowered": float(np.mean(list(lowered.values()))), **lowered}


def _registered(optimizer: str) -> None:
    name = optimizer.replace("_", "-")
    experiment(f"stability-under-{name}")(lambda make, seed: compared(make, seed, optimizer))


for _optimizer in RATES:
    _registered(_optimizer)


def model_of(make: Make, seed: int, optimizer: str, **scaling: Any) -> DistributionalPPO:
    """A model that trains with that optimizer, and with scaling unless told otherwise."""
    settings = {**SETTINGS, "vgs_warmup_steps": WARM_UP, **scaling}
    return untrained(make, seed, optimizer_class=optimizer, learning_rate=RATES[optimizer], **settings)


def step_lengths(model: DistributionalPPO) -> list[float]:
    """Train, and measure how far all parameters together move in each step after the warm-up."""
    lengths: list[float] = []
    optimize = model._optimize

    def measured(loss: torch.Tensor) -> float:
        before = _position(model)
        factor = optimize(loss)
        lengths.append(float(torch.linalg.vector_norm(_position(model) - before)))
        return factor

    model._optimize = measured  # type: ignore[method-assign]
    for _ in range(UPDATES):
        update(model)
    return lengths[WARM_UP:]


def unevenness(lengths: Sequence[float]) -> float:
    """Of the lengths of successive steps; 0 where they change by nothing, and about the change where that is small."""
    return float(np.mean(np.abs(np.diff(np.log(lengths)))))


def _position(model: DistributionalPPO) -> torch.Tensor:
    return parameters_to_vector(model.policy.parameters()).detach().double()
