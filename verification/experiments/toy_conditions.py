"""Toy measurements of document 000's problems under other settings than those of their probes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rlverify import experiment
from verification.experiments.second_environment import in_drift
from verification.probes.make import Make
from verification.probes.noise_effects import measured
from verification.probes.scaled_noise import FACTOR, LOUD, QUIET, kept
from verification.probes.twin_mutation import MUTATIONS, twin_distance

DOCUMENTED_SIGMA: Final = 0.001
HALF, USUAL, DOUBLE, SHORT = 6, 12, 24, 4
"""Rollouts after a mutation."""


@experiment("noise-on-a-quadratic")
def noise_on_a_quadratic(make: Make, seed: int) -> Mapping[str, float]:
    """Distances kept from the optimum, with scaling and with noise of several sizes, beside those with neither."""
    neither = kept(make, seed, 0.0, 1.0)
    quantities = {}
    for name, sigma in (
        ("the documented sigma", DOCUMENTED_SIGMA),
        ("ten times that", QUIET),
        ("a hundred times", LOUD),
    ):
        both, alone = (kept(make, seed, sigma, factor) / neither for factor in (FACTOR, 1.0))
        quantities[f"distance with noise and scaling, {name}"] = both
        quantities[f"distance with noise alone, {name}"] = alone
    loud, quiet = (kept(make, seed, sigma, FACTOR) for sigma in (10 * DOCUMENTED_SIGMA, DOCUMENTED_SIGMA))
    return {**quantities, "distance at ten times the documented sigma, scaled": loud / quiet}


@experiment("unseen-noise-of-other-sizes")
def unseen_noise_of_other_sizes(make: Make, seed: int) -> Mapping[str, float]:
    """The variance that a scaler does not see over that of the noise, and the factor over what it would then be."""
    quantities = {}
    for sigma in (0.1, 0.2):
        before, applied = measured(make, seed, sigma)
        quantities[f"unseen variance over that of the noise, {sigma:g}"] = (
            applied["variance"] - before["variance"]
        ) / sigma**2
        quantities[f"factor over what it would be, {sigma:g}"] = before["factor"] / applied["factor"]
    return quantities


@experiment("twins-after-a-mutation")
def twins_after_a_mutation(make: Make, seed: int) -> Mapping[str, float]:
    """How far apart twins are after the worst mutation, in units of the same run without one."""
    lengths = {"four rollouts": SHORT, "half": HALF, "same": USUAL, "double": DOUBLE}
    quantities = {f"distance of twins, {name}": _worst(make, seed, rollouts) for name, rollouts in lengths.items()}
    return {**quantities, "distance of twins, Drift": _worst(in_drift(make), seed, USUAL)}


def _worst(make: Make, seed: int, rollouts: int) -> float:
    unmutated, _ = twin_distance(make, seed, {}, rollouts)
    return max(twin_distance(make, seed, mutation, rollouts)[0] / unmutated for mutation in MUTATIONS.values())
