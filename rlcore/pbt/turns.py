"""One member's training in turns, as if it were alone in the process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stable_baselines3.common.utils import set_random_seed

from rlcore.errors import NonFiniteGradientError, NonFiniteReturnError
from rlcore.ppo.components import apply_generators, capture_generators

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
        :raises NonFiniteGradientError: if an update cannot be made; it leaves no trace, its rollout is lost, and the
            next turn goes on from where the environments stand
        :raises NonFiniteReturnError: the same
        """
        model = self.model
        assert model.env is not None, "learn() cannot be entered without an environment"
        for _ in range(updates):
            model.collect_rollouts(model.env, self._callback, model.rollout_buffer, n_rollout_steps=model.n_steps)
            model._update_current_progress_remaining(model.num_timesteps, self.total_timesteps)
            for key, value in figures.items():
                model.logger.record(key, value)
            model.dump_logs(model.num_timesteps // (model.n_steps * model.n_envs))
            try:
                model.train()
            except (NonFiniteGradientError, NonFiniteReturnError):
                model._boundary = None
                raise
