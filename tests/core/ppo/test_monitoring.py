"""Every key that an update logs, against a value that is worked out another way on a real model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.utils import LinearSchedule

from rlcore import DistributionalPPO
from tests.support.training import make_envs, make_model


class Factors(BaseCallback):
    """Keeps what the rollout held at its end, before training, and the factor of every step."""

    def __init__(self) -> None:
        super().__init__()
        self.factors: list[float] = []

    def _on_training_start(self) -> None:
        assert isinstance(self.model, DistributionalPPO)
        scaler = self.model.variance_gradient_scaler
        if scaler is None:
            return
        scale = scaler.scale_gradients

        def recorded() -> float:
            self.factors.append(scale())
            return self.factors[-1]

        scaler.scale_gradients = recorded  # type: ignore[method-assign]

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        assert isinstance(self.model, DistributionalPPO)
        self.factors.clear()
        self.critic_values = self.model.rollout_buffer.critic_values.astype(np.float64)
        self.returns = self.model.rollout_buffer.returns.astype(np.float64)
        self.states = self.model._last_lstm_states


def logged(updates: int = 2, env_id: str = "CartPole-v1", **settings: Any) -> tuple[dict[str, Any], Factors]:
    model, seen = make_model(make_envs(env_id), **settings), Factors()
    model.set_logger(Logger(None, []))
    model.learn(48 * updates, callback=seen, log_interval=1000)
    return dict(model.logger.name_to_value), seen


TWO_LAYERS = {"lstm_hidden_size": 8, "net_arch": [8], "n_lstm_layers": 2}


def test_hidden_states_are_described_layer_by_layer_for_actor_and_critic() -> None:
    found, seen = logged(policy_kwargs=TWO_LAYERS)
    for name, (hidden, _) in (("actor", seen.states.pi), ("critic", seen.states.vf)):
        for index in range(2):
            numbers = np.array(hidden[index].tolist()).ravel()
            assert len(numbers) == 3 * 8
            expected = {
                "norm": np.sqrt((numbers**2).sum()),
                "mean": numbers.mean(),
                "std": np.sqrt((numbers**2).mean() - numbers.mean() ** 2),
            }
            for measure, value in expected.items():
                assert found[f"lstm/{name}_hidden_layer{index}_{measure}"] == pytest.approx(value, rel=1e-4), measure
    assert len([key for key in found if key.startswith("lstm/")]) == 2 * 2 * 3
    assert found["lstm/actor_hidden_layer0_norm"] != found["lstm/critic_hidden_layer0_norm"]


@pytest.mark.parametrize("network", [{"shared_lstm": True, "enable_critic_lstm": False}, {"enable_critic_lstm": False}])
def test_a_critic_without_lstm_of_its_own_has_no_hidden_states(network: dict[str, bool]) -> None:
    found, _ = logged(1, policy_kwargs={"lstm_hidden_size": 8, "net_arch": [8], **network})
    assert {key.split("_")[0] for key in found if key.startswith("lstm/")} == {"lstm/actor"}


def test_values_of_the_rollout_are_described() -> None:
    found, seen = logged()
    first, second = seen.critic_values[..., 0], seen.critic_values[..., 1]
    assert found["twin_critics/divergence"] == pytest.approx(np.mean(np.abs(first - second)), rel=1e-5)
    assert found["twin_critics/divergence"] > 0
    smaller = np.where(first < second, first, second)
    assert found["train/value_variance"] == pytest.approx(np.mean((smaller - smaller.mean()) ** 2), rel=1e-5)
    residual = seen.returns - smaller
    assert found["train/explained_variance"] == pytest.approx(1 - residual.var() / seen.returns.var(), rel=1e-3)


def test_factors_of_the_scaling_are_described_over_the_update() -> None:
    found, seen = logged(4, vgs_warmup_steps=1, vgs_alpha=1.0, n_epochs=3)
    assert len(seen.factors) == 6
    assert len(set(seen.factors)) == 6
    ordered = sorted(seen.factors)
    assert found["vgs/scaling_factor_min"] == ordered[0]
    assert found["vgs/scaling_factor_median"] == pytest.approx((ordered[2] + ordered[3]) / 2)
    assert found["vgs/scaling_factor_max"] == ordered[-1]
    assert found["vgs/scaling_factor"] == pytest.approx(sum(ordered) / 6)


@pytest.mark.parametrize(("warmup_steps", "complete"), [(4, 1.0), (5, 0.0)])
def test_the_end_of_the_warm_up_is_logged(warmup_steps: int, complete: float) -> None:
    found, _ = logged(1, vgs_warmup_steps=warmup_steps)
    assert found["vgs/step_count"] == 4
    assert found["vgs/warmup_complete"] == complete


def test_the_noise_to_signal_ratio_is_that_of_the_optimizer() -> None:
    found, _ = logged(1, optimizer_kwargs={"sigma": 0.25, "betas": (0.0, 0.0), "eps": 1e-30})
    # without averaging d is g / |g|: 1 wherever there is a gradient
    assert found["optim/noise_to_signal"] == pytest.approx(0.25, rel=0.2)
    assert found["optim/noise_to_signal"] >= 0.25 * (1 - 1e-6)


def test_settings_are_logged_as_they_trained() -> None:
    """Here at half of the way, and with standard deviations of the actions next to exp(-1)."""
    model = make_model(
        make_envs("Pendulum-v1"),
        policy_kwargs={"lstm_hidden_size": 8, "log_std_init": -1.0},
        clip_range=LinearSchedule(0.3, 0.1, 1.0),
        clip_range_vf=LinearSchedule(0.8, 0.2, 1.0),
        n_epochs=3,
    )
    model.set_logger(Logger(None, []))
    model.learn(96, lambda seen, _: seen["self"].num_timesteps <= 48, log_interval=1000)
    found = model.logger.name_to_value
    assert (found["train/clip_range"], found["train/clip_range_vf"]) == pytest.approx((0.2, 0.5))
    assert found["train/n_updates"] == 3
    assert found["train/std"] == pytest.approx(np.exp(-1.0), rel=0.02)


@pytest.mark.parametrize(
    ("settings", "absent"),
    [
        ({"variance_gradient_scaling": False, "optimizer_class": "adam"}, ("vgs/", "optim/")),
        ({"n_critics": 1}, "twin_critics/"),
        ({"return_scale": None}, "train/return"),
        ({}, ("train/kl", "train/clip_range_vf", "train/std")),
    ],
)
def test_what_there_is_not_is_not_logged(settings: dict[str, Any], absent: Any) -> None:
    found, _ = logged(1, **settings)
    assert [key for key in found if key.startswith(absent)] == []


def test_every_key_is_explained() -> None:
    documented = (Path(__file__).parents[3] / "docs" / "tensorboard.md").read_text(encoding="utf-8")
    found, _ = logged(1, "Pendulum-v1", clip_range_vf=0.4, kl_penalty_target=0.01, policy_kwargs=TWO_LAYERS)
    names = {re.sub(r"layer\d", "layer{i}", key) for key in found if not key.startswith(("rollout/", "time/"))}
    assert [name for name in names if f"| `{name}` |" not in documented] == ["train/n_updates"]  # not in TensorBoard
