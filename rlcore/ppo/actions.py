"""Action distributions for spaces whose first action is not 0, which Stable-Baselines3 takes for 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.distributions import (
    CategoricalDistribution,
    Distribution,
    MultiCategoricalDistribution,
)
from torch import Tensor


class OffsetCategorical(CategoricalDistribution):
    """A categorical distribution over ``start .. start + action_dim - 1``; actions of shape (batch,)."""

    def __init__(self, action_dim: int, start: int) -> None:
        super().__init__(action_dim)
        self.start = start

    def log_prob(self, actions: Tensor) -> Tensor:
        return super().log_prob(actions - self.start)

    def sample(self) -> Tensor:
        return super().sample() + self.start

    def mode(self) -> Tensor:
        return super().mode() + self.start


class OffsetMultiCategorical(MultiCategoricalDistribution):
    """Independent categorical distributions, each from its own start; actions of shape (batch, len(start))."""

    def __init__(self, action_dims: list[int], start: list[int]) -> None:
        super().__init__(action_dims)
        self.start = start

    def log_prob(self, actions: Tensor) -> Tensor:
        return super().log_prob(actions - self._offsets(actions))

    def sample(self) -> Tensor:
        actions = super().sample()
        return actions + self._offsets(actions)

    def mode(self) -> Tensor:
        actions = super().mode()
        return actions + self._offsets(actions)

    def _offsets(self, like: Tensor) -> Tensor:
        return torch.tensor(self.start, dtype=like.dtype, device=like.device)


def action_distribution(space: spaces.Space[Any], from_zero: Distribution) -> Distribution:
    """
    :param from_zero: Stable-Baselines3's distribution for ``space``
    :return: the same, or over the space's own actions where they start elsewhere
    """
    if isinstance(space, spaces.Discrete) and space.start != 0:
        return OffsetCategorical(int(space.n), int(space.start))
    if isinstance(space, spaces.MultiDiscrete) and bool(np.any(space.start)):
        return OffsetMultiCategorical(space.nvec.tolist(), space.start.tolist())
    return from_zero
