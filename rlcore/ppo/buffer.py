"""sb3-contrib's recurrent rollout buffer, with the value of every critic beside their minimum."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sb3_contrib.common.recurrent.buffers import RecurrentRolloutBuffer
from sb3_contrib.common.recurrent.type_aliases import RecurrentRolloutBufferSamples
from torch import Tensor


class TwinCriticRolloutBuffer(RecurrentRolloutBuffer):
    """Stores the mean value of each critic; advantages and returns are computed from the smallest.

    Its samples carry ``old_values`` of shape (padded batch, n_critics), so that clipping compares each critic with
    itself.

    :param n_critics: number of critics, at least 1
    """

    def __init__(self, *args: Any, n_critics: int, **kwargs: Any) -> None:
        self.n_critics = n_critics
        super().__init__(*args, **kwargs)

    def reset(self) -> None:
        super().reset()  # type: ignore[no-untyped-call]
        self.critic_values = np.zeros((self.buffer_size, self.n_envs, self.n_critics), dtype=np.float32)

    def add(  # type: ignore[override]  # upstream's own signature departs from its base's
        self,
        obs: NDArray[Any],
        action: NDArray[Any],
        reward: NDArray[Any],
        episode_start: NDArray[Any],
        value: Tensor,
        log_prob: Tensor,
        **kwargs: Any,
    ) -> None:
        """
        :param value: mean value by each critic, shape (n_envs, n_critics)
        """
        self.critic_values[self.pos] = value.cpu().numpy()
        super().add(obs, action, reward, episode_start, self.pessimistic(value), log_prob, **kwargs)

    @staticmethod
    def pessimistic(critic_values: Tensor) -> Tensor:
        """The smallest critic's value (Fujimoto et al. 2018, eq. 10), shape (n_envs,)."""
        return critic_values.amin(dim=-1)

    def get(  # type: ignore[override]
        self, batch_size: int | None = None
    ) -> Generator[RecurrentRolloutBufferSamples, None, None]:
        if not self.generator_ready:
            self.critic_values = self.swap_and_flatten(self.critic_values)
        yield from super().get(batch_size)

    def _get_samples(  # type: ignore[override]
        self, batch_inds: NDArray[Any], env_change: NDArray[Any], env: Any = None
    ) -> RecurrentRolloutBufferSamples:
        samples = super()._get_samples(batch_inds, env_change, env)
        old_values = self.pad(self.critic_values[batch_inds]).reshape(-1, self.n_critics)
        return samples._replace(old_values=old_values)
