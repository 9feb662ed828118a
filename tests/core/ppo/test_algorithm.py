"""Training as Stable-Baselines3 users know it, and the order in which a step is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback
from stable_baselines3.common.utils import LinearSchedule

from rlcore import (
    CategoricalValues,
    DistributionalPPO,
    QuantileValues,
)
from rlcore.ppo import losses
from tests.support.training import make_envs, make_model


def test_evaluation_and_checkpoint_callbacks_write_models_that_load(tmp_path: Path) -> None:
    evaluation = EvalCallback(
        make_envs(n_envs=1), eval_freq=16, n_eval_episodes=2, best_model_save_path=str(tmp_path), verbose=0
    )
    checkpoints = CheckpointCallback(save_freq=10, save_path=str(tmp_path), name_prefix="run")
    make_model(tensorboard_log=str(tmp_path / "log")).learn(96, callback=[evaluation, checkpoints], tb_log_name="mine")
    assert [folder.name for folder in (tmp_path / "log").iterdir()] == ["mine_1"]
    assert 8 <= evaluation.best_mean_reward <= 500
    for name in ("best_model.zip", "run_30_steps.zip"):
        loaded = DistributionalPPO.load(tmp_path / name, device="cpu")
        assert loaded.predict(np.zeros(4, dtype=np.float32))[0] in (0, 1)


def test_a_step_is_backward_scale_clip_optimizer_scaler() -> None:
    model = make_model(max_grad_norm=1e-3)
    scaler, optimizer = model.variance_gradient_scaler, model.policy.optimizer
    assert scaler is not None
    order: list[str] = []
    norms: dict[str, float] = {}

    def spy(owner: Any, name: str, label: str) -> None:
        original = getattr(owner, name)

        def recorded(*args: Any, **kwargs: Any) -> Any:
            grads = [p.grad for p in model.policy.parameters() if p.grad is not None]
            norms[label] = float(torch.nn.utils.get_total_norm(grads))
            order.append(label)
            return original(*args, **kwargs)

        setattr(owner, name, recorded)

    spy(scaler, "scale_gradients", "scale")
    spy(optimizer, "step", "optimizer")
    spy(scaler, "step", "scaler")
    model.learn(48)
    assert order[:3] == ["scale", "optimizer", "scaler"]
    assert order == ["scale", "optimizer", "scaler"] * (len(order) // 3)
    assert norms["scale"] > model.max_grad_norm >= norms["optimizer"] * 0.999


@pytest.mark.parametrize(("kl_over_target", "epochs"), [(1.4, 2), (1.6, 1)])
def test_an_update_stops_beyond_one_and_a_half_times_the_target(
    kl_over_target: float, epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = losses.minibatch_losses

    def measured(*args: Any, **kwargs: Any) -> losses.MinibatchLosses:
        return original(*args, **kwargs)._replace(approx_kl=torch.tensor(kl_over_target * 0.01))

    monkeypatch.setattr(losses, "minibatch_losses", measured)
    model = make_model(target_kl=0.01)
    model.learn(48)
    assert model._n_updates == epochs
    assert model.variance_gradient_scaler is not None
    assert model.variance_gradient_scaler.step_count == (4 if epochs == 2 else 0)


class Short(gym.Wrapper[Any, Any, Any, Any]):
    """Ends every episode after eight steps."""

    def reset(self, **given: Any) -> Any:
        self.steps = 0
        return self.env.reset(**given)

    def step(self, action: Any) -> Any:
        self.steps += 1
        observation, reward, _, truncated, info = self.env.step(action)
        return observation, reward, self.steps == 8, truncated, info


def test_no_value_is_added_to_an_episode_that_ends_at_the_last_step_of_a_rollout() -> None:
    model = make_model(Short(gym.make("CartPole-v1")), n_steps=8, batch_size=8, gae_lambda=1.0, gamma=0.5)
    with torch.no_grad():
        for layer in model.policy.value_net.output_layers():
            layer.bias.fill_(100.0)
    model.learn(8)
    steps = np.arange(8, 0, -1)
    assert model.rollout_buffer.returns.flatten() == pytest.approx(2 - 0.5 ** (steps - 1), rel=1e-4)


def test_settings_reach_the_losses_as_they_stand_at_each_update(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = {"ent_coef": 0.03, "vf_coef": 0.7, "normalize_advantage": False}
    model = make_model(
        clip_range=LinearSchedule(0.4, 0.2, 1.0), clip_range_vf=LinearSchedule(0.3, 0.1, 1.0), n_epochs=1, **fixed
    )
    original, seen = losses.minibatch_losses, []

    def recorded(*args: Any, **kwargs: Any) -> losses.MinibatchLosses:
        assert model.policy.training
        seen.append(kwargs)
        return original(*args, **kwargs)

    monkeypatch.setattr(losses, "minibatch_losses", recorded)
    model.learn(96)
    assert [call.pop("clip_range") for call in seen] == pytest.approx([0.3, 0.3, 0.2, 0.2])
    assert [call.pop("clip_range_vf") for call in seen] == pytest.approx([0.2, 0.2, 0.1, 0.1])
    assert seen == [{**fixed, "kl_penalty_coef": 0.0}] * 4


def test_every_setting_of_the_value_distribution_reaches_it() -> None:
    quantiles = make_model(n_quantiles=5, huber_kappa=0.4).policy.values
    assert isinstance(quantiles, QuantileValues)
    assert (quantiles.n_outputs, quantiles.huber_kappa) == (5, 0.4)
    atoms = make_model(n_quantiles=32, value_distribution="categorical", num_atoms=7, v_min=-1, v_max=2.5).policy.values
    assert isinstance(atoms, CategoricalValues)
    assert (atoms.n_outputs, atoms.v_min, atoms.v_max) == (7, -1.0, 2.5)


def test_gradients_of_one_minibatch_do_not_add_to_those_of_the_next() -> None:
    model = make_model(max_grad_norm=1e6, variance_gradient_scaling=False)
    bias = model.policy.action_net.bias
    for _ in range(2):
        model._optimize(model.policy.action_net(torch.zeros(1, 8)).sum())
        assert bias.grad is not None
        assert bias.grad.tolist() == [1.0, 1.0]


def test_no_file_says_where_logs_are_written(tmp_path: Path) -> None:
    make_model(tensorboard_log=str(tmp_path / "log")).save(tmp_path / "model.zip")

    loaded = DistributionalPPO.load(tmp_path / "model.zip", tensorboard_log=str(tmp_path / "other"))

    assert DistributionalPPO.load(tmp_path / "model.zip").tensorboard_log is None
    assert loaded.tensorboard_log == str(tmp_path / "other")
    given = {"tensorboard_log": str(tmp_path)}
    assert DistributionalPPO.load(tmp_path / "model.zip", custom_objects=given).tensorboard_log == str(tmp_path)
