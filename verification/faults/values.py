"""Known bugs of twin critics: whose value counts, whose is clipped against, and what is averaged when."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from verification.faults import fault, healthy


@fault(
    "fnd-17-advantages-from-critic-1-only",
    target="rlcore.ppo.buffer:TwinCriticRolloutBuffer.pessimistic",
    pins="3a616720ee6251da",
)
def advantages_from_critic_1_only(critic_values: Tensor) -> Tensor:
    """The second critic is stored and trained, and nothing is computed from it."""
    return critic_values[:, 0]


@fault("fnd-18-clipped-against-critic-1", target="rlcore.ppo.values:ValueDistribution.loss", pins="e3168623788bfbfe")
def clipped_against_critic_1(
    self: Any, outputs: Tensor, returns: Tensor, old_values: Tensor, clip_range_vf: float | None
) -> Tensor:
    """Every critic is compared with what critic 1 said in the rollout."""
    of_critic_1 = old_values[:, :1].expand_as(old_values)
    loss: Tensor = healthy("fnd-18-clipped-against-critic-1")(self, outputs, returns, of_critic_1, clip_range_vf)
    return loss


@fault("fnd-19-averaged-before-max", target="rlcore.ppo.values:ValueDistribution.loss", pins="e3168623788bfbfe")
def averaged_before_max(
    self: Any, outputs: Tensor, returns: Tensor, old_values: Tensor, clip_range_vf: float | None
) -> Tensor:
    """The critics are averaged first, and the larger of the two averages taken."""
    targets = returns.unsqueeze(-1).expand(-1, outputs.shape[1])
    losses = self.sample_losses(outputs, targets).mean(dim=1)
    if clip_range_vf is not None:
        clipped = self.clipped_sample_losses(outputs, targets, old_values, clip_range_vf)
        losses = torch.max(losses, clipped.mean(dim=1))
    loss: Tensor = losses.mean()
    return loss
