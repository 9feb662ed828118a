"""The vectorised environment: its state, the statistics of VecNormalize, and the settings that must be the same."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecNormalize

from rlcore.envs import vec_state as env_state
from rlcore.errors import StateError
from rlcore.state.schema import read_list, read_record
from rlcore.types import StateDict, StateValue

_FIELDS = ("vec_env", "state", "normalizer", "normalizer_settings")
_NORMALIZER_SETTINGS = (
    *("training", "norm_obs", "norm_reward", "norm_obs_keys"),
    *("clip_obs", "clip_reward", "gamma", "epsilon"),
)


def env_obstacle(env: VecEnv | None) -> str | None:
    """Return why the state of ``env`` cannot be saved, or None if it can."""
    if env is None:
        return "the model has no environment; call set_env first"
    return env_state.unsupported_reason(env)


def capture_env(model: BaseAlgorithm) -> StateDict:
    """Return the state of every environment and VecEnvWrapper, and what VecNormalize has measured."""
    assert model.env is not None, "env_obstacle has been asked"
    return {
        "vec_env": type(model.env.unwrapped).__name__,
        "state": env_state.capture_env_state(model.env),
        "normalizer": env_state.capture_normalizer(model.env),
        "normalizer_settings": _normalizer_settings(model.env),
    }


def restore_env(model: BaseAlgorithm, state: StateDict) -> None:
    """Continue the environments of ``model`` where :func:`capture_env` was called.

    :raises StateError: other environments, wrappers or settings of VecNormalize. Statistics are unchanged then, and the
        environments have to be reset.
    """
    assert model.env is not None, "a model is loaded with an environment"
    record = read_record(state, "environments", _FIELDS)
    name = type(model.env.unwrapped).__name__
    if record["vec_env"] != name:
        raise StateError(
            f"the run used {record['vec_env']}, and this environment is a {name}; build it with the same class, as "
            "DummyVecEnv rounds rewards to float32 and SubprocVecEnv does not"
        )
    _require_same_normalizers(record["normalizer_settings"], _normalizer_settings(model.env))
    before = env_state.capture_normalizer(model.env)
    if record["normalizer"] is not None:
        env_state.restore_normalizer(model.env, record["normalizer"])
    try:
        env_state.restore_env_state(model.env, record["state"])
    except StateError:
        if before is not None:
            env_state.restore_normalizer(model.env, before)
        raise


def _normalizer_settings(env: VecEnv) -> list[StateValue]:
    """Return the settings of every VecNormalize, from the outside in."""
    found: list[StateValue] = []
    while isinstance(env, VecEnvWrapper):
        if isinstance(env, VecNormalize):
            found.append({name: _plain(getattr(env, name)) for name in _NORMALIZER_SETTINGS})
        env = env.venv
    return found


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, list | tuple) else value


def _require_same_normalizers(saved: Any, own: list[Any]) -> None:
    saved = read_list(saved, "environments['normalizer_settings']")
    if len(saved) != len(own):
        raise StateError(
            f"the run had {len(saved)} VecNormalize wrappers, and this environment has {len(own)}; wrap it as it was"
        )
    for before, now in zip(saved, own, strict=True):
        for name, value in read_record(before, "environments['normalizer_settings']", _NORMALIZER_SETTINGS).items():
            if value != now[name]:
                raise StateError(
                    f"VecNormalize has {name}={now[name]!r}, and the run had {value!r}; give it {name}={value!r}"
                )
