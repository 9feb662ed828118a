"""What an optimizer does where the utility says nothing."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from verification.model import Observation
from verification.probes import probe
from verification.probes.make import Make


@probe("parameters-stay-finite-without-utility")
def parameters_stay_finite_without_utility(make: Make, seed: int) -> Sequence[Observation]:
    """Train, rebuild the optimizer, and take a step with a zero gradient: every utility, and so their maximum, is 0."""
    observations = []
    for name, optimizer_class in make.optimizers:
        model = make.model(seed, optimizer_class=optimizer_class)
        model.learn(96)
        model.rebuild_optimizer()
        policy = model.policy
        for parameter in policy.parameters():
            parameter.grad = torch.zeros_like(parameter)
        policy.optimizer.step()
        total = sum(parameter.numel() for parameter in policy.parameters())
        finite = sum(int(parameter.isfinite().sum()) for parameter in policy.parameters())
        symptom = f"finite parameters after a step without utility, {name}"
        observations.append(Observation(symptom, f"{total}/{total}", f"{finite}/{total}", holds=finite == total))
    return observations
