"""The size of the optimizers' noise relative to steps of scaled gradients, measured in optimizer steps of a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rlcore.optim.upgd_step import noise_to_signal
from rlverify import Observation, probe
from verification.probes.make import Make

STEPS, WARM_UP = 15, 5
"""Steps after the warm-up, and steps of it."""
ALPHA = 0.1
NOISE: dict[str, Any] = {"sigma": 0.5, "adaptive_noise": True, "noise_beta": 0.0, "weight_decay": 0.0}
"""Noise without averaging, so that it forgets the unscaled gradients of the warm-up."""
DOCUMENTED: dict[str, Any] = {"sigma": 0.001, "adaptive_noise": True, "noise_beta": 0.0, "min_noise_std": 1e-6}
"""Document 001's settings, except noise_beta."""


@probe("noise-keeps-its-ratio-under-scaling")
def noise_keeps_its_ratio_under_scaling(make: Make, seed: int) -> Sequence[Observation]:
    """The noise of AdaptiveUPGD over its step, and the length of its step, each with scaling and without."""
    ratio, share = noise_and_step(make, seed)
    roughly = "below 1" if share < 0.9 else "about 1 or more"
    symptom = "length of AdaptiveUPGD's step, scaled / unscaled"
    return [
        _about_one("noise-to-signal ratio of AdaptiveUPGD, scaled / unscaled", ratio, 0.15),
        Observation(symptom, "below 1", f"{share:.2f}", share < 0.9, roughly=roughly),
    ]


def noise_and_step(
    make: Make, seed: int, *, alpha: float = ALPHA, warm_up: int = WARM_UP, clip: float = 1e9
) -> tuple[float, float]:
    """The noise-to-signal ratio and the length of the step of AdaptiveUPGD, each with scaling over that without.

    :param clip: largest norm of the gradient
    """
    change = partial(_last_change, make, seed, alpha=alpha, warm_up=warm_up, clip=clip)
    noisy, silent = (
        {scaling: change(scaling=scaling, sigma=sigma) for scaling in (True, False)} for sigma in (NOISE["sigma"], 0.0)
    )
    ratio = {scaling: float((noisy[scaling] - step).norm() / step.norm()) for scaling, step in silent.items()}
    return ratio[True] / ratio[False], float(silent[True].norm() / silent[False].norm())


@probe("the-floor-takes-over-adaptive-noise")
def the_floor_takes_over_adaptive_noise(make: Make, seed: int) -> Sequence[Observation]:
    """Measure UPGD's adaptive noise in a default-size network, with gradients scaled to a tenth and unscaled."""
    floored, free = (
        _told_ratio(make, seed, 1e9, floor) / _told_ratio(make, seed, 0.0, floor)
        for floor in (DOCUMENTED["min_noise_std"], 0.0)
    )
    symptom = "noise-to-signal ratio of UPGD, scaled to a tenth / unscaled"
    wanted = "over 5"
    roughly = wanted if floored > 5.0 else "at most 5"
    return [
        Observation(f"{symptom}, documented floor", wanted, f"{floored:.2g}", roughly == wanted, roughly=roughly),
        _about_one(f"{symptom}, no floor", free, 0.1),
    ]


def _about_one(symptom: str, found: float, margin: float) -> Observation:
    """A ratio that must be 1 within a margin."""
    roughly = (
        f"above {1 + margin:g}" if found >= 1 + margin else f"below {1 - margin:g}" if found <= 1 - margin else "1"
    )
    return Observation(symptom, "1", f"{found:.2g}", roughly == "1", roughly=roughly)


def _told_ratio(make: Make, seed: int, alpha: float, floor: float) -> float:
    options = {**DOCUMENTED, "min_noise_std": floor}
    short: dict[str, Any] = {
        "n_steps": 8,
        "batch_size": 24,
        "policy_kwargs": {},
        "vgs_warmup_steps": 1,
        "vgs_alpha": alpha,
    }
    model = make.model(seed, optimizer_class="upgd", optimizer_kwargs=options, **short)
    model.learn(3 * 24)
    return noise_to_signal(model.policy.optimizer) or math.nan


def _last_change(
    make: Make, seed: int, *, scaling: bool, sigma: float, alpha: float, warm_up: int, clip: float
) -> Tensor:
    """The change by the last of several steps. Each starts from the same weights; gradients alternate in sign."""
    scaler: dict[str, Any] = {"vgs_warmup_steps": warm_up, "vgs_alpha": alpha} if scaling else {}
    model = make.model(
        seed,
        optimizer_class=dict(make.optimizers)["AdaptiveUPGD"],
        optimizer_kwargs={**NOISE, "sigma": sigma},
        max_grad_norm=clip,
        variance_gradient_scaling=scaling,
        **scaler,
    )
    parameters: list[nn.Parameter] = list(model.policy.parameters())
    start = [parameter.detach().clone() for parameter in parameters]
    # Not the seed of the noise, which would then be that of the gradients.
    generator = torch.Generator().manual_seed(seed + 10_000)
    pattern = [torch.randn(parameter.shape, generator=generator) for parameter in parameters]
    torch.manual_seed(seed)
    for step in range(warm_up + STEPS):
        with torch.no_grad():
            for parameter, value in zip(parameters, start, strict=True):
                parameter.copy_(value)
        size = 1.0 + 3.0 * (-1) ** step
        model._optimize(sum((p * (0.5 + g)).sum() * size for p, g in zip(parameters, pattern, strict=True)))
    return torch.cat([(p.detach() - s).flatten() for p, s in zip(parameters, start, strict=True)])
