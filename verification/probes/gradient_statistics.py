"""Which variance gradient scaling measures, and of which gradients: raw, scaled or clipped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rlverify import Observation, probe
from verification.probes.make import Make

HUGE = 1e30
"""An eps so large that the normalized variance times it is the variance."""


CLIPPED_TO = 0.5
OF_RAW = "of the raw gradients"


@probe("constant-gradient-has-no-variance")
def constant_gradient_has_no_variance(make: Make, seed: int) -> Sequence[Observation]:
    """Measure a pattern of +0.5 and -0.5 that never changes, and one whose sign alternates."""
    pattern = torch.tensor([0.5, -0.5] * 8)[torch.randperm(16, generator=torch.Generator().manual_seed(seed))]
    signs = [1.0, -1.0] * 50
    constant, changing = (_element_variance(make, [sign * pattern for sign in each]) for each in ([1.0] * 100, signs))
    return [
        Observation("measured variance of a constant gradient", "0.00", f"{constant:.2f}", abs(constant) < 0.005),
        Observation(
            "measured variance of a gradient that changes sign", "0.25", f"{changing:.2f}", abs(changing - 0.25) < 0.005
        ),
    ]


@probe("variance-beside-a-large-mean-is-kept")
def variance_beside_a_large_mean_is_kept(make: Make, seed: int) -> Sequence[Observation]:
    """Measure float32 gradients with mean 1 and standard deviation 1e-4. Their variance is below the rounding of 1."""
    generator = torch.Generator().manual_seed(seed)
    history = [1.0 + 1e-4 * torch.randn(256, generator=generator) for _ in range(300)]
    measured = _element_variance(make, history)
    expected = _exact_element_variance(history, beta=0.99)
    close = 0.9 < measured / expected < 1.1
    found = "within 10 %" if close else "negative" if measured < 0.0 else "off by more than 10 %"
    return [Observation("measured variance, true value 1e-8", "within 10 %", found, holds=close)]


@probe("statistics-are-of-raw-gradients")
def statistics_are_of_raw_gradients(make: Make, seed: int) -> Sequence[Observation]:
    """Scale, clip to a norm of 0.5 and step. Compare with a scaler that only measures the same raw gradients."""
    generator = torch.Generator().manual_seed(seed)
    settings: dict[str, Any] = {"warmup_steps": 10, "alpha": 1.0, "estimator": "element", "eps": 0.1}
    acting, watching = (nn.Parameter(torch.zeros(64)) for _ in range(2))
    scaler, watcher = (make.scaler([parameter], **settings) for parameter in (acting, watching))
    for _ in range(100):
        raw = 1.0 + torch.randn(64, generator=generator)
        acting.grad, watching.grad = raw.clone(), raw.clone()
        watcher.update_statistics()
        scaler.scale_gradients()
        torch.nn.utils.clip_grad_norm_([acting], CLIPPED_TO)
        scaler.step()
    norm = scaler.grad_norm_ema or 0.0
    is_raw = norm == watcher.grad_norm_ema
    found = OF_RAW if is_raw else "the clipping limit" if abs(norm - CLIPPED_TO) < 1e-3 else "different"
    same = scaler.get_normalized_variance() == watcher.get_normalized_variance()
    return [
        Observation("gradient norm in the statistics", OF_RAW, found, holds=is_raw),
        Observation("normalized variance in the statistics", OF_RAW, OF_RAW if same else "different", holds=same),
    ]


def _element_variance(make: Make, history: Iterable[Tensor]) -> float:
    """The variance mean_s Var_t[g] as the scaler measures it."""
    gradients = list(history)
    parameter = nn.Parameter(torch.zeros_like(gradients[0]))
    scaler = make.scaler([parameter], estimator="element", eps=HUGE)
    for gradient in gradients:
        parameter.grad = gradient.clone()
        scaler.update_statistics()
    return scaler.get_normalized_variance() * HUGE


def _exact_element_variance(history: Sequence[Tensor], beta: float) -> float:
    gradients = torch.stack(list(history)).double()
    weights = beta ** torch.arange(len(gradients) - 1, -1, -1, dtype=torch.float64)[:, None]
    weights /= weights.sum()
    centred = gradients - (weights * gradients).sum(0)
    return float((weights * centred.square()).sum(0).mean())
