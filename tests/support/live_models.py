"""What a live model is like, in the bits, for comparing it with what it was and with another."""

from __future__ import annotations

import io
from typing import Any

from rlcore import DistributionalPPO, load_checkpoint, save_checkpoint
from rlcore.ppo import saving
from rlcore.state.training import LEARNT, Scope

OPTIMIZER = "policy.optimizer"


def captured(model: DistributionalPPO, *scopes: Scope) -> dict[str, Any]:
    """The state of the scopes, without the generators, which belong to no model."""
    state: dict[str, Any] = model._training_state().capture(*(scopes or Scope))
    if "rng_state" not in model.pending_state:
        state.pop("rng_state", None)
    return state


def whole(model: DistributionalPPO) -> dict[str, Any]:
    """What a file of the model would hold, settings included, and what else copies of the settings train with."""
    buffer, remaining = model.rollout_buffer, model._current_progress_remaining
    content = model.__getstate__()
    return {
        "state": content["state"],
        "settings": {name: value for name, value in content["settings"].items() if not callable(value)},
        "live": captured(model),
        "buffer": [buffer.gamma, buffer.gae_lambda],
        "schedules": [model.lr_schedule(remaining), model.clip_range(remaining)],
        "policy": [model.policy.critic_lr_multiplier, model.policy.optimizer_kwargs],
    }


def without_settings(state: dict[str, Any]) -> dict[str, Any]:
    """What was learnt, without the settings that its keepers note beside it and that stay each model's own."""
    optimizer, scaler = state[OPTIMIZER], state["vgs_state"]
    own = {name.removeprefix("vgs_") for name in saving.SCALER_SETTINGS}
    statistics = scaler and {key: value for key, value in scaler.items() if key not in own}
    return {**state, OPTIMIZER: optimizer["state"], "vgs_state": statistics}


def learnt(model: DistributionalPPO) -> dict[str, Any]:
    return without_settings(captured(model, *LEARNT))


def held(model: DistributionalPPO) -> dict[str, Any]:
    """What a file of the model would hold of what was learnt."""
    state = model.__getstate__()["state"]
    return without_settings({key: state[key] for key in captured(model, *LEARNT)})


def counters(model: DistributionalPPO) -> dict[str, int]:
    scaler = model.variance_gradient_scaler
    return {
        "timesteps": model.num_timesteps,
        "updates": model._n_updates,
        "scaler": 0 if scaler is None else scaler.step_count,
    }


def through_v2_file(parameters: Any) -> Any:
    """What is read from a checkpoint in which these parameters were saved."""
    file = io.BytesIO()
    save_checkpoint(file, parameters, step=1, performance=0.0)
    file.seek(0)
    return load_checkpoint(file).data
