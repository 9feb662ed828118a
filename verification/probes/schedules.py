"""Which entropy coefficient the loss uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stable_baselines3.common.logger import Logger

from rlverify import Observation, probe
from verification.probes.make import Make

CASES: tuple[tuple[str, dict[str, float], float], ...] = (
    ("ent_coef=0", {"ent_coef": 0.0}, 0.0),
    ("default settings", {}, 0.0),
    ("ent_coef_initial=0.01, ent_coef_final=0", {"ent_coef_initial": 0.01, "ent_coef_final": 0.0}, 0.0),
    ("ent_coef=0.01", {"ent_coef": 0.01}, 0.01),
    ("ent_coef_min=0.004", {"ent_coef_initial": 0.01, "ent_coef_final": 0.0, "ent_coef_min": 0.004}, 0.004),
)
"""The settings, and the coefficient that they give at the end of the schedule."""


@probe("entropy-coefficient-asked-for-trains")
def entropy_coefficient_asked_for_trains(make: Make, seed: int) -> Sequence[Observation]:
    """Train one update that covers the whole schedule. Compute the coefficient from the logged loss terms."""
    return [_trained(make, seed, *case) for case in CASES]


def _trained(make: Make, seed: int, case: str, settings: Mapping[str, Any], asked: float) -> Observation:
    model = make.model(seed, n_epochs=1, batch_size=96, **settings)
    model.set_logger(Logger(None, []))
    model.learn(96, log_interval=1000)
    found = round(_coefficient(model.logger.name_to_value, model.vf_coef), 5) + 0.0  # no -0
    symptom = f"entropy coefficient in the loss at the end of the schedule, {case}"
    return Observation(symptom, f"{asked:g}", f"{found:g}", holds=abs(found - asked) < 1e-4)


def _coefficient(logged: Mapping[str, Any], vf_coef: float) -> float:
    """The weight of the entropy term, positive if it lowers the loss. The entropy of discrete actions is above 0."""
    rest = logged["train/policy_gradient_loss"] + vf_coef * logged["train/value_loss"]
    return float((rest - logged["train/loss"]) / abs(logged["train/entropy_loss"]))


DECAYED: dict[str, Any] = {"ent_coef_initial": 0.01, "ent_coef_final": 0.0, "ent_coef_min": 0.004}
BOOSTED: dict[str, Any] = {
    "ent_coef_boost": 2.0,
    "ent_coef_plateau_explained_variance": 1.0,
    "ent_coef_plateau_patience": 1,
}
"""With these settings, every update counts as a plateau."""


@probe("the-entropy-coefficient-is-floored-then-boosted")
def the_entropy_coefficient_is_floored_then_boosted(make: Make, seed: int) -> Sequence[Observation]:
    """Train one update that covers the whole schedule, so that the coefficient decays below its floor."""
    return [
        _trained(make, seed, "decayed below a floor of 0.004", DECAYED, 0.004),
        _trained(make, seed, "decayed below a floor of 0.004 and boosted twofold", {**DECAYED, **BOOSTED}, 0.008),
        _trained(make, seed, "0.01 boosted twofold", {"ent_coef": 0.01, **BOOSTED}, 0.02),
    ]
