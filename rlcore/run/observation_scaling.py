"""Normalises observations as VecNormalize did in training, from the statistics in a file and without an environment."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from rlcore.errors import StateError
from rlcore.state_fields import mistyped, require_dict
from rlcore.types import StateDict, StateValue

Observation = Any
"""An array of numbers, or a dict of them by the keys of a Dict space."""

DEFAULTS = {"norm_obs": True, "clip_obs": 10.0, "epsilon": 1e-8}
"""VecNormalize's own, for statistics that were saved without them."""


@dataclass(frozen=True)
class Scaling:
    """What one VecNormalize does to one array: ``clip((x - mean) / sqrt(var + epsilon))``, in float64.

    :param key: the entry of a Dict observation, or None for the whole
    :param mean: shape of the observation
    :param deviation: sqrt(var + epsilon), of that shape
    :param clip: largest absolute value of the result
    """

    key: str | None
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    clip: float

    @classmethod
    def from_state(cls, layer: StateDict, moments: StateValue, space: spaces.Space[Any]) -> Self:
        """
        :raises StateError: if the statistics are damaged or of another observation space
        """
        record = require_dict(moments, "observation statistics")
        key = record.get("key")
        part = space.spaces.get(key) if isinstance(space, spaces.Dict) else space if key is None else None  # type: ignore[arg-type]
        if part is None or part.shape is None:
            raise StateError(f"observation statistics of {key!r}, which these observations do not have")
        mean, var = (_moment(record.get(name), part.shape, name) for name in ("mean", "var"))
        epsilon, clip = _number(layer, "epsilon"), _number(layer, "clip_obs")
        return cls(None if key is None else str(key), mean, np.sqrt(var + epsilon), clip)

    def __call__(self, observation: Observation) -> Observation:
        """
        :param observation: shape (..., *mean.shape), or a dict that has such an array
        :return: float32 of the same shape
        """
        if self.key is not None:
            return {**observation, self.key: self._scaled(observation[self.key])}
        return self._scaled(observation)

    def _scaled(self, values: NDArray[Any]) -> NDArray[np.float32]:
        return np.clip((values - self.mean) / self.deviation, -self.clip, self.clip).astype(np.float32)


def read_scalings(state: StateDict, space: spaces.Space[Any]) -> list[Scaling]:
    """What the VecNormalize wrappers of a saved ``normalizer_state`` do to observations, in the order in which they do.

    :param space: of the observations
    :raises StateError: if the state is damaged or of another observation space
    """
    layers: Any = state.get("layers")
    if not isinstance(layers, list):
        raise mistyped("normalizer_state['layers']", "a list", layers)
    scalings: list[Scaling] = []
    for layer in reversed([require_dict(entry, "normalizer_state['layers']") for entry in layers]):
        observation = layer.get("observation")
        if not isinstance(observation, list):
            raise mistyped("normalizer_state['observation']", "a list", observation)
        if layer.get("norm_obs", DEFAULTS["norm_obs"]) is not False:
            scalings += [Scaling.from_state(layer, moments, space) for moments in observation]
    return scalings


def _moment(value: StateValue, shape: tuple[int, ...], name: str) -> NDArray[np.float64]:
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float64 or tuple(value.shape) != shape:
        raise mistyped(f"observation statistics {name}", f"a tensor of torch.float64 with shape {shape}", value)
    array: NDArray[np.float64] = value.cpu().numpy()
    if not np.isfinite(array).all() or (name == "var" and (array < 0).any()):
        raise StateError(f"observation statistics {name} hold NaN, infinity or a variance below 0; the file is damaged")
    return array


def _number(layer: StateDict, name: str) -> float:
    value = layer.get(name, DEFAULTS[name])
    if not isinstance(value, float) or math.isnan(value) or value <= 0:
        raise mistyped(f"normalizer_state['{name}']", "a number above 0", value)
    return value
