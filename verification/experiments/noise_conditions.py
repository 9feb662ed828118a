"""How loud the noise of UPGD is when scaling switches on, long after that, and in training runs.

`verification.experiments.noise` scales by a constant factor from the first step on. A scaler switches on after its
warm-up: what an optimizer averages over its steps then still comes from gradients that were not scaled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from typing import Any, Final

import torch
from torch import Tensor

from rlcore import DistributionalPPO
from rlcore.optim.upgd_step import noise_to_signal
from rlverify import experiment
from verification.experiments.noise import FACTOR, LEARNING_RATE, UPDATES, Steps, gradients_of
from verification.experiments.second_environment import in_drift
from verification.experiments.training import trained, untrained, update
from verification.probes.documented_noise import DOCUMENTED
from verification.probes.make import Make

WARM_UP: Final = 100
MARKS: Final = (1, 50, 208, 1000, 3000)
"""Steps since scaling switched on; 208 are the longest adaptation that document 003 names."""
WINDOW: Final = 16
"""Steps over which a ratio is averaged: those of one update."""

TRAINED: Final[Mapping[str, Any]] = {"learning_rate": 3e-4, "return_scale": "zero_lag"}
DOCUMENTED_SETTINGS: Final[Mapping[str, Any]] = {"lr": 3e-4, "sigma": 0.001}
UPDATES_TRAINED: Final = 24
"""384 optimizer steps, of which 284 are scaled."""


def kinds(make: Make) -> dict[str, tuple[Any, bool]]:
    """The optimizers with each kind of noise, and whether it adapts."""
    found: dict[str, tuple[Any, bool]] = {}
    for name, optimizer_class in make.optimizers:
        found[f"{name}, sigma"] = optimizer_class, False
        found[f"{name}, documented noise"] = DOCUMENTED[name], True
        found[f"{name}, adaptive noise"] = optimizer_class, True
    return found


@experiment("noise-after-scaling-switches-on")
def noise_after_scaling_switches_on(make: Make, seed: int) -> Mapping[str, float]:
    """The gradients of one rollout, over and over; after the warm-up to a tenth, as by a scaler at its floor."""
    model = trained(make, seed, UPDATES, return_scale="zero_lag")
    gradients = gradients_of(model)
    quantities = {}
    for name, (optimizer_class, adaptive) in kinds(make).items():
        plain, scaled = (_ratios(model, gradients, optimizer_class, factor, adaptive) for factor in (1.0, FACTOR))
        for mark in MARKS:
            quantities[f"noise-to-signal times, {name}, {mark} steps"] = scaled[mark] / plain[mark]
    return quantities


def _ratios(
    model: DistributionalPPO, gradients: Steps, optimizer_class: Any, factor: float, adaptive: bool
) -> dict[int, float]:
    """Noise-to-signal from each of the marks on, as the geometric mean over some steps."""
    parameters = [torch.nn.Parameter(each.detach().clone()) for each in model.policy.parameters()]
    optimizer = optimizer_class(parameters, lr=LEARNING_RATE, adaptive_noise=adaptive)
    logarithms: dict[int, list[float]] = {mark: [] for mark in MARKS}
    for step, gradient in enumerate(islice(cycle(gradients), WARM_UP + MARKS[-1] + WINDOW), start=1 - WARM_UP):
        for parameter, part in zip(parameters, gradient, strict=True):
            parameter.grad = part * factor if step > 0 else part.clone()
        optimizer.step()
        for mark in MARKS:
            if mark <= step < mark + WINDOW:
                logarithms[mark].append(_logarithm(optimizer))
    return {mark: math.exp(sum(found) / len(found)) for mark, found in logarithms.items()}


def _logarithm(optimizer: torch.optim.Optimizer) -> float:
    ratio = noise_to_signal(optimizer)
    assert ratio is not None, "every step has a direction"
    return math.log(ratio)


@experiment("noise-in-training-runs")
def noise_in_training_runs(make: Make, seed: int) -> Mapping[str, float]:
    """The documented configuration of scaling and noise, in CartPole and in Drift."""
    return {**_in_training(make, seed, "CartPole"), **_in_training(in_drift(make), seed, "Drift")}


def _in_training(make: Make, seed: int, environment: str) -> Mapping[str, float]:
    """Optimizers that see the gradients of a run, scaled and not; of the steps after the warm-up.

    The run itself trains with AdaptiveUPGD and without adaptive noise.
    """
    model = untrained(make, seed, **TRAINED, optimizer_class="adaptive_upgd")
    scaler = model.variance_gradient_scaler
    assert scaler is not None
    pairs = {name: _pair(model, *kind) for name, kind in kinds(make).items()}
    logarithms: dict[str, list[float]] = {name: [] for name in pairs}
    factors: list[float] = []
    raw: list[Tensor | None] = []
    scale = scaler.scale_gradients

    def remembering() -> float:
        raw[:] = [None if p.grad is None else p.grad.clone() for p in model.policy.parameters()]
        return scale()

    def shadows(*_: Any) -> None:
        factor = scaler.get_scaling_factor()
        given = [p.grad for p in model.policy.parameters()]
        for name, pair in pairs.items():
            ratios = [_shadowed(model, each, found) for each, found in zip(pair, (given, raw), strict=True)]
            if not scaler.is_warming_up:
                logarithms[name].append(ratios[0] - ratios[1])
        if not scaler.is_warming_up:
            factors.append(factor)

    scaler.scale_gradients = remembering  # type: ignore[method-assign]
    model.policy.optimizer.register_step_pre_hook(shadows)
    for _ in range(UPDATES_TRAINED):
        update(model)
    quantities = {
        f"noise-to-signal times in {environment}, {name}": math.exp(sum(found) / len(found))
        for name, found in logarithms.items()
    }
    return {**quantities, f"factor in {environment}": sum(factors) / len(factors)}


def _pair(model: DistributionalPPO, optimizer_class: Any, adaptive: bool) -> list[torch.optim.Optimizer]:
    """Two optimizers of copies of the model's parameters."""
    return [
        optimizer_class(
            [torch.nn.Parameter(each.detach().clone()) for each in model.policy.parameters()],
            adaptive_noise=adaptive,
            **DOCUMENTED_SETTINGS,
        )
        for _ in range(2)
    ]


def _shadowed(model: DistributionalPPO, optimizer: torch.optim.Optimizer, gradients: Sequence[Tensor | None]) -> float:
    """A step of an optimizer from the model's weights, with the same limit on the norm of these gradients."""
    parameters = optimizer.param_groups[0]["params"]
    with torch.no_grad():
        for parameter, weights, gradient in zip(parameters, model.policy.parameters(), gradients, strict=True):
            parameter.copy_(weights)
            parameter.grad = None if gradient is None else gradient.clone()
    torch.nn.utils.clip_grad_norm_(parameters, model.max_grad_norm)
    optimizer.step()
    return _logarithm(optimizer)
