"""The test plan of document 004, written so that each of its three can fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecNormalize
from torch import Tensor, nn

from rlcore import DistributionalPPO, VarianceGradientScaler, apply_exploit, load_checkpoint, save_pbt_checkpoint
from rlcore.optim.gradient_variance import Estimator
from tests.support.steps import TINY, after
from tests.support.training import make_envs, make_model


class Seen(NamedTuple):
    """What holds when a rollout starts: statistics, snapshot, and what the critics say of the first observation."""

    statistics: tuple[float, float]
    snapshot: tuple[float, float]
    outputs: Tensor


class WatchRollouts(BaseCallback):
    """Looks at the return scale at every start of a rollout, and at the values that the rollout begins with."""

    model: DistributionalPPO

    def __init__(self) -> None:
        super().__init__()
        self.starts: list[Seen] = []
        self.first_values: list[Tensor] = []

    def _on_rollout_start(self) -> None:
        model: Any = self.model
        observations, starts = torch.as_tensor(model._last_obs), torch.as_tensor(model._last_episode_starts).float()
        with torch.no_grad():
            outputs = model.policy.predict_outputs(observations, model._last_lstm_states.vf, starts)
        statistics, snapshot = (
            tuple(moments) for moments in (model.value_scale.statistics, model.value_scale.snapshot)
        )
        self.starts.append(Seen(statistics, snapshot, outputs.mean(dim=-1)))

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.first_values.append(torch.as_tensor(self.model.rollout_buffer.critic_values[0]).clone())


def test_return_scale_snapshot_timing() -> None:
    """After an update the snapshot is of the statistics that the update has just taken; the next rollout uses it."""
    model, watch = make_model(**TINY, return_scale_decay=0.0), WatchRollouts()
    assert model.value_scale.statistics == (0.0, 1.0)
    model.learn(3 * 24, watch)
    assert len(watch.starts) == 3
    assert watch.starts[0].statistics == watch.starts[0].snapshot == (0.0, 1.0)
    for seen in watch.starts[1:]:
        assert seen.snapshot == seen.statistics != (0.0, 1.0)
    assert watch.starts[2].snapshot != watch.starts[1].snapshot
    for seen, values in zip(watch.starts, watch.first_values, strict=True):
        mean, std = seen.statistics
        assert torch.allclose(values, mean + std * seen.outputs, rtol=1e-4, atol=1e-5)
    assert model.value_scale.snapshot == model.value_scale.statistics
    returns = model.rollout_buffer.returns.astype(np.float64)
    assert model.value_scale.statistics == pytest.approx((returns.mean(), returns.std()))


def normalizer_of(model: DistributionalPPO) -> Any:
    """As SB3 finds it."""
    normalizer = model.get_vec_normalize_env()
    assert isinstance(normalizer, VecNormalize)
    return normalizer


def test_vecnormalize_lstm_sync_after_pbt(tmp_path: Path) -> None:
    """Statistics as SB3 gives them, observations as SB3 normalises them, and zero states for every environment."""
    source = after(10, make_envs("Pendulum-v1", normalize=True))
    target = after(4, make_envs("Pendulum-v1", normalize=True, seed=1), seed=1)
    checkpoint = load_checkpoint(save_pbt_checkpoint(source, source.get_env(), tmp_path / "source.pt", performance=0.5))
    theirs, own = normalizer_of(source), normalizer_of(target)
    assert not np.allclose(own.obs_rms.mean, theirs.obs_rms.mean, atol=1e-6)
    assert any(state.abs().max() > 0 for states in target._last_lstm_states for state in states)

    apply_exploit(target, checkpoint.data, {})

    for name in ("mean", "var", "count"):
        assert np.array_equal(getattr(own.obs_rms, name), getattr(theirs.obs_rms, name))
    assert own.ret_rms.var == theirs.ret_rms.var
    raw = np.array([[1.0, 0.0, -2.0]], dtype=np.float32)
    assert np.array_equal(own.normalize_obs(raw), theirs.normalize_obs(raw))
    for states in target._last_lstm_states:
        for state in states:
            assert state.shape == (1, 3, 8)
            assert not state.any()


PATTERN = torch.tensor([0.5, -0.5, 0.5, -0.5])
OF_PATTERN: dict[Estimator, float] = {"mean": 0.0, "spatial": 0.25, "element": 0.0, "total": 0.25}


def variance(estimator: Estimator, gradients: list[Tensor]) -> float:
    """What the estimator makes of the gradients, whose mean is 0: with eps = 1 nothing is divided."""
    weight = nn.Parameter(torch.zeros(4))
    scaler = VarianceGradientScaler([weight], estimator=estimator, eps=1.0, warmup_steps=0)
    for gradient in gradients:
        weight.grad = gradient.clone()
        scaler.update_statistics()
        assert weight.grad.tolist() == gradient.tolist()
    assert scaler.step_count == len(gradients)
    return scaler.get_normalized_variance()


def test_vgs_variance_semantics() -> None:
    """The variance of the mean sees neither a constant pattern nor noise of opposite signs. The spread over elements
    sees both alike; the variance of the elements over time sees the noise, and no noise where there is none."""
    for estimator, expected in OF_PATTERN.items():
        assert variance(estimator, [PATTERN] * 40) == pytest.approx(expected, abs=1e-12), estimator
    signs = [1.0, -1.0] * 20
    weights = [0.99**age for age in reversed(range(40))]
    drift = sum(weight * sign for weight, sign in zip(weights, signs, strict=True)) / sum(weights)
    of_noise = {"mean": 0.0, "spatial": 0.25, "element": 0.25 * (1.0 - drift**2), "total": 0.25}
    for name, expected in of_noise.items():
        found = variance(name, [sign * PATTERN for sign in signs])  # type: ignore[arg-type]
        assert found == pytest.approx(expected, abs=1e-6), name
    uniform = [torch.full((4,), 0.5 * sign) for sign in signs]
    assert variance("mean", uniform) == pytest.approx(0.25 * (1 - drift**2) / (1 + 0.25 * drift**2), abs=1e-6)
