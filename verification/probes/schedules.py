"""Which entropy coefficient trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stable_baselines3.common.logger import Logger

from rlverify import Observation, probe
from verification.probes.make import Make

CASES: tuple[tuple[str, dict[str, float], float], ...] = (
    ("ent_coef=0 asked", {"ent_coef": 0.0}, 0.0),
    ("nothing asked", {}, 0.0),
    ("ent_coef_initial=0.01, ent_coef_final=0 asked", {"ent_coef_initial": 0.01, "ent_coef_final": 0.0}, 0.0),
    ("ent_coef=0.01 asked", {"ent_coef": 0.01}, 0.01),
    ("a floor of 0.004 asked", {"ent_coef_initial": 0.01, "ent_coef_final": 0.0, "ent_coef_min": 0.004}, 0.004),
)
"""What is asked for, and the coefficient that follows from it at the end of the progress."""


@probe("entropy-coefficient-asked-for-trains")
def entropy_coefficient_asked_for_trains(make: Make, seed: int) -> Sequence[Observation]:
    """One update over the whole of the progress; the coefficient is worked out from the logged terms of the loss."""
    return [_trained(make, seed, *case) for case in CASES]


def _trained(make: Make, seed: int, case: str, settings: Mapping[str, Any], asked: float) -> Observation:
    model = make.model(seed, n_epochs=1, batch_size=96, **settings)
    model.set_logger(Logger(None, []))
    model.learn(96, log_interval=1000)
    found = round(_coefficient(model.logger.name_to_value, model.vf_coef), 5) + 0.0  # no -0
    symptom = f"entropy coefficient in the loss at the end of the schedule, {case}"
    return Observation(symptom, f"{asked:g}", f"{found:g}", holds=abs(found - asked) < 1e-4)


def _coefficient(logged: Mapping[str, Any], vf_coef: float) -> float:
    """The weight of the entropy, which is to lower the loss; an entropy of discrete actions is above 0."""
    rest = logged["train/policy_gradient_loss"] + vf_coef * logged["train/value_loss"]
    return float((rest - logged["train/loss"]) / abs(logged["train/entropy_loss"]))


DECAYED: dict[str, Any] = {"ent_coef_initial": 0.01, "ent_coef_final": 0.0, "ent_coef_min": 0.004}
BOOSTED: dict[str, Any] = {
    "ent_coef_boost": 2.0,
    "ent_coef_plateau_explained_variance": 1.0,
    "ent_coef_plateau_patience": 1,
}
"""Every update counts as a bad one."""


@probe("the-entropy-coefficient-is-floored-then-boosted")
def the_entropy_coefficient_is_floored_then_boosted(make: Make, seed: int) -> Sequence[Observation]:
    """One update over the whole of the progress, at the end of which the coefficient has decayed below its floor."""
    return [
        _trained(make, seed, "decayed below a floor of 0.004", DECAYED, 0.004),
        _trained(make, seed, "decayed below a floor of 0.004 and boosted twofold", {**DECAYED, **BOOSTED}, 0.008),
        _trained(make, seed, "0.01 boosted twofold", {"ent_coef": 0.01, **BOOSTED}, 0.02),
    ]
