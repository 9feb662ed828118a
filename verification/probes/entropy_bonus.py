"""Whether the entropy bonus keeps the entropy of a policy high."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlverify import Observation, probe
from verification.probes.make import Make

COEFFICIENT = 0.1
ROLLOUTS = 4


@probe("the-entropy-bonus-spreads-the-actions")
def the_entropy_bonus_spreads_the_actions(make: Make, seed: int) -> Sequence[Observation]:
    """Train two identical models on Pendulum, one with the bonus. Compare the entropy of their actions."""
    without, with_bonus = (_entropy_after_training(make, seed, coefficient) for coefficient in (0.0, COEFFICIENT))
    holds = with_bonus > without
    symptom = f"entropy of the actions with the bonus, compared with no bonus, after {ROLLOUTS} rollouts"
    return [Observation(symptom, "higher", "higher" if holds else "not higher", holds=holds)]


def _entropy_after_training(make: Make, seed: int, coefficient: float) -> float:
    """The entropy in nats of a one-dimensional Gaussian whose deviation does not depend on the observation."""
    model = make.model(seed, make.envs(seed, "Pendulum-v1"), ent_coef=coefficient)
    model.learn(ROLLOUTS * 96)
    return float(model.policy.log_std.item() + 0.5 * math.log(2.0 * math.pi * math.e))
