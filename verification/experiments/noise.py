"""How loud the noise of UPGD is beside a step whose gradient was scaled to a tenth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from rlcore import DistributionalPPO
from rlcore.optim.upgd_step import noise_to_signal
from rlverify import experiment
from verification.experiments.training import trained
from verification.probes.documented_noise import DOCUMENTED
from verification.probes.make import Make

FACTOR: Final = 0.1
LEARNING_RATE: Final = 1e-4
UPDATES: Final = 8
"""Until the warm-up of 100 steps is over, at 16 an update, and one more: gradients of before are never scaled."""

Steps = Sequence[Sequence[Tensor]]


@experiment("noise-beside-a-scaled-step")
def noise_beside_a_scaled_step(make: Make, seed: int) -> Mapping[str, float]:
    """The gradients of one rollout through each optimizer, as they are and through a scaler at its floor."""
    model = trained(make, seed, UPDATES, return_scale="zero_lag")
    gradients = gradients_of(model)
    quantities = {}
    for name, optimizer_class in make.optimizers:
        for noise, kind, adaptive in (("sigma", optimizer_class, False), ("documented noise", DOCUMENTED[name], True)):
            plain, scaled = (loudness(make, model, gradients, kind, factor, adaptive) for factor in (1.0, FACTOR))
            quantities[f"noise-to-signal times, {name}, {noise}"] = scaled / plain
    return quantities


def gradients_of(model: DistributionalPPO) -> Steps:
    """Of every minibatch of the last rollout, as often as it is passed over, with no step between them."""
    found = []
    for _ in range(model.n_epochs):
        for samples in model.rollout_buffer.get(model.batch_size):
            model.policy.zero_grad()
            model._minibatch_losses(samples).total.backward()  # type: ignore[no-untyped-call]
            found.append([torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.policy.parameters()])
    return found


def loudness(
    make: Make, model: DistributionalPPO, gradients: Steps, optimizer_class: Any, factor: float, adaptive: bool
) -> float:
    """Noise-to-signal, as the geometric mean over the steps.

    :param factor: what a scaler that has seen all of these gradients before is at the floor of; 1 for no scaling
    :param adaptive: whether the noise adapts to the step; everything else is the optimizer's default
    """
    parameters = [torch.nn.Parameter(each.detach().clone()) for each in model.policy.parameters()]
    optimizer = optimizer_class(parameters, lr=LEARNING_RATE, adaptive_noise=adaptive)
    scaler = make.scaler(parameters, warmup_steps=0, alpha=1e12, min_scaling_factor=factor)
    for _ in _given(parameters, gradients):
        scaler.update_statistics()
    logarithms = []
    for _ in _given(parameters, gradients):
        scaler.scale_gradients()
        optimizer.step()
        scaler.step()
        ratio = noise_to_signal(optimizer)
        assert ratio is not None, "every step has a direction"
        logarithms.append(math.log(ratio))
    return math.exp(sum(logarithms) / len(logarithms))


def _given(parameters: Sequence[Tensor], gradients: Steps) -> Iterator[None]:
    """Each set of gradients in turn, as it was."""
    for gradient in gradients:
        for parameter, part in zip(parameters, gradient, strict=True):
            parameter.grad = part.clone()
        yield
