"""The return scale in training: what keeps raw units, what moves and what does not, and where it is saved."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnvWrapper
from torch import nn

from rlcore import DistributionalPPO, NonFiniteReturnError, ReturnScale, StateError
from rlcore.ppo.adaptive import Moments
from tests.support.training import acting, differing, make_envs, make_model

STILL: dict[str, Any] = {"optimizer_class": "sgd", "learning_rate": 1e-30, "variance_gradient_scaling": False}
"""Training that moves no weight: a step is smaller than any weight can hold."""


class Rewards(VecEnvWrapper):
    """Rewards times ``factor``."""

    factor = 1.0

    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        observations, rewards, dones, infos = self.venv.step_wait()
        return observations, rewards * self.factor, dones, infos


def raw_values(model: DistributionalPPO) -> torch.Tensor:
    """Quantiles in units of the return, for fixed observations."""
    lstm = model.policy.lstm_actor
    generator = torch.Generator().manual_seed(4)
    obs = torch.randn(32, 4, generator=generator)
    hidden = torch.zeros(lstm.num_layers, 32, lstm.hidden_size)
    with torch.no_grad():
        outputs = model.policy.predict_outputs(obs, (hidden, hidden), torch.zeros(32))
    quantiles: torch.Tensor = model.policy.values.quantiles(outputs)  # type: ignore[attr-defined]
    return quantiles


def scaled(model: DistributionalPPO) -> dict[str, Any]:
    return {key: model.get_parameters()[key] for key in ("policy", "return_scale_state")}


@pytest.mark.parametrize("n_critics", [1, 2])
def test_values_do_not_move_when_the_statistics_do(n_critics: int) -> None:
    envs = Rewards(make_envs())
    model = make_model(envs, n_critics=n_critics, **STILL)
    before = raw_values(model)
    for envs.factor in (1.0, 100.0, 0.01):
        model.learn(48, reset_num_timesteps=False)
        assert torch.allclose(raw_values(model), before, rtol=1e-5, atol=1e-5 * model.value_scale.snapshot.std)
    assert model.value_scale.snapshot.std > 10.0


@pytest.mark.parametrize("optimizer_class", ["upgd", "adaptive_upgd"])
def test_utilities_of_the_critics_output_layers_go_with_their_weights_and_no_others_move(optimizer_class: str) -> None:
    model = make_model(optimizer_class=optimizer_class, return_scale_decay=0.0)
    model.learn(48)
    optimizer, layers = model.policy.optimizer, model.policy.value_net.output_layers()
    corrected = {parameter for layer in layers for parameter in layer.parameters()}
    weights = layers[0].weight.detach().clone()
    before = {parameter: copy.deepcopy(state) for parameter, state in optimizer.state.items()}
    model.rollout_buffer.returns *= 16.0
    model._scale_returns()
    ratio = (layers[0].weight / weights).mean().item()
    assert ratio == pytest.approx(1 / 16, rel=1e-4)
    for parameter, state in before.items():
        if parameter in corrected:
            torch.testing.assert_close(optimizer.state[parameter]["utility"], ratio * state.pop("utility"))
        assert differing({"": state}, {"": {name: optimizer.state[parameter][name] for name in state}}) == []


def test_every_rollout_is_trained_on_with_statistics_that_contain_it() -> None:
    envs = Rewards(make_envs())
    model = make_model(envs, n_epochs=1, return_scale_decay=0.5)
    for envs.factor in (1.0, 1.0, 30.0):
        model.learn(48, reset_num_timesteps=False)
        z = model.value_scale.normalise(torch.as_tensor(model.rollout_buffer.returns)).double()
        # the newest rollout weighs at least 1/2, and the variance is at least that share of its own mean square
        assert (z**2).mean().item() <= 2.0 * (1 + 1e-5)


def test_the_value_loss_is_the_same_whatever_the_returns_are_measured_in() -> None:
    losses = {}
    for factor in (1.0, 1000.0):
        envs = Rewards(make_envs())
        envs.factor = factor
        model = make_model(envs, gae_lambda=1.0, **STILL)
        for layer in model.policy.value_net.output_layers():
            torch.nn.init.zeros_(layer.weight)
        model.learn(96)
        losses[factor] = model.logger.name_to_value["train/value_loss"]
    assert losses[1000.0] == pytest.approx(losses[1.0], rel=0.1)


@pytest.mark.parametrize("rule", ["zero_lag", "snapshot"])
def test_buffer_and_log_are_in_raw_units(rule: str) -> None:
    model = make_model(**{**STILL, "return_scale": rule})
    with torch.no_grad():
        for layer in model.policy.value_net.output_layers():
            layer.weight.zero_()
            layer.bias.fill_(3.0)
    model.learn(48)
    buffer = model.rollout_buffer
    assert buffer.values == pytest.approx(np.full_like(buffer.values, 3.0), rel=1e-5)
    assert buffer.critic_values == pytest.approx(np.full_like(buffer.critic_values, 3.0), rel=1e-5)
    logged = model.logger.name_to_value
    assert (logged["train/return_mean"], logged["train/return_std"]) == model.value_scale.statistics
    assert model.value_scale.statistics.mean == pytest.approx(buffer.returns.mean(), rel=1e-5)


UNSCALED: dict[str, Any] = {"return_scale": None, "variance_gradient_scaling": False, "optimizer_class": "adam"}
NOBODY_ELSE_LOOKS = {
    "zero_lag": {},
    "snapshot": {"return_scale": "snapshot"},
    "raw": UNSCALED,
    "categorical": {**UNSCALED, "value_distribution": "categorical", "v_min": 0.0, "v_max": 10.0, "n_quantiles": 32},
}


@pytest.mark.parametrize("scale", NOBODY_ELSE_LOOKS)
def test_rewards_that_are_no_numbers_are_named_and_leave_no_trace(scale: str) -> None:
    envs = Rewards(make_envs())
    model = make_model(envs, **{"n_epochs": 1, **NOBODY_ELSE_LOOKS[scale]})
    model.learn(48)
    before = model.get_parameters()
    envs.factor = float("nan")
    with pytest.raises(NonFiniteReturnError, match=r"of 48 returns of .* rewards"):
        model.learn(48, reset_num_timesteps=False)
    changed = differing(before, model.get_parameters())
    assert [path for path in changed if "snapshot" not in path] == []  # that one is taken before a rollout


@pytest.mark.parametrize("return_scale", ["zero_lag", "snapshot"])
def test_a_run_cut_in_a_rollout_resumes_across_the_next_update(return_scale: str, tmp_path: Path) -> None:
    whole = make_model(return_scale=return_scale)
    whole.learn(192)
    cut = make_model(return_scale=return_scale)
    cut.learn(192, callback=acting(2 * 16 + 5, lambda: cut.save(tmp_path / "model.zip"), go_on=False))
    resumed = DistributionalPPO.load(tmp_path / "model.zip", env=make_envs(), device="cpu")
    resumed.learn(192 - resumed.num_timesteps, reset_num_timesteps=False)
    assert differing(whole.get_parameters(), resumed.get_parameters()) == []


def test_the_lagging_scale_takes_its_snapshot_before_the_first_step_of_a_rollout() -> None:
    model = make_model(return_scale="snapshot")
    model.learn(48)
    latest, seen = model.value_scale.statistics, []
    model.learn(48, lambda *_: seen.append(model.value_scale.snapshot) is None, reset_num_timesteps=False)
    assert seen == [latest] * 16
    assert latest != (0.0, 1.0)


@pytest.mark.parametrize(("name", "value"), [("return_scale_decay", 0.25), ("return_scale_min_std", 0.125)])
def test_settings_reach_the_scale(name: str, value: float) -> None:
    assert getattr(make_model(**{name: value}).value_scale, name.removeprefix("return_scale_")) == value


def rollouts(count: int, size: int = 50) -> list[NDArray[np.float32]]:
    """Returns whose mean and spread change from rollout to rollout."""
    generator = np.random.default_rng(3)
    return [(generator.normal(size=(size, 2)) * (i + 1) + 10 * i).astype(np.float32) for i in range(count)]


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.99])
def test_statistics_are_those_of_all_rollouts_together_each_weighed_by_its_age(decay: float) -> None:
    scale, seen = ReturnScale("zero_lag", decay, 1e-4), rollouts(5)
    for returns in seen:
        scale.update(returns)
    weights = np.array([decay**age for age in (4, 3, 2, 1, 0)])
    weights /= weights.sum()
    exact = [returns.astype(np.float64) for returns in seen]
    mean = sum(w * r.mean() for w, r in zip(weights, exact, strict=True))
    square = sum(w * (r**2).mean() for w, r in zip(weights, exact, strict=True))
    assert scale.statistics == pytest.approx((mean, np.sqrt(square - mean**2)), rel=1e-12)


@pytest.mark.parametrize("constant", [0.0, 1e6, -1e-3])
def test_constant_returns_do_not_explode(constant: float) -> None:
    scale = ReturnScale("zero_lag", 0.9, 0.01)
    for _ in range(20):
        scale.update(np.full(64, constant, dtype=np.float32))
    scale.activate()
    assert scale.snapshot.std == 0.01
    assert abs(scale.normalise(torch.tensor(constant)).item()) < 1e-3


def test_small_spread_around_a_large_mean_is_measured() -> None:
    scale = ReturnScale("zero_lag", 0.9, 1e-4)
    for _ in range(200):
        scale.update(np.array([1e8 - 1.0, 1e8 + 1.0]))
    assert scale.statistics == pytest.approx((1e8, 1.0), rel=1e-9)


def test_zero_lag_measures_before_the_update_and_corrects_every_layer_by_the_change() -> None:
    scale, (first, second) = ReturnScale("zero_lag", 0.9, 1e-4), rollouts(2)
    torch.manual_seed(0)
    layers, inputs = [nn.Linear(4, 3), nn.Linear(4, 3)], torch.randn(5, 4)
    for returns in (first, second):
        raw = [scale.denormalise(layer(inputs)) for layer in layers]
        scale.before_update(returns, layers)
        assert scale.snapshot == scale.statistics
        for layer, expected in zip(layers, raw, strict=True):
            assert torch.allclose(scale.denormalise(layer(inputs)), expected, rtol=1e-5, atol=1e-5)
            assert (layer.weight.dtype, layer.weight.requires_grad) == (torch.float32, True)
        used = scale.snapshot
        scale.after_update(returns)
        scale.before_rollout()
        assert scale.snapshot == scale.statistics == used


def test_snapshot_keeps_the_documented_order_lag_included() -> None:
    scale, (first, second) = ReturnScale("snapshot", 0.0, 1e-4), rollouts(2)
    layer = nn.Linear(4, 3)
    weight = layer.weight.detach().clone()
    history = []
    for returns in (first, second):
        scale.before_rollout()
        assert scale.before_update(returns, [layer]) == 1.0
        history.append(scale.snapshot)
        scale.after_update(returns)
        history.append(scale.snapshot)
    measured = Moments(float(first.mean(dtype=np.float64)), float(first.std(dtype=np.float64)))
    assert history == [(0.0, 1.0), (0.0, 1.0), measured, measured]
    assert scale.statistics != scale.snapshot
    scale.before_rollout()
    assert scale.snapshot == scale.statistics
    assert torch.equal(layer.weight, weight)


def test_the_lagging_snapshot_is_taken_before_each_update_too() -> None:
    scale = ReturnScale("snapshot", 0.9, 1e-4)
    scale.after_update(np.array([2.0, 6.0]))
    assert scale.statistics == pytest.approx((4.0, 2.0))
    scale.before_update(np.array([0.0]), [])
    assert scale.snapshot == scale.statistics


def test_without_a_rule_nothing_is_scaled_measured_or_saved() -> None:
    scale, layer = ReturnScale(None, 0.9, 1e-4), nn.Linear(4, 3)
    weight = layer.weight.detach().clone()
    scale.before_rollout()
    scale.before_update(np.array([5.0, 7.0]), [layer])
    scale.after_update(np.array([5.0, 7.0]))
    assert scale.statistics == scale.snapshot == (0.0, 1.0)
    assert torch.equal(layer.weight, weight)
    assert scale.state_dict() is None
    with pytest.raises(StateError, match="return_scale=None"):
        scale.load_state_dict({})


BROKEN: dict[str, dict[str, Any]] = {
    "a weight beyond 1": {"weight": 1.5},
    "a negative variance": {"variance": -1.0},
    "no spread": {"std_snapshot": 0.0},
    "NaN": {"mean": float("nan")},
    "infinity": {"mean_snapshot": float("inf")},
    "a flag": {"mean": True},
    "a tensor": {"variance": torch.tensor(1.0)},
    "nothing": {"weight": None},
    "an unknown entry": {"means": 1.0},
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_state_that_is_none_is_refused_and_changes_nothing(case: str) -> None:
    scale = ReturnScale("zero_lag", 0.9, 1e-4)
    scale.update(np.array([1.0, 4.0]))
    before = scale.state_dict()
    with pytest.raises(StateError, match=f"return_scale_state.*{next(iter(BROKEN[case]))}"):
        scale.load_state_dict({**before, **BROKEN[case]})
    assert scale.state_dict() == before
