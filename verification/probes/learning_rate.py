"""Which learning rate the optimizer uses."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore import DistributionalPPO
from rlverify import Observation, probe
from verification.probes.make import Make

ASKED = (1e-3, 5e-3, 1e-4, 1e-2)


@probe("learning-rate-asked-for-trains")
def learning_rate_asked_for_trains(make: Make, seed: int) -> Sequence[Observation]:
    """Set a rate in ``optimizer_kwargs``. Read it after construction and after the first update."""
    observations = []
    for asked in ASKED:
        model = make.model(seed, optimizer_kwargs={"lr": asked})
        observations.append(_rate("lr after construction", asked, model))
        model.learn(96)
        observations.append(_rate("lr after the first train()", asked, model))
    return observations


def _rate(moment: str, asked: float, model: DistributionalPPO) -> Observation:
    rates = sorted({float(group["lr"]) for group in model.policy.optimizer.param_groups})
    return Observation(f"{moment}, set to {asked}", str(asked), ", ".join(map(str, rates)), holds=rates == [asked])
