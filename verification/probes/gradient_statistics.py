"""What variance gradient scaling takes for the variance of a gradient, and of which gradient."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rlverify import Observation, probe
from verification.probes.make import Make

HUGE = 1e30
"""An eps beside which every denominator vanishes, so that the normalized variance times it is the variance."""


CLIPPED_TO = 0.5
OF_RAW = "that of the raw gradients"


@probe("constant-gradient-has-no-variance")
def constant_gradient_has_no_variance(make: Make, seed: int) -> Sequence[Observation]:
    """The same pattern of +0.5 and -0.5 in every step, and the same with a sign that changes from step to step."""
    pattern = torch.tensor([0.5, -0.5] * 8)[torch.randperm(16, generator=torch.Generator().manual_seed(seed))]
    signs = [1.0, -1.0] * 50
    constant, changing = (_element_variance(make, [sign * pattern for sign in each]) for each in ([1.0] * 100, signs))
    return [
        Observation("variance of a gradient that never changes", "0.00", f"{constant:.2f}", abs(constant) < 0.005),
        Observation("variance of a gradient of changing sign", "0.25", f"{changing:.2f}", abs(changing - 0.25) < 0.005),
    ]


@probe("variance-beside-a-large-mean-is-kept")
def variance_beside_a_large_mean_is_kept(make: Make, seed: int) -> Sequence[Observation]:
    """Float32 gradients with the mean 1 and the standard deviation 1e-4: the variance of 1e-8 is below 1's rounding."""
    generator = torch.Generator().manual_seed(seed)
    history = [1.0 + 1e-4 * torch.randn(256, generator=generator) for _ in range(300)]
    measured = _element_variance(make, history)
    expected = _exact_element_variance(history, beta=0.99)
    close = 0.9 < measured / expected < 1.1
    found = "within a tenth of it" if close else "negative" if measured < 0.0 else "off by more than a tenth"
    return [Observation("variance, of a true 1e-8", "within a tenth of it", found, holds=close)]


@probe("statistics-are-of-raw-gradients")
def statistics_are_of_raw_gradients(make: Make, seed: int) -> Sequence[Observation]:
    """Scale, clip to a norm of 0.5 and step, beside a scaler that is shown the same gradients and does nothing else."""
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
    found = OF_RAW if is_raw else "the clipping limit" if abs(norm - CLIPPED_TO) < 1e-3 else "another"
    same = scaler.get_normalized_variance() == watcher.get_normalized_variance()
    return [
        Observation("norm of the gradient in the statistics", OF_RAW, found, holds=is_raw),
        Observation("normalized variance", OF_RAW, OF_RAW if same else "another", holds=same),
    ]


def _element_variance(make: Make, history: Iterable[Tensor]) -> float:
    """mean_s Var_t[g] as the scaler measures it."""
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
