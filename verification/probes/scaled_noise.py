"""Effects of noise of a fixed size on training with scaled gradients, on a quadratic loss with noisy gradients.

The document gives no measure of instability or sensitivity. Ours is the distance between weights and optimum after the
weights have settled.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rlverify import Observation, probe
from verification.probes.make import Make

SIZE, STEPS, SETTLED = 256, 300, 200
LR, SPREAD, FACTOR = 0.5, 0.1, 0.1
"""Learning rate; standard deviation of the gradients over time; scaling factor."""
LOUD, QUIET = SPREAD, SPREAD / 10
"""Sigma of the optimizer: equal to the standard deviation of the gradients, and a tenth of it."""


@probe("noise-beside-scaled-gradients-unsettles")
def noise_beside_scaled_gradients_unsettles(make: Make, seed: int) -> Sequence[Observation]:
    """Compare the distance from the optimum with noise and scaling to the distance with neither."""
    both = kept(make, seed, LOUD, FACTOR)
    ratio = both / kept(make, seed, 0.0, 1.0)
    found = "above 2" if ratio > 2 else "at most 2"
    near = "below 0.25" if both < 1 / 4 else "at least 0.25"
    return [
        Observation(
            "distance from the optimum, noise and scaling / neither",
            "above 2",
            found,
            ratio > 2,
        ),
        Observation("distance from the optimum, noise and scaling; initially 1", "below 0.25", near, both < 1 / 4),
    ]


@probe("noise-and-scaling-both-steady")
def noise_and_scaling_both_steady(make: Make, seed: int) -> Sequence[Observation]:
    """Compare the speed with and without noise, and the distance from the optimum with either and with neither."""
    steps = [halfway(make, seed, sigma, FACTOR) for sigma in (LOUD, 0.0)]
    same = abs(steps[0] / steps[1] - 1) < 1 / 5
    found = "0.8 to 1.2" if same else "other"
    neither = kept(make, seed, 0.0, 1.0)
    return [
        Observation("steps to half the distance, with noise / without", "0.8 to 1.2", found, same),
        _smaller(
            "distance from the optimum, scaling compared with neither",
            kept(make, seed, 0.0, FACTOR),
            neither,
        ),
        _smaller("distance from the optimum, noise compared with neither", kept(make, seed, LOUD, 1.0), neither),
    ]


@probe("scaling-makes-sigma-matter")
def scaling_makes_sigma_matter(make: Make, seed: int) -> Sequence[Observation]:
    """Multiply the noise by ten, without and with scaling, and compare the distances from the optimum."""
    plain, scaled = (kept(make, seed, LOUD, each) / kept(make, seed, QUIET, each) for each in (1.0, FACTOR))
    found = ["below 2" if plain < 2 else "at least 2", "above 5" if scaled > 5 else "at most 5"]
    return [
        Observation("distance from the optimum at 10 sigma / at sigma, unscaled", "below 2", found[0], plain < 2),
        Observation("distance from the optimum at 10 sigma / at sigma, scaled", "above 5", found[1], scaled > 5),
    ]


def _smaller(symptom: str, one: float, other: float) -> Observation:
    return Observation(symptom, "smaller", "smaller" if one < other else "larger", one < other)


def kept(make: Make, seed: int, sigma: float, factor: float) -> float:
    """Root mean square of the weights, averaged over the steps after they have settled."""
    return float(torch.stack(_distances(make, seed, sigma, factor)[SETTLED:]).mean())


def halfway(make: Make, seed: int, sigma: float, factor: float) -> int:
    return 1 + next(step for step, each in enumerate(_distances(make, seed, sigma, factor)) if each < 1 / 2)


def _distances(make: Make, seed: int, sigma: float, factor: float) -> list[Tensor]:
    """Distance of the weights from the optimum after each step of UPGD; initially 1."""
    # Not the seed of the optimizer's noise, which would then be that of the gradients.
    generator = torch.Generator().manual_seed(seed + 10_000)
    torch.manual_seed(seed)
    weights = nn.Parameter(torch.ones(SIZE, dtype=torch.float64))
    optimizer = dict(make.optimizers)["UPGD"]([weights], lr=LR, weight_decay=0.0, sigma=sigma)  # type: ignore[call-arg]
    distances = []
    for _ in range(STEPS):
        noise = SPREAD * torch.randn(SIZE, dtype=torch.float64, generator=generator)
        weights.grad = factor * (weights.detach() + noise)
        optimizer.step()
        distances.append(weights.detach().square().mean().sqrt())
    return distances
