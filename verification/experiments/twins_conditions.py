"""The overestimation by critics after other numbers of updates, and in a second environment."""

from __future__ import annotations

from collections.abc import Mapping

from rlverify import experiment
from verification.experiments.second_environment import in_drift
from verification.experiments.training import untrained
from verification.experiments.twins import UNCHANGING, UPDATES, overestimation, played, take_the_first
from verification.probes.make import Make


@experiment("overestimation-by-critics-longer")
def longer(make: Make, seed: int) -> Mapping[str, float]:
    """In CartPole, after half, twice and more than three times as many updates."""
    return estimates(make, seed, {"half": UPDATES // 2, "double": 2 * UPDATES, "longest": 40})


@experiment("overestimation-by-critics-drift")
def in_the_second_environment(make: Make, seed: int) -> Mapping[str, float]:
    """In Drift."""
    return estimates(in_drift(make), seed, {"same": UPDATES, "double": 2 * UPDATES})


def estimates(make: Make, seed: int, lengths: Mapping[str, int]) -> Mapping[str, float]:
    """Values beside the returns that followed, once that many updates were made.

    :param lengths: numbers of updates by their names, the smallest first
    """
    smaller, first = untrained(make, seed, **UNCHANGING), untrained(make, seed, **UNCHANGING)
    take_the_first(first)
    for model in (smaller, first):
        model.set_random_seed(seed)
    quantities, made = {}, 0
    for name, updates in lengths.items():
        for model in (smaller, first):
            model.learn((updates - made) * model.n_steps * model.n_envs, reset_num_timesteps=False)
        made = updates
        of_smaller, of_first = (played(make, seed, model) for model in (smaller, first))
        by_first = overestimation(of_first, of_first.critic_values(0)[:, 0])
        by_smaller = overestimation(of_smaller, of_smaller.values(0))
        quantities[f"overestimation by the first critic, {name}"] = by_first
        quantities[f"overestimation lowered, {name}"] = by_first - by_smaller
    return quantities
