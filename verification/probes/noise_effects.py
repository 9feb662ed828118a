"""Effects of optimizer noise with scaled gradients, and of the adaptive noise of document 001.

All on one tensor of weights at 0, where every utility is 0 and each weight takes half of its step. Twice the change,
divided by the learning rate, is therefore the direction with its noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rlcore import UPGD, AdaptiveUPGD
from rlverify import Observation, probe
from verification.probes.documented_noise import DocumentedAdaptiveUPGD, DocumentedUPGD
from verification.probes.make import Make, equal

SIZE, STEPS = 400, 20
SCALES = (0.5, 0.25, 0.1)
SIGMA, SPREAD, MEAN = 0.4, 0.2, 0.3
"""Sigma of the noise; standard deviation of the gradients over time; their mean."""
Optimizer = type[torch.optim.Optimizer]


@probe("scaler-measures-without-noise")
def scaler_measures_without_noise(make: Make, seed: int) -> Sequence[Observation]:
    """Compare the variance that a scaler measures to that of the steps that the optimizer applies."""
    observations = []
    for sigma in (SIGMA, 0.0):
        before, applied = measured(make, seed, sigma)
        expected, found = sigma**2, applied["variance"] - before["variance"]
        holds = abs(found - expected) < 0.1 * SIGMA**2
        symptom = f"variance applied minus variance measured, sigma {sigma:g}"
        observations.append(Observation(symptom, f"{expected:.2f}", f"{found:.2f}", holds, repeats=False))
    return observations


@probe("unseen-noise-makes-scaling-stronger")
def unseen_noise_makes_scaling_stronger(make: Make, seed: int) -> Sequence[Observation]:
    """Compare the factors of a scaler that does not see the noise and of one that does."""
    blind, seeing = (each["factor"] for each in measured(make, seed, SIGMA))
    found = "smaller" if blind < seeing else "larger"
    return [Observation("factor, compared with that of a scaler that sees the noise", "smaller", found, blind < seeing)]


@probe("fixed-noise-grows-louder-in-upgd")
def fixed_noise_grows_louder_in_upgd(make: Make, seed: int) -> Sequence[Observation]:  # noqa: ARG001
    """Noise-to-step ratio of UPGD with noise of a fixed size, at scaled gradients."""
    return [
        _relative("noise-to-step ratio of UPGD", UPGD, seed, scale, expected=1 / scale, sigma=SIGMA) for scale in SCALES
    ]


@probe("fixed-noise-grows-louder-in-adaptive-upgd")
def fixed_noise_grows_louder_in_adaptive_upgd(make: Make, seed: int) -> Sequence[Observation]:  # noqa: ARG001
    """Noise-to-step ratio of AdaptiveUPGD with the settings of document 001, at scaled gradients."""
    settings = {"sigma": 0.001, "lr": 3e-4}
    return [
        _relative("noise-to-step ratio of AdaptiveUPGD", AdaptiveUPGD, seed, scale, expected=1 / scale, **settings)
        for scale in SCALES
    ]


@probe("adaptive-noise-follows-scaled-steps-of-upgd")
def adaptive_noise_follows_scaled_steps_of_upgd(make: Make, seed: int) -> Sequence[Observation]:
    """Noise-to-step ratio of UPGD with adaptive noise, at scaled gradients."""
    upgd = dict(make.optimizers)["UPGD"]
    return [
        _relative("noise-to-step ratio of UPGD, adaptive noise", upgd, seed, scale, sigma=SIGMA, adaptive_noise=True)
        for scale in SCALES
    ]


@probe("documented-adaptive-noise-keeps-its-ratio")
def documented_adaptive_noise_keeps_its_ratio(make: Make, seed: int) -> Sequence[Observation]:  # noqa: ARG001
    """Noise-to-step ratio with noise that follows the norm of the gradient, in both optimizers, at scaled gradients."""
    settings = {"sigma": 0.01, "adaptive_noise": True}
    return [
        _relative(f"noise-to-step ratio of {name}, documented noise", optimizer_class, seed, scale, **settings)
        for name, optimizer_class in (("AdaptiveUPGD", DocumentedAdaptiveUPGD), ("UPGD", DocumentedUPGD))
        for scale in SCALES
    ]


@probe("documented-adaptive-noise-is-bounded")
def documented_adaptive_noise_is_bounded(make: Make, seed: int) -> Sequence[Observation]:  # noqa: ARG001
    """Length of AdaptiveUPGD's step at gradients a million times as large; it normalises gradients by their size."""
    kinds: dict[str, tuple[Optimizer, bool]] = {
        "documented adaptive noise": (DocumentedAdaptiveUPGD, True),
        "noise of a fixed size": (AdaptiveUPGD, False),
    }
    observations = []
    for name, (optimizer_class, adaptive) in kinds.items():
        large, usual = (
            _last_direction(optimizer_class, seed, scale, sigma=0.001, adaptive_noise=adaptive).norm()
            for scale in (1e6, 1.0)
        )
        grown = float(large / usual)
        found = "0.9 to 1.1" if 0.9 < grown < 1.1 else "above 1000" if grown > 1e3 else "other"
        symptom = f"step length, gradients times 1e6 / unscaled, {name}"
        observations.append(equal(symptom, "0.9 to 1.1", found))
    return observations


def _relative(
    what: str, optimizer_class: Optimizer, seed: int, scale: float, expected: float = 1.0, **settings: Any
) -> Observation:
    """Noise-to-step ratio at a scaled gradient, divided by that at the whole gradient."""
    found = _loudness(optimizer_class, seed, scale, settings) / _loudness(optimizer_class, seed, 1.0, settings)
    holds = abs(found / expected - 1) < 0.1
    return Observation(
        f"{what}, gradients times {scale:g} / unscaled", _two_digits(expected), _two_digits(found), holds
    )


def _loudness(optimizer_class: Optimizer, seed: int, scale: float, settings: dict[str, Any]) -> float:
    noisy = _last_direction(optimizer_class, seed, scale, **settings)
    silent = _last_direction(optimizer_class, seed, scale, **{**settings, "sigma": 0.0})
    return float((noisy - silent).norm() / silent.norm())


def _last_direction(optimizer_class: Optimizer, seed: int, scale: float, **settings: Any) -> Tensor:
    return _directions(optimizer_class, [scale * gradient for gradient in _gradients(seed, STEPS)], seed, settings)[-1]


def _directions(
    optimizer_class: Optimizer, gradients: Sequence[Tensor], seed: int, settings: dict[str, Any]
) -> list[Tensor]:
    """Directions that an optimizer applies, noise included, to weights that are set to 0 before every step."""
    torch.manual_seed(seed)
    weights = nn.Parameter(torch.zeros(SIZE, dtype=torch.float64))
    options: dict[str, Any] = {"lr": 0.1, "weight_decay": 0.0, **settings}
    optimizer = optimizer_class([weights], **options)
    applied = []
    for gradient in gradients:
        with torch.no_grad():
            weights.zero_()
        weights.grad = gradient.clone()
        optimizer.step()
        applied.append(-2 * weights.detach().clone() / options["lr"])
    return applied


def _gradients(seed: int, steps: int) -> list[Tensor]:
    # Not the seed of the noise, which would then be that of the gradients.
    generator = torch.Generator().manual_seed(seed + 10_000)
    noise = torch.randn(steps, SIZE, dtype=torch.float64, generator=generator)
    return list(MEAN + SPREAD * noise)


def measured(make: Make, seed: int, sigma: float) -> tuple[dict[str, float], dict[str, float]]:
    """Variance and factor of the raw gradients, and of the steps that UPGD made of them."""
    gradients = _gradients(seed, 300)
    upgd = dict(make.optimizers)["UPGD"]
    one, other = (
        _statistics(make, history) for history in (gradients, _directions(upgd, gradients, seed, {"sigma": sigma}))
    )
    return one, other


def _statistics(make: Make, history: Sequence[Tensor]) -> dict[str, float]:
    weights = nn.Parameter(torch.zeros(SIZE, dtype=torch.float64))
    scaler = make.scaler([weights], estimator="element", alpha=1.0, warmup_steps=0, eps=1e-12)
    for gradient in history:
        weights.grad = gradient.clone()
        scaler.update_statistics()
    mean = float(torch.stack(list(history)).mean())
    return {"variance": scaler.get_normalized_variance() * mean**2, "factor": scaler.get_scaling_factor()}


def _two_digits(value: float) -> str:
    return f"{float(f'{value:.2g}'):g}"
