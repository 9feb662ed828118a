"""What the documents say that noise does beside scaled gradients, and what document 001 says that adaptive noise does.

All on one tensor of weights at 0, where no weight is of use and each takes half of its step: twice the change over the
learning rate is the direction with its noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rlcore import UPGD, AdaptiveUPGD
from rlverify import Observation, probe
from verification.probes.documented_noise import DocumentedAdaptiveUPGD, DocumentedUPGD
from verification.probes.make import Make

SIZE, STEPS = 400, 20
SCALES = (0.5, 0.25, 0.1)
SIGMA, SPREAD, MEAN = 0.4, 0.2, 0.3
"""Of the noise; of gradients from step to step; of their mean."""
Optimizer = type[torch.optim.Optimizer]


@probe("scaler-measures-without-noise")
def scaler_measures_without_noise(make: Make, seed: int) -> Sequence[Observation]:
    """The variance that a scaler measures, beside that of what the optimizer applies."""
    observations = []
    for sigma in (SIGMA, 0.0):
        before, applied = measured(make, seed, sigma)
        expected, found = sigma**2, applied["variance"] - before["variance"]
        holds = abs(found - expected) < 0.1 * SIGMA**2
        symptom = f"variance that the scaler does not see, noise of {sigma:g}"
        observations.append(Observation(symptom, f"{expected:.2f}", f"{found:.2f}", holds, repeats=False))
    return observations


@probe("unseen-noise-makes-scaling-stronger")
def unseen_noise_makes_scaling_stronger(make: Make, seed: int) -> Sequence[Observation]:
    """The factor of a scaler that does not see the noise, beside that of one that does."""
    blind, seeing = (each["factor"] for each in measured(make, seed, SIGMA))
    found = "smaller" if blind < seeing else "larger"
    return [Observation("factor, of what it would be with the noise seen", "smaller", found, blind < seeing)]


@probe("fixed-noise-grows-louder-in-upgd")
def fixed_noise_grows_louder_in_upgd(make: Make, seed: int) -> Sequence[Observation]:  # noqa: ARG001
    """Noise of a fixed size over UPGD's step, at gradients scaled down."""
    return [
        _relative("noise of UPGD over its step", UPGD, seed, scale, expected=1 / scale, sigma=SIGMA) for scale in SCALES
    ]


@probe("fixed-noise-grows-louder-in-adaptive-upgd")
def fixed_noise_grows_louder_in_adaptive_upgd(make: Make, seed: int) -> Sequence[Observation]:  # noqa: ARG001
    """The same of AdaptiveUPGD, under the settings that document 001 gives for it."""
    settings = {"sigma": 0.001, "lr": 3e-4}
    return [
        _relative("noise of AdaptiveUPGD over its step", AdaptiveUPGD, seed, scale, expected=1 / scale, **settings)
        for scale in SCALES
    ]


@probe("adaptive-noise-follows-scaled-steps-of-upgd")
def adaptive_noise_follows_scaled_steps_of_upgd(make: Make, seed: int) -> Sequence[Observation]:
    """Adaptive noise over UPGD's step, at gradients scaled down."""
    upgd = dict(make.optimizers)["UPGD"]
    return [
        _relative("adaptive noise of UPGD over its step", upgd, seed, scale, sigma=SIGMA, adaptive_noise=True)
        for scale in SCALES
    ]


@probe("documented-adaptive-noise-keeps-its-ratio")
def documented_adaptive_noise_keeps_its_ratio(make: Make, seed: int) -> Sequence[Observation]:  # noqa: ARG001
    """Noise that follows the norm of the gradient, in both optimizers, at gradients scaled down."""
    settings = {"sigma": 0.01, "adaptive_noise": True}
    return [
        _relative(f"documented noise of {name} over its step", optimizer_class, seed, scale, **settings)
        for name, optimizer_class in (("AdaptiveUPGD", DocumentedAdaptiveUPGD), ("UPGD", DocumentedUPGD))
        for scale in SCALES
    ]


@probe("documented-adaptive-noise-is-bounded")
def documented_adaptive_noise_is_bounded(make: Make, seed: int) -> Sequence[Observation]:  # noqa: ARG001
    """AdaptiveUPGD's step at gradients a million times as large, which it divides by their size."""
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
        found = "the same" if 0.9 < grown < 1.1 else "over a thousand times" if grown > 1e3 else "another"
        symptom = f"length of the step at a million times the gradient, {name}"
        observations.append(Observation(symptom, "the same", found, found == "the same"))
    return observations


def _relative(
    what: str, optimizer_class: Optimizer, seed: int, scale: float, expected: float = 1.0, **settings: Any
) -> Observation:
    """How loud noise is at a share of the gradient, in units of what it is at the whole."""
    found = _loudness(optimizer_class, seed, scale, settings) / _loudness(optimizer_class, seed, 1.0, settings)
    holds = abs(found / expected - 1) < 0.1
    return Observation(f"{what}, at {scale:g} of the gradient", _two_digits(expected), _two_digits(found), holds)


def _loudness(optimizer_class: Optimizer, seed: int, scale: float, settings: dict[str, Any]) -> float:
    noisy = _last_direction(optimizer_class, seed, scale, **settings)
    silent = _last_direction(optimizer_class, seed, scale, **{**settings, "sigma": 0.0})
    return float((noisy - silent).norm() / silent.norm())


def _last_direction(optimizer_class: Optimizer, seed: int, scale: float, **settings: Any) -> Tensor:
    return _directions(optimizer_class, [scale * gradient for gradient in _gradients(seed, STEPS)], seed, settings)[-1]


def _directions(
    optimizer_class: Optimizer, gradients: Sequence[Tensor], seed: int, settings: dict[str, Any]
) -> list[Tensor]:
    """What an optimizer applies, noise included, to weights that are put back to 0 before every step."""
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
    """Variance and factor by the raw gradients, and by what UPGD made of them."""
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
