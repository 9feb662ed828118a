"""Parts of the core that meet: a correction of the critics and what an optimizer keeps, a sketch and where noise is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rlcore import DistributionalPPO
from rlverify import Observation, probe
from verification.probes.make import Make

HUGE = 1e30
"""An eps beside which every denominator vanishes, so that the normalized variance times it is the variance."""


@probe("what-an-optimizer-keeps-follows-a-correction-of-the-heads")
def what_an_optimizer_keeps_follows_a_correction(make: Make, seed: int) -> Sequence[Observation]:
    """Train, then let the return scale grow a hundredfold: heads are corrected, and a utility is -gradient * weight."""
    model = make.model(seed, return_scale_decay=0.0)
    model.learn(3 * 96)
    layers = [*model.policy.value_net.output_layers()]
    before, weights = _utilities(model, layers), [layer.weight.detach().clone() for layer in layers]
    old = model.value_scale.snapshot
    model.rollout_buffer.returns *= 100.0
    model._scale_returns()
    factor = old.std / model.value_scale.snapshot.std
    after = _utilities(model, layers)
    moved = all(torch.allclose(x.weight, factor * y, rtol=1e-4) for x, y in zip(layers, weights, strict=True))
    follow = all(torch.allclose(x, factor * y, rtol=1e-4) for x, y in zip(after, before, strict=True))
    stay = all(torch.equal(x, y) for x, y in zip(after, before, strict=True))
    found = "divided too" if follow else "as they were" if stay else "others"
    return [
        Observation("weights of the heads, divided by how much the scale grew", "yes", "yes" if moved else "no", moved),
        Observation("their utilities", "divided too", found, holds=follow),
    ]


def _utilities(model: DistributionalPPO, layers: Sequence[nn.Linear]) -> list[Tensor]:
    state: Any = model.policy.optimizer.state_dict()
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    parameters = [each for group in model.policy.optimizer.param_groups for each in group["params"]]
    position = {id(parameter): number for parameter, number in zip(parameters, numbers, strict=True)}
    return [state["state"][position[id(layer.weight)]]["utility"].clone() for layer in layers]


@probe("a-sketch-is-wrong-about-noise-in-few-elements")
def a_sketch_is_wrong_about_noise_in_few_elements(make: Make, seed: int) -> Sequence[Observation]:
    """Noise in eight of 4096 elements: among those that the sketch has drawn, and among those that it has not."""
    parameter = nn.Parameter(torch.zeros(4096))
    state: Any = make.scaler([parameter], estimator="sketch").state_dict()
    drawn = set(state["estimator_state"]["coordinates"][0].tolist())
    order = torch.randperm(4096, generator=torch.Generator().manual_seed(seed)).tolist()
    observations = []
    for case, among, expected in (("some of the elements drawn", True, "64 times"), ("others", False, "none")):
        noisy = [element for element in order if (element in drawn) == among][:8]
        found = _variance_with_noise_in(make, parameter, noisy) / (0.25 * len(noisy) / 4096)
        text = "about the whole" if 0.5 < found < 2.0 else "none" if found < 1e-6 else f"{round(found)} times"
        symptom = f"share of the noise that a sketch sees, in {case}"
        observations.append(Observation(symptom, expected, text, holds=text == expected))
    return observations


def _variance_with_noise_in(make: Make, parameter: nn.Parameter, noisy: Sequence[int]) -> float:
    scaler = make.scaler([parameter], estimator="sketch", eps=HUGE)
    for step in range(100):
        gradient = torch.zeros(4096)
        gradient[list(noisy)] = 0.5 if step % 2 else -0.5
        parameter.grad = gradient
        scaler.update_statistics()
    return scaler.get_normalized_variance() * HUGE
