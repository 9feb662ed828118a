"""Which scale returns are trained on, and what becomes of the values when it moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from stable_baselines3.common.vec_env import VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn
from torch import Tensor

from rlcore import DistributionalPPO
from rlverify import Observation, probe
from verification.probes.make import Make

UPDATE = 96
"""Steps from one update of a small model to the next."""

DECAY = 0.5
BOUND = 1.0 / (1.0 - DECAY)
"""Largest mean square that scaled returns can have under statistics in which they weigh at least 1 - DECAY.

The variance of the mixture is at least their share times their own mean square around the mixture's mean.
"""


class ScaledRewards(VecEnvWrapper):
    """Rewards times ``factor``."""

    factor = 1.0

    def reset(self) -> VecEnvObs:
        return self.venv.reset()

    def step_wait(self) -> VecEnvStepReturn:
        observations, rewards, dones, infos = self.venv.step_wait()
        return observations, rewards * self.factor, dones, infos


@probe("values-stay-when-the-return-scale-moves")
def values_stay_when_the_return_scale_moves(make: Make, seed: int) -> Sequence[Observation]:
    """Train with steps too small to move any weight, so that only the statistics change between two looks."""
    envs = ScaledRewards(make.envs(seed))
    still: dict[str, Any] = {"optimizer_class": "sgd", "learning_rate": 1e-30, "variance_gradient_scaling": False}
    model = make.model(seed, envs, **still)
    observations = []
    for envs.factor in (1.0, 10.0):
        before, scale = _values(model), model.value_scale.snapshot
        model.learn(UPDATE, reset_num_timesteps=False)
        change = float((_values(model) - before).abs().max() / model.value_scale.snapshot.std)
        moved, rewards = scale != model.value_scale.snapshot, f"rewards times {envs.factor:g}"
        same = change < 1e-5
        observations.append(Observation(f"return scale, {rewards}", "moves", "moves" if moved else "stays", moved))
        observations.append(
            Observation(f"value of fixed observations, {rewards}", "the same", "the same" if same else "jumps", same)
        )
    return observations


@probe("a-rollout-is-trained-on-with-its-own-statistics")
def a_rollout_is_trained_on_with_its_own_statistics(make: Make, seed: int) -> Sequence[Observation]:
    """Multiply all rewards by 10 after three updates, and look at the targets that each update trained on."""
    envs = ScaledRewards(make.envs(seed))
    model = make.model(seed, envs, n_epochs=1, return_scale_decay=DECAY)
    scaled = _recorded_targets(model)
    seen = []
    for envs.factor in (1.0, 1.0, 1.0, 10.0):
        scaled.clear()
        model.learn(UPDATE, reset_num_timesteps=False)
        seen.append(float(torch.cat(scaled).square().mean()))
    return [
        _bounded("mean square of the scaled returns, first update", seen[0]),
        _bounded("mean square of the scaled returns, first update after rewards grew tenfold", seen[3]),
    ]


def _recorded_targets(model: DistributionalPPO) -> list[Tensor]:
    """Every target from now on, as the loss is given it: what the scale is before or after an update says nothing."""
    recorded: list[Tensor] = []
    losses = model.policy.values.sample_losses

    def recording(outputs: Tensor, returns: Tensor) -> Tensor:
        recorded.append(model.value_scale.normalise(returns).double().flatten())
        return losses(outputs, returns)

    model.policy.values.sample_losses = recording  # type: ignore[method-assign]
    return recorded


def _values(model: DistributionalPPO) -> torch.Tensor:
    """Raw value of the same observations from the same LSTM state, by each critic."""
    lstm, policy = model.policy.lstm_actor, model.policy
    generator = torch.Generator().manual_seed(0)
    observations = torch.randn(16, *(model.observation_space.shape or ()), generator=generator)
    hidden = torch.zeros(lstm.num_layers, 16, lstm.hidden_size)
    with torch.no_grad():
        return policy.values.mean(policy.predict_outputs(observations, (hidden, hidden), torch.zeros(16)))


def _bounded(symptom: str, value: float) -> Observation:
    holds = value <= BOUND * (1.0 + 1e-5)
    return Observation(symptom, f"at most {BOUND:g}", f"at most {BOUND:g}" if holds else f"above {BOUND:g}", holds)
