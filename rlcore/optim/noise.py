"""How loud the noise of a UPGD optimizer was beside the step that it perturbed."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from rlcore.functional import utility as functional
from rlcore.optim.upgd import AdaptiveUPGD, UtilityGatedOptimizer
from rlcore.optim.upgd_state import bias_correction


def noise_to_signal(optimizer: torch.optim.Optimizer) -> float | None:
    """Root mean square of the last step's noise, as its standard deviation has it, over that of the direction d.

    Both are taken over all elements that had a gradient. Everything is read from the state and the gradients that the
    step left behind, so the step itself costs nothing more.

    :return: at least 0; None for an optimizer of another kind, before its first step under the present settings, and
        where d is 0 throughout
    """
    if not isinstance(optimizer, UtilityGatedOptimizer):
        return None
    noise = signal = 0.0
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter)
            if parameter.grad is None or not state:
                continue
            averages = optimizer._averages_of(group)
            if not all(name in state for counter, names in averages.items() for name in (counter, *names)):
                return None
            power = float(_direction(parameter.grad, state, group, isinstance(optimizer, AdaptiveUPGD)).square().sum())
            noise += parameter.numel() * _noise_std(state, group) ** 2
            signal += power
    return math.sqrt(noise / signal) if signal > 0 else None


def _direction(gradient: Tensor, state: dict[str, Any], group: dict[str, Any], adaptive: bool) -> Tensor:
    """The direction of the last step, float64; for UPGD the gradient, for AdaptiveUPGD from the averages."""
    if not adaptive:
        return functional.bounded(gradient).double()
    first_beta, second_beta = group["betas"]
    steps = int(state["moment_step"])
    mean = state["first_moment"].double() / bias_correction(first_beta, steps)
    root = (state["second_moment"].double() / bias_correction(second_beta, steps)).sqrt()
    direction: Tensor = mean / (root + group["eps"])
    return direction


def _noise_std(state: dict[str, Any], group: dict[str, Any]) -> float:
    """Standard deviation of the last step's noise."""
    sigma = float(group["sigma"])
    if sigma == 0.0 or not group["adaptive_noise"]:
        return sigma
    rms = float(state["direction_rms"]) / bias_correction(group["noise_beta"], int(state["noise_step"]))
    return max(sigma * rms, float(group["min_noise_std"]))
