"""Known bugs of twin critics, and faults that no document claims."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlcore.ppo.algorithm import DistributionalPPO
from rlverify import fault, healthy


@fault(
    "fnd-17-advantages-from-critic-1-only",
    target="rlcore.ppo.policy:TwinCriticRolloutBuffer.pessimistic",
    pins="82e927cd7d3eac7b",
)
def advantages_from_critic_1_only(critic_values: Tensor) -> Tensor:
    """Compute advantages from critic 1 only. The second critic is stored and trained."""
    return critic_values[:, 0]


@fault("fnd-18-clipped-against-critic-1", target="rlcore.ppo.losses:ValueDistribution.loss", pins="c660e8790146f649")
def clipped_against_critic_1(
    self: Any, outputs: Tensor, returns: Tensor, old_values: Tensor, clip_range_vf: float | None
) -> Tensor:
    """Clip every critic against critic 1's value in the rollout."""
    of_critic_1 = old_values[:, :1].expand_as(old_values)
    loss: Tensor = healthy("fnd-18-clipped-against-critic-1")(self, outputs, returns, of_critic_1, clip_range_vf)
    return loss


@fault("fnd-19-averaged-before-max", target="rlcore.ppo.losses:ValueDistribution.loss", pins="c660e8790146f649")
def averaged_before_max(
    self: Any, outputs: Tensor, returns: Tensor, old_values: Tensor, clip_range_vf: float | None
) -> Tensor:
    """Average the critics' losses first, then take the larger of the clipped and unclipped averages."""
    targets = returns.unsqueeze(-1).expand(-1, outputs.shape[1])
    losses = self.sample_losses(outputs, targets).mean(dim=1)
    if clip_range_vf is not None:
        clipped = self.clipped_losses(outputs, targets, old_values, clip_range_vf)
        losses = torch.max(losses, clipped.mean(dim=1))
    loss: Tensor = losses.mean()
    return loss


@fault(
    "fnd-35-critic-begun-by-its-hidden-size",
    target="rlcore.ppo.policy:initialise_inputs",
    pins="34e4c8b125da19a0",
)
def critic_begun_by_its_hidden_size(lstm: nn.LSTM) -> None:
    """Keep PyTorch's initial weights."""


@fault(
    "second-critic-detached",
    target="rlcore.ppo.policy:Critics.forward",
    pins="58952c111e5f714b",
)
def second_critic_detached(self: Any, latent: Tensor) -> Tensor:
    """Detach all critics but the first, so that they do not learn."""
    first, *others = self.heads
    return torch.stack([first(latent), *(head(latent).detach() for head in others)], dim=1)


@fault("gap-with-its-sign", target="rlcore.ppo.logging:_of_values", pins="87b2d57d2aefd56a")
def gap_with_its_sign(model: DistributionalPPO) -> Iterator[tuple[str, float]]:
    """Average signed differences of the critics, which cancel each other."""
    signed = float(np.diff(model.rollout_buffer.critic_values, axis=-1).mean())
    figures = healthy("gap-with-its-sign")(model)
    return iter([(key, signed if key == "twin_critics/divergence" else value) for key, value in figures])
