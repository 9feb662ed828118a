"""Steps through environments of Gymnasium, vectors of them, and vectors of Stable-Baselines3 in one way."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rlverify.checks.adapters.adapter import NotSupportedError


def layers(env: Any) -> Iterator[Any]:
    """An environment, and the ones inside of its wrappers."""
    while env is not None:
        yield env
        env = vars(env).get("venv", vars(env).get("env"))


def layers_of_one(env: Any) -> Iterator[Any]:
    """The layers of the first environment of a vector that holds its environments itself; none of others."""
    own = vars(innermost(env)).get("envs")
    return layers(own[0] if own else None)


def innermost(env: Any) -> Any:
    """The environment inside of all wrappers; of a vector, the vector."""
    return list(layers(env))[-1]


def is_sb3_vector(env: Any) -> bool:
    """Whether an environment steps as the vectors of Stable-Baselines3 do: it resets itself and returns four values."""
    return hasattr(env, "step_wait") and hasattr(env, "num_envs")


def reset(env: Any, **seed: int) -> Any:
    """The first observation.

    :param seed: ``seed=0`` gives generators of the environment another state
    """
    if not is_sb3_vector(env):
        return env.reset(**seed)[0]
    if seed:
        env.seed(**seed)
    return env.reset()


def step(env: Any, action: Any) -> tuple[Any, Any, Any]:
    """Observation, reward, and whether the episode ended; an environment that is no vector is then reset."""
    if is_sb3_vector(env):
        observation, reward, ended, _ = env.step(action)
        return observation, reward, ended
    observation, reward, terminated, truncated, _ = env.step(action)
    if not hasattr(env, "num_envs") and (terminated or truncated):
        return (observation, reset(env)), reward, True
    return observation, reward, (terminated, truncated)


def actions(env: Any, count: int) -> list[Any]:
    """Random actions, always the same, without a use of the environment's own generators."""
    space = copy.deepcopy(env.action_space)
    space.seed(0)
    if is_sb3_vector(env):
        return [np.stack([space.sample() for _ in range(env.num_envs)]) for _ in range(count)]
    return [space.sample() for _ in range(count)]


def started(env: Any, before: int, after: int) -> list[Any]:
    """Reset an environment and step into its episode; the actions that follow."""
    reset(env)
    chosen = actions(env, before + after)
    for each in chosen[:before]:
        step(env, each)
    return chosen[before:]


def observations(space: Any, steps: int, envs: int, seed: int) -> Any:
    """Observations of moderate size by step and environment; of a dictionary space, a dictionary of arrays."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return {key: observations(each, steps, envs, seed) for key, each in space.spaces.items()}
    if not isinstance(space, spaces.Box):
        sampled = copy.deepcopy(space)
        sampled.seed(seed)
        return np.stack([np.stack([sampled.sample() for _ in range(envs)]) for _ in range(steps)])
    drawn = np.random.default_rng(seed).normal(size=(steps, envs, *space.shape))
    if not np.issubdtype(space.dtype, np.floating):
        drawn = np.abs(drawn) * 40
    return np.clip(drawn, space.low, space.high).astype(space.dtype)


def observation_space(env: Any) -> Any:
    """The space of one observation."""
    return getattr(env, "single_observation_space", env.observation_space)


def require_this_process(env: Any) -> None:
    """Raise if parts of an environment are in other processes."""
    if any("processes" in vars(each) for each in layers(env)):
        raise NotSupportedError("the environments are in worker processes")


def after_each_step(env: Any, action: Callable[..., object]) -> None:
    """Let an environment call an action after each step; what that returns is returned by the step, if anything.

    :param action: gets the number of the step, from 1, and what the step returned
    """
    inner = innermost(env)
    name = "step_wait" if is_sb3_vector(inner) else "step"
    original, numbers = getattr(inner, name), itertools.count(1)

    def changed(*arguments: Any) -> Any:
        found = original(*arguments)
        other = action(next(numbers), *found)
        return found if other is None else other

    vars(inner)[name] = changed
