"""What the next step of a rollout starts from, checked whenever environments have returned it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm

from rlcore.errors import NonFiniteObservationError
from rlcore.ppo import observations
from rlcore.state.registry import Scope, TrainingState


class CheckedObservations(BaseAlgorithm):
    """Goes before an algorithm of Stable-Baselines3, which assigns ``_last_obs`` after every reset and step."""

    _checked_obs: observations.Observations | None = None

    @property
    def _last_obs(self) -> observations.Observations | None:
        """What the environments returned last; None before the first reset, and after what nothing can follow from."""
        return self._checked_obs

    @_last_obs.setter
    def _last_obs(self, returned: Any) -> None:
        """
        :raises NonFiniteObservationError: for NaN or infinity
        """
        self._checked_obs = None
        if returned is not None:
            observations.require_finite(returned, lambda: self._as_returned(returned))
        self._checked_obs = returned

    def _as_returned(self, normalized: Any) -> Any:
        normalizer = self._vec_normalize_env
        return normalized if normalizer is None else normalizer.get_original_obs()

    @contextmanager
    def _normalizer_unspoilt(self, training_state: TrainingState) -> Iterator[None]:
        """Put back what VecNormalize had learnt, where an observation that it read cannot be used."""
        before = training_state.capture(Scope.COLLECTED)
        try:
            yield
        except NonFiniteObservationError:
            training_state.restore(before, exact_match=False)
            raise
