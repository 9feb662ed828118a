"""How a correction of the critics' weights affects the optimizer's state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rlcore import DistributionalPPO
from rlverify import Observation, probe
from verification.probes.make import Make


@probe("what-an-optimizer-keeps-follows-a-correction-of-the-heads")
def what_an_optimizer_keeps_follows_a_correction(make: Make, seed: int) -> Sequence[Observation]:
    """Train, then let the return scale grow 100 times, which divides the weights of the critics' output layers.

    A utility is -gradient * weight, so it must be divided by the same factor.
    """
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
    found = "divided by the same factor" if follow else "unchanged" if stay else "changed otherwise"
    return [
        Observation(
            "critics' output weights divided by the growth of the return scale", "yes", "yes" if moved else "no", moved
        ),
        Observation("utilities of the critics' output weights", "divided by the same factor", found, holds=follow),
    ]


def _utilities(model: DistributionalPPO, layers: Sequence[nn.Linear]) -> list[Tensor]:
    state: Any = model.policy.optimizer.state_dict()
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    parameters = [each for group in model.policy.optimizer.param_groups for each in group["params"]]
    position = {id(parameter): number for parameter, number in zip(parameters, numbers, strict=True)}
    return [state["state"][position[id(layer.weight)]]["utility"].clone() for layer in layers]
