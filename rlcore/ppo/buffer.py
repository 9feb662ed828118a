"""sb3-contrib's recurrent rollout buffers, with the value of every critic and their minimum."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from sb3_contrib.common.recurrent.buffers import RecurrentDictRolloutBuffer, RecurrentRolloutBuffer
from sb3_contrib.common.recurrent.type_aliases import RecurrentDictRolloutBufferSamples, RecurrentRolloutBufferSamples
from torch import Tensor
from torch.utils._pytree import tree_map

if TYPE_CHECKING:
    _Base = RecurrentRolloutBuffer
else:
    _Base = object

Samples = RecurrentRolloutBufferSamples | RecurrentDictRolloutBufferSamples


class TwinCriticStorage(_Base):
    """Stores the mean value of each critic; advantages and returns are computed from the smallest.

    Samples carry ``old_values`` of shape (padded batch, n_critics), so that clipping compares each critic with itself.
    """

    def __init__(self, *args: Any, n_critics: int, **kwargs: Any) -> None:
        self.n_critics = n_critics
        super().__init__(*args, **kwargs)

    def reset(self) -> None:
        super().reset()  # type: ignore[no-untyped-call]
        self.critic_values = np.zeros((self.buffer_size, self.n_envs, self.n_critics), dtype=np.float32)
        is_index = isinstance(self.action_space, spaces.Discrete | spaces.MultiDiscrete)
        self.actions = np.zeros(self.actions.shape, np.int64 if is_index else np.float32)  # as the policy puts them out

    def add(self, *args: Any, **kwargs: Any) -> None:
        """Add a step as upstream, where the values are the mean by each critic, of shape (n_envs, n_critics)."""
        *step, values, log_prob = args
        self.critic_values[self.pos] = values.cpu().numpy()
        super().add(*step, self.pessimistic(values), log_prob, **kwargs)

    @staticmethod
    def pessimistic(critic_values: Tensor) -> Tensor:
        """Return the smallest critic's value (Fujimoto et al. 2018, eq. 10), shape (n_envs,)."""
        return critic_values.amin(dim=-1)

    def get(self, batch_size: int | None = None) -> Generator[Samples, None, None]:  # type: ignore[override]
        if not self.generator_ready:
            self.critic_values = self.swap_and_flatten(self.critic_values)
        yield from super().get(batch_size)

    def _get_samples(self, batch_inds: NDArray[Any], *args: Any) -> Samples:  # type: ignore[override]
        device, self.device = self.device, torch.device("cpu")
        try:  # upstream sends each sequence of each field to the device by itself, and waits for it
            samples = super()._get_samples(batch_inds, *args)
            old_values = self.pad(self.critic_values[batch_inds]).reshape(-1, self.n_critics)
        finally:
            self.device = device
        moved: Samples = tree_map(lambda tensor: tensor.to(device), samples._replace(old_values=old_values))
        return moved


class TwinCriticRolloutBuffer(TwinCriticStorage, RecurrentRolloutBuffer):
    """For observations that are one array."""


class TwinCriticDictRolloutBuffer(TwinCriticStorage, RecurrentDictRolloutBuffer):  # type: ignore[misc]
    """For Dict observations."""


TwinCriticBuffer = TwinCriticRolloutBuffer | TwinCriticDictRolloutBuffer


def buffer_class(observation_space: spaces.Space[Any]) -> type[TwinCriticBuffer]:
    """Return the buffer for observations of that space."""
    return TwinCriticDictRolloutBuffer if isinstance(observation_space, spaces.Dict) else TwinCriticRolloutBuffer
