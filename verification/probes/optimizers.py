"""What an optimizer does where the utility says nothing."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from verification.model import Observation
from verification.probes import probe
from verification.probes.make import Make


@probe("parameters-stay-finite-without-utility")
def parameters_stay_finite_without_utility(make: Make, seed: int) -> Sequence[Observation]:
    """One step with a zero gradient everywhere: every utility, and so their maximum, is 0."""
    observations = []
    for name, optimizer_class in make.optimizers:
        policy = make.model(seed).policy
        for parameter in policy.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer_class(policy.parameters()).step()  # type: ignore[call-arg]
        total = sum(parameter.numel() for parameter in policy.parameters())
        finite = sum(int(parameter.isfinite().sum()) for parameter in policy.parameters())
        symptom = f"finite parameters after a step without utility, {name}"
        observations.append(Observation(symptom, f"{total}/{total}", f"{finite}/{total}", holds=finite == total))
    return observations
