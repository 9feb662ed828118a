"""What variance gradient scaling sees, and what it does to noise."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn

from rlcore.optim.noise import noise_to_signal as measured_ratio
from rlverify import Line, Plot, get_fault, plant, plot
from verification.probes.make import Make

PHASE: Final = 100
EVERY: Final = 5
ELEMENTS: Final = 64
AMPLITUDE: Final = 0.5
HUGE: Final = 1e30
"""An eps beside which every denominator vanishes, so that the normalized variance times it is the variance."""

ESTIMATORS: Final = {
    "mean": "mean: of the tensor's mean, over time (v3.0)",
    "spatial": "spatial: across elements (option 2)",
    "total": "total: mean plus spatial",
    "element": "element: of each element, over time",
}
FACTORS: Final = (0.01, 0.03, 0.1, 0.3, 1.0)
STEPS: Final = 20
SIGMA: Final = 0.001


@plot("four-variances")
def four_variances(make: Make) -> Plot:
    """Show four scalers the same gradients: a constant pattern, then its sign changing, then independent noise."""
    generator = torch.Generator().manual_seed(0)
    pattern = AMPLITUDE * torch.tensor([1.0, -1.0]).repeat(ELEMENTS // 2)
    history = [pattern] * PHASE
    history += [pattern * (-1.0) ** step for step in range(PHASE)]
    history += [AMPLITUDE * torch.randn(ELEMENTS, generator=generator) for _ in range(PHASE)]
    lines = tuple(Line(label, _variances(make, name, history)) for name, label in ESTIMATORS.items())
    return Plot(
        title="Only the element variance starts to rise when the noise starts",
        x_label=f"step: constant pattern to {PHASE}, changing sign to {2 * PHASE}, independent noise to {3 * PHASE}",
        y_label="variance of the gradient",
        positions=tuple(float(step) for step in range(EVERY, len(history) + 1, EVERY)),
        lines=lines,
        note=(
            f"One tensor of {ELEMENTS} elements of +{AMPLITUDE} and -{AMPLITUDE}, so that their mean is 0: for {PHASE} "
            f"steps always the same, for {PHASE} with a sign that changes from step to step, for {PHASE} drawn at "
            f"random with a standard deviation of {AMPLITUDE}. The first {PHASE} steps have no noise, and the "
            "others are all noise. Averages with a decay of 0.99, as by default."
        ),
    )


def _variances(make: Make, estimator: Any, history: list[Tensor]) -> tuple[float, ...]:
    parameter = nn.Parameter(torch.zeros(ELEMENTS))
    scaler = make.scaler([parameter], estimator=estimator, eps=HUGE)
    found = []
    for gradient in history:
        parameter.grad = gradient.clone()
        scaler.update_statistics()
        found.append(abs(round(scaler.get_normalized_variance() * HUGE, 3)))
    return tuple(found[EVERY - 1 :: EVERY])


@plot("noise-to-signal")
def noise_to_signal(make: Make) -> Plot:
    """Multiply all gradients by a factor, and compare the noise of a step with the direction that it perturbs."""
    (plain, upgd), (adapted, adaptive_upgd) = make.optimizers
    lines = [
        Line(f"{plain}, fixed noise", _ratios(upgd, adaptive=False)),
        Line(f"{adapted}, fixed noise", _ratios(adaptive_upgd, adaptive=False)),
        Line(f"{plain}, adaptive noise", _ratios(upgd, adaptive=True)),
        Line(f"{adapted}, adaptive noise, this core", _ratios(adaptive_upgd, adaptive=True)),
    ]
    with plant(get_fault("fnd-37-noise-follows-the-gradient")):
        documented = _ratios(adaptive_upgd, adaptive=True)
    lines.append(Line(f"{adapted}, adaptive noise as documented", documented))
    return Plot(
        title="Scaling changes the noise-to-signal ratio in two of five cases",
        x_label="factor by which variance gradient scaling multiplies all gradients",
        y_label="noise / signal, relative to factor 1",
        positions=FACTORS,
        lines=tuple(lines),
        note=(
            f"Ratio of the noise to the direction that it perturbs, after {STEPS} steps with sigma {SIGMA}, over the "
            "same ratio at factor 1. A line at 1 is noise that follows the scaling; document 001 says that adaptive "
            "noise is such a line, and that fixed noise is not."
        ),
        log_x=True,
        log_y=True,
    )


def _ratios(optimizer_class: type[torch.optim.Optimizer], *, adaptive: bool) -> tuple[float, ...]:
    found = [_ratio(optimizer_class, adaptive, factor) for factor in FACTORS]
    return tuple(float(f"{ratio / found[-1]:.2g}") for ratio in found)


def _ratio(optimizer_class: type[torch.optim.Optimizer], adaptive: bool, factor: float) -> float:
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    parameter = torch.randn(256, generator=generator).requires_grad_()
    settings: dict[str, Any] = {"lr": 1e-4, "sigma": SIGMA, "adaptive_noise": adaptive}
    optimizer = optimizer_class([parameter], **settings)
    for _ in range(STEPS):
        parameter.grad = factor * torch.randn(256, generator=generator)
        optimizer.step()
    ratio = measured_ratio(optimizer)
    if ratio is None:
        raise RuntimeError(f"{optimizer_class.__name__} took {STEPS} steps and has no ratio of noise to signal")
    return ratio
