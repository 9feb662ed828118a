"""What becomes of padding in the losses."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlcore import DistributionalPPO
from rlverify import Observation, probe
from verification.probes.make import Make


@probe("sequences-of-unequal-length-train")
def sequences_of_unequal_length_train(make: Make, seed: int) -> Sequence[Observation]:
    """Train on CartPole, whose episodes end at different steps, and on sequences of one step, which need no padding."""
    observations = []
    for critics, n_critics in (("twin critics", 2), ("one critic", 1)):
        unequal = make.model(seed, n_critics=n_critics)
        observations.append(_trained(f"training on sequences of unequal length, {critics}", unequal, 96))
    equal = make.model(seed, n_steps=1, batch_size=3)
    observations.append(
        _trained("training on sequences of equal length (no padding, as in the audited tests)", equal, 6)
    )
    return observations


def _trained(symptom: str, model: DistributionalPPO, steps: int) -> Observation:
    try:
        model.learn(steps)
    except RuntimeError as error:
        if "size of tensor" not in str(error):
            raise
        return Observation(symptom, "completes", f"RuntimeError: {_without_sizes(str(error))}", holds=False)
    return Observation(symptom, "completes", "completes", holds=True)


def _without_sizes(message: str) -> str:
    """The message without the sizes in it, which differ from seed to seed."""
    return re.sub(r" \(\d+\)", "", message)
