"""One member's training in turns, as if it were alone in the process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import numpy as np
from stable_baselines3.common.utils import set_random_seed

from rlcore.errors import NonFiniteError
from rlcore.state.generators import apply_generators, capture_generators

if TYPE_CHECKING:
    from stable_baselines3.common.callbacks import BaseCallback

    from rlcore.ppo.algorithm import DistributionalPPO


class OwnGenerators:
    """The global generators as one member has them: what others draw in between changes nothing for it.

    :param seed: of Python's, NumPy's and torch's generators at first
    """

    def __init__(self, seed: int) -> None:
        outside = capture_generators()
        set_random_seed(seed)
        self._state = capture_generators()
        apply_generators(outside)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put them in place, and put back what was there."""
        outside = capture_generators()
        apply_generators(self._state)
        try:
            yield
        finally:
            self._state = capture_generators()
            apply_generators(outside)


class TurnwiseTraining:
    """``learn()`` in pieces: after all of them the model has the bits that one call would have left.

    A model that was loaded goes on where its run stood.

    :param total_timesteps: of the whole run, what the model has already made included; schedules count by it
    :param name: of the run in TensorBoard
    """

    def __init__(self, model: DistributionalPPO, total_timesteps: int, name: str) -> None:
        self.model = model
        left = max(0, total_timesteps - model.num_timesteps)
        self.total_timesteps, self._callback = self._entered(left, name)

    def _entered(self, left: int, name: str) -> tuple[int, BaseCallback]:
        return self.model._setup_learn(left, reset_num_timesteps=False, tb_log_name=name)

    def advance(self, updates: int, figures: Mapping[str, float]) -> None:
        """Collect a rollout and update, several times.

        :param figures: what is logged with every rollout beside the model's own
        :raises NonFiniteError: if a rollout or an update cannot be made; it leaves no trace, the rollout is lost, and
            the next turn goes on from where the environments are, or from a reset if they returned NaN
        """
        for _ in range(updates):
            try:
                self._advance_once(figures)
            except NonFiniteError:
                self.model._boundary = None
                with suppress(NonFiniteError):  # an environment that returns NaN again is reset in the next turn
                    self._reset_if_lost()
                raise

    def _reset_if_lost(self) -> None:
        """Reset the environments if what they returned last could not be used."""
        model = self.model
        assert model.env is not None, "learn() cannot be entered without an environment"
        if model._last_obs is None:
            model._last_obs = model.env.reset()
            model._last_episode_starts = np.ones(model.n_envs, dtype=bool)

    def _advance_once(self, figures: Mapping[str, float]) -> None:
        model = self.model
        self._reset_if_lost()
        assert model.env is not None
        model.collect_rollouts(model.env, self._callback, model.rollout_buffer, n_rollout_steps=model.n_steps)
        model._update_current_progress_remaining(model.num_timesteps, self.total_timesteps)
        for key, value in figures.items():
            model.logger.record(key, value)
        model.dump_logs(model.num_timesteps // (model.n_steps * model.n_envs))
        model.train()
