"""What noise of a fixed size beside scaled gradients does to training, on the simplest loss that has an optimum.

A quadratic with noisy gradients. The document has no measure of how unstable training is, or how sensitive; ours is the
distance that weights keep from the optimum once they are there.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rlverify import Observation, probe
from verification.probes.make import Make

SIZE, STEPS, SETTLED = 256, 300, 200
LR, SPREAD, FACTOR = 0.5, 0.1, 0.1
"""Of the optimizer; of the gradients from step to step; by which they are scaled."""
LOUD, QUIET = SPREAD, SPREAD / 10
"""Noise of the optimizer: as loud as that of the gradients, and a tenth of it."""


@probe("noise-beside-scaled-gradients-unsettles")
def noise_beside_scaled_gradients_unsettles(make: Make, seed: int) -> Sequence[Observation]:
    """The distance that weights keep with noise and scaling, beside that with neither."""
    both = kept(make, seed, LOUD, FACTOR)
    ratio = both / kept(make, seed, 0.0, 1.0)
    found = "more than twice" if ratio > 2 else "less"
    near = "near the optimum" if both < 1 / 4 else "away"
    return [
        Observation("distance kept with noise and scaling, of that with neither", "more than twice", found, ratio > 2),
        Observation("weights with noise and scaling, begun at 1", "near the optimum", near, both < 1 / 4),
    ]


@probe("noise-and-scaling-both-steady")
def noise_and_scaling_both_steady(make: Make, seed: int) -> Sequence[Observation]:
    """The way to the optimum with noise, and the distance kept with either alone beside that with neither."""
    ways = [halfway(make, seed, sigma, FACTOR) for sigma in (LOUD, 0.0)]
    same = abs(ways[0] / ways[1] - 1) < 1 / 5
    neither = kept(make, seed, 0.0, 1.0)
    return [
        Observation("steps to halfway, with noise beside without", "as many", "as many" if same else "others", same),
        _smaller("distance kept with scaling alone, of that with neither", kept(make, seed, 0.0, FACTOR), neither),
        _smaller("distance kept with noise alone, of that with neither", kept(make, seed, LOUD, 1.0), neither),
    ]


@probe("scaling-makes-sigma-matter")
def scaling_makes_sigma_matter(make: Make, seed: int) -> Sequence[Observation]:
    """What ten times the noise does to the distance kept, without and with scaling."""
    plain, scaled = (kept(make, seed, LOUD, each) / kept(make, seed, QUIET, each) for each in (1.0, FACTOR))
    found = ["less than twice" if plain < 2 else "more", "more than five times" if scaled > 5 else "less"]
    return [
        Observation("distance kept at ten times sigma, gradients as they are", "less than twice", found[0], plain < 2),
        Observation("distance kept at ten times sigma, scaled", "more than five times", found[1], scaled > 5),
    ]


def _smaller(symptom: str, one: float, other: float) -> Observation:
    return Observation(symptom, "smaller", "smaller" if one < other else "larger", one < other)


def kept(make: Make, seed: int, sigma: float, factor: float) -> float:
    """The root mean square of the weights over the steps after which they have settled."""
    return float(torch.stack(_distances(make, seed, sigma, factor)[SETTLED:]).mean())


def halfway(make: Make, seed: int, sigma: float, factor: float) -> int:
    return 1 + next(step for step, each in enumerate(_distances(make, seed, sigma, factor)) if each < 1 / 2)


def _distances(make: Make, seed: int, sigma: float, factor: float) -> list[Tensor]:
    """How far the weights are from the optimum after each step of UPGD, begun at 1."""
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
