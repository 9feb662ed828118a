"""Optimizer steps where utilities are zero, negative or missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rlverify import Observation, probe
from verification.probes.make import Make

LR = 0.1
GRADIENTS: dict[str, Callable[[Tensor], Tensor | None]] = {
    "utilities of both signs": lambda parameter: torch.linspace(-1.0, 2.0, parameter.numel()).view_as(parameter),
    "negative utilities only": lambda parameter: parameter.detach().clone(),
    "utilities of zero": torch.zeros_like,
    "no gradient at all": lambda _: None,
    "gradients for vectors only": lambda parameter: torch.ones_like(parameter) if parameter.dim() == 1 else None,
}
"""By case: the gradient of a parameter."""


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
        symptom = f"finite parameter elements after a step with zero utility, {name}"
        observations.append(Observation(symptom, f"{total}/{total}", f"{finite}/{total}", holds=finite == total))
    return observations


@probe("steps-follow-the-rule-of-utility")
def steps_follow_the_rule_of_utility(make: Make, seed: int) -> Sequence[Observation]:
    """Take a first step without noise from every kind of gradient. Compare with the rule, computed in float64."""
    return [
        _first_step(f"elements updated by the utility rule, {case}, {name}", optimizer_class, case, seed)
        for name, optimizer_class in make.optimizers
        for case in GRADIENTS
    ]


def _first_step(symptom: str, optimizer_class: type[torch.optim.Optimizer], case: str, seed: int) -> Observation:
    """Step three groups: a matrix and a vector, no parameters, and a tensor without elements."""
    generator = torch.Generator().manual_seed(seed)
    parameters = [torch.randn(shape, generator=generator).requires_grad_() for shape in ((4, 3), (5,), (0,))]
    for parameter in parameters:
        parameter.grad = GRADIENTS[case](parameter)
    before = [parameter.detach().double() for parameter in parameters]
    groups: list[dict[str, Any]] = [{"params": parameters[:2]}, {"params": []}, {"params": parameters[2:]}]
    optimizer_class(groups, lr=LR, weight_decay=0.0, sigma=0.0).step()  # type: ignore[call-arg]
    adaptive = optimizer_class.__name__.startswith("Adaptive")
    expected = _by_the_rule(before, [parameter.grad for parameter in parameters], adaptive=adaptive)
    pairs = zip(parameters, expected, strict=True)
    total = sum(parameter.numel() for parameter in parameters)
    close = sum(int(torch.isclose(found.double(), wanted, atol=1e-6).sum()) for found, wanted in pairs)
    return Observation(symptom, f"{total}/{total}", f"{close}/{total}", holds=close == total)


def _by_the_rule(values: list[Tensor], gradients: list[Tensor | None], *, adaptive: bool) -> list[Tensor]:
    """w - lr * d * (1 - sigmoid(u / max u)) with u = -g * w; d is g, or its sign in the first step of Adam."""
    found = [None if g is None else -g.double() * w for w, g in zip(values, gradients, strict=True)]
    every = torch.cat([u.flatten() for u in found if u is not None] or [torch.zeros(0)])
    largest, magnitude = (float(each.max()) if every.numel() else 0.0 for each in (every, every.abs()))
    scale = largest if largest > 0 else magnitude or 1.0
    results = []
    for w, g, u in zip(values, gradients, found, strict=True):
        if g is None or u is None:
            results.append(w)
            continue
        direction = g.double().sign() if adaptive else g.double()
        results.append(w - LR * direction * (1 - torch.sigmoid(u / scale)))
    return results
