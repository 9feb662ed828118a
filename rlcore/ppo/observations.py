"""Observations are checked whenever environments return them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm

from rlcore.errors import NonFiniteObservationError
from rlcore.state.position import Observations, is_finite, parts_of
from rlcore.state.registry import Scope, TrainingState


def require_finite(observations: Observations, raw: Callable[[], Observations]) -> None:
    """Refuse what no action could follow from.

    :param observations: what the policy reads, shape (n_envs, *shape), or a dict of such
    :param raw: gives what the environments returned, before VecNormalize made every one NaN because of one
    :raises NonFiniteObservationError: for NaN or infinity, naming the environments that returned it
    """
    if is_finite(observations):
        return
    found = _non_finite_rows(raw()) or _non_finite_rows(observations)
    several = len(found) > 1
    raise NonFiniteObservationError(
        found,
        f"the observation{'s' * several} of environment{'s' * several} {', '.join(map(str, found))} "
        f"{'hold' if several else 'holds'} NaN or infinity, so no action would follow; look at what reset() and step() "
        "return there (VecCheckNan finds the step). Nothing that was learnt has changed, and learn() would start from "
        "a reset of the environments.",
    )


def _non_finite_rows(observations: Observations) -> tuple[int, ...]:
    rows = {int(row) for part in parts_of(observations) for row in np.argwhere(~np.isfinite(part))[:, 0]}
    return tuple(sorted(rows))


class CheckedObservations(BaseAlgorithm):
    """Goes before an algorithm of Stable-Baselines3, which assigns ``_last_obs`` after every reset and step."""

    _checked_obs: Observations | None = None

    @property
    def _last_obs(self) -> Observations | None:
        """What the environments returned last; None before the first reset, and after what nothing can follow from."""
        return self._checked_obs

    @_last_obs.setter
    def _last_obs(self, returned: Any) -> None:
        """
        :raises NonFiniteObservationError: for NaN or infinity
        """
        self._checked_obs = None
        if returned is not None:
            require_finite(returned, lambda: self._as_returned(returned))
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
