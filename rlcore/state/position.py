"""What the next step starts from: the last observations, as the policy and the environments have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from torch import Tensor

from rlcore.checkpoint import codec
from rlcore.checkpoint.values import DTYPES
from rlcore.errors import CheckpointError, NonFiniteObservationError, StateError
from rlcore.state.tree import FREE, REMEDY, describe, fit
from rlcore.types import StateDict, StateValue

Observations = NDArray[Any] | dict[str, NDArray[Any]]


def capture_position(model: BaseAlgorithm) -> StateDict | None:
    """Return what the next step starts from, or None before the model has reset its environments.

    ``observations`` are those that the policy reads, ``original_observations`` those before VecNormalize.
    """
    now: Any = model  # SB3 declares what it sets later as None
    if now._last_obs is None:
        return None
    return {
        "observations": to_state(now._last_obs),
        "original_observations": to_state(now._last_original_obs),
        "episode_starts": torch.as_tensor(now._last_episode_starts),
    }


def fit_position(state: object, lstm: StateDict, where: str, space: spaces.Space[Any], n_envs: int) -> dict[str, Any]:
    """Return the state of :func:`capture_position` with LSTM states, all of ``n_envs`` environments.

    :param lstm: the form of the LSTM states, by name
    :raises StateError: of other observations, environments or LSTMs
    """
    free = dict.fromkeys(("observations", "original_observations", "episode_starts"), FREE)
    fitted: dict[str, Any] = fit(state, {**lstm, **dict.fromkeys(free)}, where, free)
    starts = fitted["episode_starts"]
    form = torch.zeros(n_envs, dtype=starts.dtype if isinstance(starts, Tensor) else torch.float32)
    fit(starts, form, f"{where}['episode_starts']", {})
    if not bool(((starts == 0) | (starts == 1)).all()):
        raise StateError(f"{where}['episode_starts'] holds other values than 0 and 1; the state is damaged")
    _check(from_state(fitted["observations"]), f"{where}['observations']", space, n_envs)
    if fitted["original_observations"] is not None:
        _check(from_state(fitted["original_observations"]), f"{where}['original_observations']", None, n_envs)
    return fitted


def restore_position(model: BaseAlgorithm, fitted: Mapping[str, Any]) -> None:
    """Let the next step start from what :func:`fit_position` returned; the LSTM states are left to the caller."""
    now: Any = model
    now._last_obs = from_state(fitted["observations"])
    now._last_original_obs = from_state(fitted["original_observations"])
    now._last_episode_starts = fitted["episode_starts"].cpu().numpy().copy()


def to_state(observations: Observations | None) -> StateValue:
    """Return a tensor for an array, a dict for a Dict; an array of a type that torch lacks is encoded as its bytes."""
    if observations is None:
        return None
    if isinstance(observations, Mapping):
        return {key: to_state(part) for key, part in observations.items()}
    tensor = torch.as_tensor(observations)
    return tensor if tensor.dtype in DTYPES.values() else codec.encode(observations, "observations")


def from_state(state: Any) -> Any:
    """Return what :func:`to_state` was given.

    :raises StateError: the state is damaged
    """
    if state is None:
        return None
    if isinstance(state, Tensor):
        return state.cpu().numpy()
    if not isinstance(state, dict):
        raise StateError(f"the observations are {describe(state)}, no array and no dict of arrays; they are damaged")
    if codec.KIND not in state:
        return {key: from_state(part) for key, part in state.items()}
    try:
        return codec.decode(state, "observations", {})
    except CheckpointError as error:
        raise StateError(f"the observations are damaged: {error.reason}") from error


def _check(value: Any, where: str, space: spaces.Space[Any] | None, n_envs: int) -> None:
    """Raise StateError unless these are observations of ``space`` (None for any), one for each environment."""
    keys = set(space) if isinstance(space, spaces.Dict) else None
    if isinstance(value, dict) and (space is None or set(value) == keys):
        for key, part in value.items():
            _check(part, f"{where}[{key!r}]", None if space is None else space[key], n_envs)  # type: ignore[index]
        return
    shape = value.shape if isinstance(value, np.ndarray) else None
    if shape is None or keys is not None or shape != (n_envs, *(shape[1:] if space is None else space.shape or ())):
        wanted = f"a dict of {sorted(keys)}" if keys is not None else "an array for each environment of the space"
        raise StateError(f"{where} must be {wanted}, and has the shape {shape}; {REMEDY}")
    if space is None:
        return
    if not np.isfinite(value).all():
        raise StateError(f"{where} holds NaN or infinity, from which no run goes on; the state is damaged")
    sizes = space.n if isinstance(space, spaces.Discrete) else getattr(space, "nvec", None)
    if sizes is not None and not (value.dtype.kind in "iu" and bool(((value >= 0) & (value < sizes)).all())):
        raise StateError(f"{where} holds other values than {space} has; the state is damaged")


class CheckedObservations(BaseAlgorithm):
    """Goes before an algorithm of Stable-Baselines3, which assigns ``_last_obs`` after every reset and step."""

    _checked_obs: Observations | None = None

    @property
    def _last_obs(self) -> Observations | None:
        """What the environments returned last; None before the first reset, and after NaN or infinity."""
        return self._checked_obs

    @_last_obs.setter
    def _last_obs(self, returned: Any) -> None:
        self._checked_obs = None
        if found := _non_finite_rows(returned):
            # One NaN in the statistics of VecNormalize makes the observations of all environments NaN.
            normalizer = self._vec_normalize_env
            found = found if normalizer is None else _non_finite_rows(normalizer.get_original_obs()) or found
            raise NonFiniteObservationError(
                found,
                f"the observation of environment {', '.join(map(str, found))} holds NaN or infinity, so no action "
                "would follow; look at what reset() and step() return there (VecCheckNan finds the step). Nothing that "
                "was learnt has changed, and learn() would start from a reset of the environments.",
            )
        self._checked_obs = returned


def _non_finite_rows(observations: Any) -> tuple[int, ...]:
    parts = observations.values() if isinstance(observations, dict) else [] if observations is None else [observations]
    bad = [part for part in parts if not np.isfinite(part).all()]
    return tuple(sorted({int(row) for part in bad for row in np.argwhere(~np.isfinite(part))[:, 0]}))
