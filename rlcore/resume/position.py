"""What the next step starts from: the last observations, episode starts, and the states of LSTMs."""

from __future__ import annotations

from typing import Any

import torch
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.base_class import BaseAlgorithm

from rlcore.errors import StateError
from rlcore.ppo import observations
from rlcore.state.schema import misfit, read_list, read_record, read_tensor
from rlcore.types import StateDict

_FIELDS = ("observations", "original_observations", "episode_starts", "lstm_states")
_LSTM = "_last_lstm_states"  # of RecurrentPPO


def capture_position(model: BaseAlgorithm) -> StateDict | None:
    """Return what the next step starts from, or None before the model has reset its environments.

    ``observations`` are those that the policy reads, ``original_observations`` those before VecNormalize.
    """
    now: Any = model  # SB3 declares what it sets later as None
    if now._last_obs is None:
        return None
    states = getattr(model, _LSTM, None)
    return {
        "observations": observations.to_state(now._last_obs),
        "original_observations": observations.to_state(now._last_original_obs),
        "episode_starts": torch.as_tensor(now._last_episode_starts),
        "lstm_states": None if states is None else [*states.pi, *states.vf],
    }


def restore_position(model: BaseAlgorithm, state: StateDict | None) -> None:
    """Let the next step start from what :func:`capture_position` returned.

    :raises StateError: ``state`` is of other observations, environments or LSTMs; nothing was changed
    """
    if state is None:
        return
    record = read_record(state, "position", _FIELDS)
    observations.check("position['observations']", record["observations"], model.observation_space, model.n_envs)
    if record["original_observations"] is not None:
        name = "position['original_observations']"
        observations.check_number(name, record["original_observations"], model.n_envs)
    starts = record["episode_starts"]
    if not isinstance(starts, torch.Tensor) or starts.shape != (model.n_envs,):
        raise misfit("position['episode_starts']", f"a tensor with shape ({model.n_envs},)", starts)
    lstm_states = _lstm_states(model, record["lstm_states"])
    now: Any = model
    now._last_obs = _copy(observations.from_state(record["observations"]))
    now._last_original_obs = _copy(observations.from_state(record["original_observations"]))
    now._last_episode_starts = starts.cpu().numpy().copy()
    if lstm_states is not None:
        now._last_lstm_states = lstm_states


def _lstm_states(model: BaseAlgorithm, saved: Any) -> RNNStates | None:
    present = getattr(model, _LSTM, None)
    if present is None or saved is None:
        if present is not saved:
            raise StateError("only one of the file and the model has states of LSTMs; the file is damaged")
        return None
    own = [*present.pi, *present.vf]
    parts = [
        read_tensor(part, "position['lstm_states']", tuple(mine.shape)).to(model.device, copy=True)
        for part, mine in zip(read_list(saved, "position['lstm_states']", len(own)), own, strict=True)
    ]
    return RNNStates((parts[0], parts[1]), (parts[2], parts[3]))


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(part) for key, part in value.items()}
    return None if value is None else value.copy()
