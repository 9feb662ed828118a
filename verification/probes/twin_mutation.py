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
MUTATIONS: dict[str, dict[str, Any]] = {
    "vf_coef 0.5 -> 5": {"vf_coef": 5.0},
    "learning_rate 2e-3 -> 6e-3": {"learning_rate": 6e-3},
    "learning_rate 2e-3 -> 4e-4": {"learning_rate": 4e-4},
}
"""Further than a perturbation by 1.2 goes; drawing anew may lead there."""
CATEGORICAL: dict[str, Any] = {"value_distribution": "categorical", "num_atoms": 11, "v_min": -10.0, "v_max": 10.0}


@probe("twins-diverge-under-mutation")
def twins_diverge_under_mutation(make: Make, seed: int) -> Sequence[Observation]:
    """Mutate what both critics are trained with, as document 000 expects it to end."""
    return _ends(make, seed, tuple(MUTATIONS), expected="apart")


@probe("twins-stay-together-under-mutation")
def twins_stay_together_under_mutation(make: Make, seed: int) -> Sequence[Observation]:
    """Mutate what both critics are trained with, as document 001 expects it to end."""
    return _ends(make, seed, ("vf_coef 0.5 -> 5", "learning_rate 2e-3 -> 6e-3"), expected="together")


@probe("atoms-do-not-change-in-a-live-model")
def atoms_do_not_change_in_a_live_model(make: Make, seed: int) -> Sequence[Observation]:
    """Mutate the support of categorical values in a model that exists."""
    model = make.model(seed, **CATEGORICAL, n_quantiles=32)
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


def _ends(make: Make, seed: int, names: Sequence[str], expected: str) -> Sequence[Observation]:
    """How twins end after each mutation, with the same run without one beside it."""
    unmutated = _distance(make, seed, {})
    observations = []
    for name in names:
        distance = _distance(make, seed, MUTATIONS[name])
        end = "apart" if distance > 1.0 else "together"
        found = f"{end}, at {distance:.1f} of their way; unmutated at {unmutated:.1f}"
        observations.append(Observation(f"twins after {name}", expected, found, end == expected))
    return observations


def _distance(make: Make, seed: int, mutation: Mapping[str, Any]) -> float:
    """How far the twins' values end from each other, as a share of how far they have come since the mutation."""
    model = make.model(seed, n_epochs=6)
    model.learn(ROLLOUT)
    start = model.rollout_buffer.critic_values.mean()
    if mutation:
        set_hyperparameters(model, mutation)
    model.learn(4 * ROLLOUT, reset_num_timesteps=False)
    values = model.rollout_buffer.critic_values
    return float(np.abs(np.diff(values, axis=-1)).mean() / abs(values.mean() - start))
