"""Which weights the utility gate protects, which gradients reach it, and how large UPGD's noise is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from rlcore import NonFiniteGradientError
from rlverify import Observation, probe
from verification.probes.make import Make, equal

SILENT: Final[dict[str, Any]] = {"lr": 0.1, "sigma": 0.0, "weight_decay": 0.0}
NOISY: Final[dict[str, Any]] = {"lr": 1.0, "sigma": 0.1, "weight_decay": 0.0, "adaptive_noise": True}


@probe("less-useful-weights-change-more")
def less_useful_weights_change_more(make: Make, seed: int) -> Sequence[Observation]:
    """Take one step where every weight has a negative utility, from -0.5 to -0.1, and a gradient of 1."""
    useful = -torch.linspace(0.5, 0.1, 5, dtype=torch.float64)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(seed))
    observations = []
    for name, optimizer_class in make.optimizers:
        parameter = nn.Parameter(-useful[order])
        parameter.grad = torch.ones_like(parameter)
        optimizer_class([parameter], **SILENT).step()
        changes = torch.empty(5, dtype=torch.float64)
        changes[order] = -useful[order] - parameter.detach()
        falling = bool((changes.diff() < 0).all())
        found = ", ".join(f"{change / SILENT['lr']:.3f}" for change in changes.tolist())
        symptom = f"share of the step taken, from the least to the most useful weight, {name}"
        observations.append(
            Observation(symptom, "falling", f"{'falling' if falling else 'not falling'}: {found}", falling)
        )
    return observations


@probe("protection-is-graded-at-the-first-step")
def protection_is_graded_at_the_first_step(make: Make, seed: int) -> Sequence[Observation]:
    """Count the weights that take almost all or almost none of their first step, at gradients of 1 or -1."""
    generator = torch.Generator().manual_seed(seed)
    observations = []
    for name, optimizer_class in make.optimizers:
        start = torch.randn(2000, dtype=torch.float64, generator=generator)
        signs = torch.randint(0, 2, (2000,), generator=generator).double() * 2 - 1
        parameter = nn.Parameter(start.clone())
        parameter.grad = signs.clone()
        optimizer_class([parameter], **SILENT).step()
        taken = (start - parameter.detach()) / (SILENT["lr"] * signs)
        saturated = float(((taken < 0.01) | (taken > 0.99)).double().mean())
        found = "under 5%" if saturated < 0.05 else "over 90%" if saturated > 0.9 else f"{saturated:.0%}"
        symptom = f"weights that take almost all or almost none of their first step, {name}"
        observations.append(Observation(symptom, "under 5%", found, holds=saturated < 0.05))
    return observations


@probe("one-infinite-gradient-harms-nothing")
def one_infinite_gradient_harms_nothing(make: Make, seed: int) -> Sequence[Observation]:
    """Take three steps on four tensors. In the second, one gradient element is infinite and has all utility."""
    generator = torch.Generator().manual_seed(seed)
    observations = []
    for name, optimizer_class in make.optimizers:
        parameters = [nn.Parameter(torch.randn(8, generator=generator)) for _ in range(4)]
        optimizer = optimizer_class(parameters, **SILENT)
        refused = 0
        for step in range(3):
            for parameter in parameters:
                parameter.grad = torch.randn(8, generator=generator)
            if step == 1:
                _grad(parameters[2])[3] = -torch.inf * parameters[2].detach()[3].sign()
            try:
                optimizer.step()
            except NonFiniteGradientError as error:
                refused += error.parameter.startswith("parameter 2 of group 0")
        finite = sum(bool(parameter.isfinite().all()) for parameter in parameters)
        observations += [
            Observation(f"finite tensors after an infinite gradient, {name}", "4/4", f"{finite}/4", finite == 4),
            equal(f"steps refused with an error that names the tensor, {name}", 1, refused),
        ]
    return observations


@probe("adaptive-noise-can-be-switched-on-later")
def adaptive_noise_can_be_switched_on_later(make: Make, seed: int) -> Sequence[Observation]:
    """Take two steps without adaptive noise and one with it."""
    observations = []
    for name, optimizer_class in make.optimizers:
        torch.manual_seed(seed)
        parameter = nn.Parameter(torch.randn(8))
        optimizer = optimizer_class([parameter], **{**NOISY, "adaptive_noise": False})
        for step in range(3):
            parameter.grad = torch.randn(8)
            optimizer.param_groups[0]["adaptive_noise"] = step == 2
            outcome = _step(optimizer)
        symptom = f"first step after adaptive noise is switched on, {name}"
        observations.append(equal(symptom, "completes", outcome))
    return observations


@probe("adaptive-noise-has-its-size-from-the-first-step")
def adaptive_noise_has_its_size_from_the_first_step(make: Make, seed: int) -> Sequence[Observation]:
    """Measure the noise of the first step, relative to the requested tenth of the direction."""
    observations = []
    for name, optimizer_class in make.optimizers:
        (ratio,) = _noise_ratios(optimizer_class, seed, [(1, 8192)])
        symptom = f"noise of the first step, divided by the requested noise, {name}"
        observations.append(Observation(symptom, "1", _one_digit(ratio), 0.9 < ratio < 1.1))
    return observations


@probe("adaptive-noise-does-not-depend-on-the-size-of-a-tensor")
def adaptive_noise_does_not_depend_on_the_size_of_a_tensor(make: Make, seed: int) -> Sequence[Observation]:
    """Compare the noise in tensors of 256 and of 16 elements, at equal gradients."""
    observations = []
    for name, optimizer_class in make.optimizers:
        small, large = _noise_ratios(optimizer_class, seed, [(128, 16), (16, 256)])
        symptom = f"noise in a tensor of 256 elements, divided by that in one of 16, {name}"
        observations.append(Observation(symptom, "1", _one_digit(large / small), 0.9 < large / small < 1.1))
    return observations


@probe("noise-keeps-its-ratio-at-any-scale-of-the-gradient")
def noise_keeps_its_ratio_at_any_scale_of_the_gradient(make: Make, seed: int) -> Sequence[Observation]:
    """Compare the noise-to-signal ratio at a tenth of the gradient with that at the full gradient."""
    observations = []
    for name, optimizer_class in make.optimizers:
        for kind, adaptive in (("adaptive", True), ("fixed", False)):
            whole, tenth = (
                _noise_ratios(optimizer_class, seed, [(1, 8192)], gradient, adaptive_noise=adaptive)[0]
                for gradient in (1.0, 0.1)
            )
            # UPGD's direction is the gradient itself, so fixed noise grows relative to a smaller gradient.
            expected = 1.0 if adaptive or optimizer_class.__name__.startswith("Adaptive") else 10.0
            symptom = f"noise-to-signal ratio at a tenth of the gradient / at the full one, {kind} noise, {name}"
            holds = 0.9 < tenth / whole / expected < 1.1
            observations.append(Observation(symptom, f"{expected:g}", _one_digit(tenth / whole), holds))
    return observations


def _step(optimizer: torch.optim.Optimizer) -> str:
    try:
        optimizer.step()
    except KeyError as error:
        return f"KeyError {error}"
    return "completes"


def _noise_ratios(
    optimizer_class: type[torch.optim.Optimizer],
    seed: int,
    tensors: Sequence[tuple[int, int]],
    gradient: float = 1.0,
    **settings: Any,
) -> list[float]:
    """RMS noise of a first step, divided by sigma times the RMS direction, for each (count, size) of tensors.

    The noise is the difference between a step with noise and one without, at the same gradient.
    """
    noisy, silent = (
        _first_changes(optimizer_class, seed, tensors, gradient, {**NOISY, **settings, "sigma": sigma})
        for sigma in (NOISY["sigma"], 0.0)
    )
    pairs = zip(noisy, silent, strict=True)
    return [float((one - other).square().mean().sqrt() / (NOISY["sigma"] * other.abs().mean())) for one, other in pairs]


def _one_digit(value: float) -> str:
    return f"{float(f'{value:.1g}'):g}"


def _first_changes(
    optimizer_class: type[torch.optim.Optimizer],
    seed: int,
    tensors: Sequence[tuple[int, int]],
    gradient: float,
    settings: Mapping[str, Any],
) -> list[Tensor]:
    parameters = [[nn.Parameter(torch.zeros(size)) for _ in range(count)] for count, size in tensors]
    for parameter in (each for kind in parameters for each in kind):
        parameter.grad = torch.full_like(parameter, gradient)
    torch.manual_seed(seed)
    optimizer_class([each for kind in parameters for each in kind], **settings).step()
    return [torch.cat([each.detach() for each in kind]) for kind in parameters]


def _grad(parameter: nn.Parameter) -> Tensor:
    gradient = parameter.grad
    assert gradient is not None, "the probe has just set it"
    return gradient
