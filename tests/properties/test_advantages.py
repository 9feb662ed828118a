"""Advantages and returns of the rollout buffer are the sums that define them, episode ends included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sb3_contrib.common.recurrent.type_aliases import RNNStates

from rlcore.ppo.buffer import TwinCriticRolloutBuffer

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Rollout:
    """What was collected; the last row of ``values`` and ``starts`` is of the step after the rollout.

    :param rewards: shape (steps, n_envs)
    :param values: shape (steps + 1, n_envs, n_critics)
    :param starts: shape (steps + 1, n_envs), 1 where an episode begins
    """

    rewards: Array
    values: Array
    starts: Array


@st.composite
def rollouts(draw: st.DrawFn) -> Rollout:
    steps, n_envs, n_critics = draw(st.integers(1, 9)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ends = draw(st.sampled_from([0.0, 0.3, 1.0]))
    return Rollout(
        rng.normal(size=(steps, n_envs)).astype(np.float32) * np.float32(10.0 ** draw(st.integers(-3, 3))),
        rng.normal(size=(steps + 1, n_envs, n_critics)).astype(np.float32),
        (rng.random((steps + 1, n_envs)) < ends).astype(np.float32),
    )


discounts = st.sampled_from([0.0, 0.5, 0.99, 1.0])


def filled_buffer(rollout: Rollout, gamma: float, gae_lambda: float) -> TwinCriticRolloutBuffer:
    steps, n_envs = rollout.rewards.shape
    box = spaces.Box(-1, 1, (1,))
    states = RNNStates(*((torch.zeros(1, n_envs, 1),) * 2,) * 2)
    buffer = TwinCriticRolloutBuffer(
        steps,
        box,
        box,
        (steps, 1, n_envs, 1),
        "cpu",
        gamma=gamma,
        gae_lambda=gae_lambda,
        n_envs=n_envs,
        n_critics=rollout.values.shape[-1],
    )
    zeros = np.zeros((n_envs, 1), dtype=np.float32)
    for step in range(steps):
        values = torch.from_numpy(rollout.values[step])
        recorded: Any = (zeros, zeros, rollout.rewards[step], rollout.starts[step], values, torch.zeros(n_envs))
        buffer.add(*recorded, lstm_states=states)
    buffer.compute_returns_and_advantage(torch.from_numpy(rollout.values[-1]).amin(dim=-1), rollout.starts[-1])
    return buffer


def defined_advantage(rollout: Rollout, env: int, step: int, gamma: float, gae_lambda: float) -> float:
    """sum_l (gamma lambda)^l delta_{t+l} up to the end of the episode or of the rollout (Schulman et al. 2016, eq. 16).

    delta_t = r_t + gamma V(s_{t+1}) - V(s_t), where V(s_{t+1}) is 0 if the episode ended; V is the smallest critic's.
    """
    total, weight = 0.0, 1.0
    for later in range(step, len(rollout.rewards)):
        over = bool(rollout.starts[later + 1, env])
        value, after = (min(map(float, rollout.values[at, env])) for at in (later, later + 1))
        total += weight * (float(rollout.rewards[later, env]) + (0.0 if over else gamma * after) - value)
        weight *= gamma * gae_lambda
        if over:
            break
    return total


@given(rollouts(), discounts, discounts)
def test_advantages_are_the_sum_that_defines_them_and_returns_add_the_value(
    rollout: Rollout, gamma: float, gae_lambda: float
) -> None:
    buffer = filled_buffer(rollout, gamma, gae_lambda)
    size = max(1.0, float(np.abs(rollout.rewards).max()))
    for (step, env), advantage in np.ndenumerate(buffer.advantages):
        expected = defined_advantage(rollout, env, step, gamma, gae_lambda)
        assert advantage == pytest.approx(expected, rel=1e-5, abs=1e-5 * size)
        value = min(map(float, rollout.values[step, env]))
        assert buffer.returns[step, env] == pytest.approx(expected + value, rel=1e-5, abs=1e-5 * size)
