"""What the next step starts from, for the algorithms of Stable-Baselines3: observations, and the states of LSTMs."""

from __future__ import annotations

from typing import Any

from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.base_class import BaseAlgorithm

from rlcore.state import position
from rlcore.types import StateDict


def capture_position(model: BaseAlgorithm) -> StateDict | None:
    """Return what the next step starts from, or None before the model has reset its environments."""
    state = position.capture_position(model)
    return None if state is None else {**state, **_lstm_states(model)}


def restore_position(model: BaseAlgorithm, state: StateDict | None) -> None:
    """Let the next step start from what :func:`capture_position` returned.

    :raises StateError: ``state`` is of other observations, environments or LSTMs; nothing was changed
    """
    if state is None:
        return
    fitted = position.fit_position(state, _lstm_states(model), "position", model.observation_space, model.n_envs)
    position.restore_position(model, fitted)
    if fitted["lstm_states"] is not None:
        parts = [part.to(model.device, copy=True) for part in fitted["lstm_states"]]
        now: Any = model
        now._last_lstm_states = RNNStates((parts[0], parts[1]), (parts[2], parts[3]))


def _lstm_states(model: BaseAlgorithm) -> StateDict:
    states = getattr(model, "_last_lstm_states", None)  # of RecurrentPPO
    return {"lstm_states": None if states is None else [*states.pi, *states.vf]}
