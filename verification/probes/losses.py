"""Padded sequences in the losses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from rlcore import DistributionalPPO
from rlverify import Observation, probe
from verification.probes.make import Make, equal


@probe("sequences-of-unequal-length-train")
def sequences_of_unequal_length_train(make: Make, seed: int) -> Sequence[Observation]:
    """Train on CartPole, whose episodes end at different steps, and on sequences of one step, which need no padding."""
    observations: list[Observation] = []
    for critics, n_critics in (("twin critics", 2), ("one critic", 1)):
        unequal = make.model(seed, n_critics=n_critics)
        observations += _trained(f"sequences of unequal length, {critics}", unequal, 96)
    equal = make.model(seed, n_steps=1, batch_size=3)
    observations += _trained("sequences of equal length (no padding, as in the audited tests)", equal, 6)
    return observations


def _trained(sequences: str, model: DistributionalPPO, steps: int) -> Iterator[Observation]:
    """Check that training completes, and that every environment step enters the value loss once per epoch.

    :param steps: a multiple of the steps of a rollout
    """
    entered, values = 0, model.policy.values
    loss = values.loss

    def counted(outputs: Tensor, *others: Any) -> Tensor:
        nonlocal entered
        entered += len(outputs)
        return loss(outputs, *others)

    values.loss = counted  # type: ignore[assignment, method-assign]
    outcome = "completes"
    try:
        model.learn(steps)
    except RuntimeError as error:
        if "size of tensor" not in str(error):
            raise
        outcome = f"RuntimeError: {_without_sizes(str(error))}"
    yield equal(f"training on {sequences}", "completes", outcome)
    if outcome == "completes":
        made = steps * model.n_epochs
        yield Observation(f"samples in the value loss, {sequences}", f"{made}", f"{entered}", holds=entered == made)


def _without_sizes(message: str) -> str:
    """The message without its sizes, which differ between seeds."""
    return re.sub(r" \(\d+\)", "", message)
