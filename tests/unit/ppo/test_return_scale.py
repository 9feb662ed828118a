"""The return scale in training: what keeps raw units, what moves and what does not, and where it is saved."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnvWrapper, VecNormalize

from rlcore import DistributionalPPO, NonFiniteReturnError, StateError
from tests.support.training import differing, make_envs, make_model

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


@pytest.mark.parametrize("return_scale", [None, "snapshot"])
def test_utilities_stay_where_no_critic_is_corrected(return_scale: str | None) -> None:
    model = make_model(optimizer_class="upgd", return_scale=return_scale)
    model.learn(48)
    before = copy.deepcopy(model.policy.optimizer.state_dict())
    model.rollout_buffer.returns *= 16.0
    model._scale_returns()
    assert differing(before, model.policy.optimizer.state_dict()) == []


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


def test_buffer_and_log_are_in_raw_units() -> None:
    model = make_model(**STILL)
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


def test_without_a_scale_nothing_is_logged_of_it() -> None:
    model = make_model(return_scale=None)
    model.learn(48)
    assert not any(key.startswith("train/return") for key in model.logger.name_to_value)


def test_value_clipping_is_in_units_of_the_return() -> None:
    model = make_model()
    model.learn(96)
    values, (mean, std) = model.policy.values, model.value_scale.snapshot
    assert std > 1.5
    old = torch.full((1, 2), mean)
    outputs = torch.full((1, 2, 8), 2.0)
    returns = torch.tensor([mean + 3 * std])
    at_edge = torch.full((1, 2, 8), 0.5)
    pulled_back = values.loss(outputs, returns, old, 0.5 * std)
    assert pulled_back.item() == pytest.approx(values.loss(at_edge, returns, old, None).item(), rel=1e-4)
    assert values.loss(outputs, returns, old, 2.5 * std).item() == pytest.approx(
        values.loss(outputs, returns, old, None).item(), rel=1e-4
    )


def test_an_update_that_fails_undoes_statistics_and_correction_together() -> None:
    model = make_model()
    model.learn(48)
    before, values = model.get_parameters(), raw_values(model)

    def failing() -> None:
        raise FloatingPointError

    model.policy.optimizer.step = failing  # type: ignore[method-assign,assignment]
    with pytest.raises(FloatingPointError):
        model.learn(48, reset_num_timesteps=False)
    assert differing(before, model.get_parameters()) == []
    assert torch.equal(raw_values(model), values)


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
    with pytest.raises(NonFiniteReturnError, match="rewards"):
        model.learn(48, reset_num_timesteps=False)
    changed = differing(before, model.get_parameters())
    assert [path for path in changed if "snapshot" not in path] == []  # that one is taken before a rollout


@pytest.mark.parametrize("return_scale", ["zero_lag", "snapshot"])
@pytest.mark.parametrize("copied", ["file", "pickle", "deepcopy"])
def test_training_goes_on_exactly_after_a_copy(return_scale: str, copied: str, tmp_path: Path) -> None:
    model = make_model(return_scale=return_scale)
    model.learn(96)
    if copied == "file":
        model.save(tmp_path / "model.zip")
        twin = DistributionalPPO.load(tmp_path / "model.zip", env=make_envs(), device="cpu")
    else:
        twin = pickle.loads(pickle.dumps(model)) if copied == "pickle" else copy.deepcopy(model)  # noqa: S301
        twin.set_env(make_envs(), force_reset=False)
    model.learn(48, reset_num_timesteps=False)
    twin.learn(48, reset_num_timesteps=False)
    assert differing(model.get_parameters(), twin.get_parameters()) == []


class SaveAndStop(BaseCallback):
    """Saves in the middle of the third rollout, and stops there."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def _on_step(self) -> bool:
        if self.n_calls == 2 * 16 + 5:
            self.model.save(self.path)
        return self.n_calls < 2 * 16 + 5


@pytest.mark.parametrize("return_scale", ["zero_lag", "snapshot"])
def test_a_run_cut_in_a_rollout_resumes_across_the_next_update(return_scale: str, tmp_path: Path) -> None:
    whole = make_model(return_scale=return_scale)
    whole.learn(192)
    make_model(return_scale=return_scale).learn(192, callback=SaveAndStop(tmp_path / "model.zip"))
    resumed = DistributionalPPO.load(tmp_path / "model.zip", env=make_envs(), device="cpu")
    resumed.learn(192 - resumed.num_timesteps, reset_num_timesteps=False)
    assert differing(whole.get_parameters(), resumed.get_parameters()) == []


def test_a_damaged_state_is_refused_whole_by_every_kind_of_model() -> None:
    giver = make_model()
    giver.learn(48)
    state = giver.get_parameters()
    damaged = {**state, "return_scale_state": {**state["return_scale_state"], "std_snapshot": 0.0}}
    unfitting = {**state, "policy": {**state["policy"], "value_net.heads.0.2.weight": torch.zeros(1)}}
    name = "value_net.heads.0.2.bias"
    incomplete = {**state, "policy": {key: tensor for key, tensor in state["policy"].items() if key != name}}
    for model in (make_model(seed=3),):
        before = scaled(model)
        for broken, words in (
            (incomplete, name),
            (damaged, "std_snapshot"),
            (unfitting, r"policy\['value_net"),
            ({}, "missing are .*policy.optimizer"),
        ):
            with pytest.raises(StateError, match=words):
                model.set_parameters(broken)
            assert differing(before, scaled(model)) == []


class SnapshotInRollout(BaseCallback):
    """Records what values are scaled with in each rollout."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[float, float]] = set()

    def _on_step(self) -> bool:
        assert isinstance(self.model, DistributionalPPO)
        self.seen.add(self.model.value_scale.snapshot)
        return True


def test_the_lagging_scale_takes_its_snapshot_before_the_first_step_of_a_rollout() -> None:
    model = make_model(return_scale="snapshot")
    model.learn(48)
    latest, watch = model.value_scale.statistics, SnapshotInRollout()
    model.learn(48, callback=watch, reset_num_timesteps=False)
    assert watch.seen == {latest}


def test_a_normaliser_of_rewards_and_a_return_scale_go_together() -> None:
    plain, normalised = make_model(), make_model(VecNormalize(make_envs(), norm_obs=False, norm_reward=True))
    for model in (plain, normalised):
        model.learn(48)
        assert model.value_scale.statistics.mean == pytest.approx(model.rollout_buffer.returns.mean(), rel=1e-5)
    assert normalised.value_scale.statistics.mean < 0.8 * plain.value_scale.statistics.mean


@pytest.mark.parametrize(("name", "value"), [("return_scale_decay", 0.25), ("return_scale_min_std", 0.125)])
def test_settings_reach_the_scale(name: str, value: float) -> None:
    assert getattr(make_model(**{name: value}).value_scale, name.removeprefix("return_scale_")) == value
