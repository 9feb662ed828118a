"""What mutating hyperparameters of the critics does to twins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlcore import SettingError, set_hyperparameters
from verification.model import Observation
from verification.probes import probe
from verification.probes.make import Make

ROLLOUT = 96
FAR = 3.0
"""How many times as far apart twins have to be for it to count."""
MUTATIONS: dict[str, dict[str, Any]] = {
    "vf_coef 0.5 -> 5": {"vf_coef": 5.0},
    "learning_rate 2e-3 -> 6e-3": {"learning_rate": 6e-3},
    "learning_rate 2e-3 -> 4e-4": {"learning_rate": 4e-4},
}
"""Further than a perturbation by 1.2 goes; drawing anew may lead there."""
CATEGORICAL = {"value_distribution": "categorical", "num_atoms": 11, "v_min": -10.0, "v_max": 10.0}


@probe("twins-diverge-under-mutation")
def twins_diverge_under_mutation(make: Make, seed: int) -> Sequence[Observation]:
    """Mutate what both critics are trained with, and compare how far apart they come with an unmutated run."""
    usual, _ = _distance_and_way(make, seed, {})
    observations = []
    for name, mutation in MUTATIONS.items():
        distance, _ = _distance_and_way(make, seed, mutation)
        found = "further" if distance > FAR * usual else "no further"
        observations.append(Observation(f"twins apart after {name}", "further", found, found == "further"))
    return observations


@probe("twins-stay-together-under-mutation")
def twins_stay_together_under_mutation(make: Make, seed: int) -> Sequence[Observation]:
    """Mutate what both critics are trained with; are they closer to each other than to where they came from?"""
    observations = []
    for name in ("vf_coef 0.5 -> 5", "learning_rate 2e-3 -> 6e-3"):
        distance, way = _distance_and_way(make, seed, MUTATIONS[name])
        found = "together" if distance < way else "apart"
        observations.append(Observation(f"twins after {name}", "together", found, found == "together"))
    return observations


@probe("atoms-do-not-change-in-a-live-model")
def atoms_do_not_change_in_a_live_model(make: Make, seed: int) -> Sequence[Observation]:
    """Mutate the support of categorical values in a model that exists."""
    model = make.model(seed, **CATEGORICAL)
    return [_refused(model, name, value) for name, value in (("num_atoms", 21), ("v_min", -1.0), ("v_max", 20.0))]


def _refused(model: Any, name: str, value: float) -> Observation:
    try:
        set_hyperparameters(model, {name: value})
    except SettingError as error:
        found = "refused by name" if error.setting == name else "refused"
    else:
        used = model.policy.values
        seen = {"num_atoms": used.n_outputs, "v_min": used.v_min, "v_max": used.v_max}[name]
        found = "taken" if seen == value else "taken, and not used"
    return Observation(f"{name} mutated", "refused by name", found, found == "refused by name")


def _distance_and_way(make: Make, seed: int, mutation: Mapping[str, Any]) -> tuple[float, float]:
    """Mean distance between the twins' values at the end, and how far their mean has come meanwhile."""
    model = make.model(seed, n_epochs=6)
    model.learn(ROLLOUT)
    start = model.rollout_buffer.critic_values.mean()
    set_hyperparameters(model, mutation)
    model.learn(4 * ROLLOUT, reset_num_timesteps=False)
    values = model.rollout_buffer.critic_values
    return float(np.abs(np.diff(values, axis=-1)).mean()), float(abs(values.mean() - start))
