"""Effects of mutated hyperparameters on the distance between twin critics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from rlcore import SettingError, set_hyperparameters
from rlverify import Observation, probe
from verification.probes.make import Make, equal

ROLLOUT, ROLLOUTS = 96, 12
APART, TOGETHER = "more than 2 times the distance without it", "at most 2 times the distance without it"
LOST = "further apart than their mean value has moved"
MUTATIONS: dict[str, dict[str, Any]] = {
    "vf_coef 0.5 -> 5": {"vf_coef": 5.0},
    "learning_rate 2e-3 -> 6e-3": {"learning_rate": 6e-3},
    "learning_rate 2e-3 -> 4e-4": {"learning_rate": 4e-4},
}
"""Larger than a perturbation by 1.2; a new draw from the range can give them."""
CATEGORICAL: dict[str, Any] = {"value_distribution": "categorical", "num_atoms": 11, "v_min": -10.0, "v_max": 10.0}


@probe("twins-diverge-under-mutation")
def twins_diverge_under_mutation(make: Make, seed: int) -> Sequence[Observation]:
    """Mutate hyperparameters of both critics. Document 000 expects that one mutation drives them apart."""
    ends = _ends(make, seed, expected=APART)
    found = next((each.roughly for each in ends if each.holds), TOGETHER)
    measured = "; ".join(f"{each.symptom}: {each.after}" for each in ends)
    symptom = f"distance of the twins after the worst of {len(ends)} mutations"
    return [Observation(symptom, APART, measured, found == APART, roughly=found)]


@probe("twins-stay-together-under-mutation")
def twins_stay_together_under_mutation(make: Make, seed: int) -> Sequence[Observation]:
    """Mutate hyperparameters of both critics. Document 001 expects that they stay together."""
    return _ends(make, seed, expected=TOGETHER)


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
        found = "accepted" if seen == value else "accepted, but not used"
    return equal(f"{name} mutated", "refused by name", found)


def _ends(make: Make, seed: int, expected: str) -> Sequence[Observation]:
    """Distance of the twins after each mutation, relative to the same run without one."""
    unmutated, _ = twin_distance(make, seed, {})
    observations = []
    for name, mutation in MUTATIONS.items():
        distance, way = twin_distance(make, seed, mutation)
        found = APART if distance > 2 * unmutated else LOST if distance > way else TOGETHER
        measured = f"{distance / unmutated:.1f} times that without it, {distance / way:.1f} times their mean's way"
        symptom = f"distance of the twins after {name}"
        observations.append(Observation(symptom, expected, measured, found == expected, roughly=found))
    return observations


class _Distances(BaseCallback):
    """Records the distance of the twins' values, and their mean, in every rollout."""

    def __init__(self) -> None:
        super().__init__()
        self.distances: list[float] = []
        self.means: list[float] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        values = self.model.rollout_buffer.critic_values  # type: ignore[attr-defined]
        self.distances.append(float(np.abs(np.diff(values, axis=-1)).mean()))
        self.means.append(float(values.mean()))


def twin_distance(make: Make, seed: int, mutation: Mapping[str, Any], rollouts: int = ROLLOUTS) -> tuple[float, float]:
    """Mean distance of the twins over the rollouts after the mutation, and how far their mean value moved meanwhile."""
    model = make.model(seed, n_epochs=6)
    model.learn(ROLLOUT)
    if mutation:
        set_hyperparameters(model, mutation)
    seen = _Distances()
    model.learn(rollouts * ROLLOUT, reset_num_timesteps=False, callback=seen)
    return float(np.mean(seen.distances)), abs(seen.means[-1] - seen.means[0])
