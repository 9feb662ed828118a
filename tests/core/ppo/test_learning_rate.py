"""The learning rate that was asked for is the one that trains, before and after the first update."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from gymnasium import spaces
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.utils import LinearSchedule
from torch import nn

from rlcore import AdaptiveUPGD, DistributionalPPO, SettingError
from tests.support.training import make_envs, make_model


def rates(model: DistributionalPPO) -> dict[str, float]:
    return {group["name"]: group["lr"] for group in model.policy.optimizer.param_groups}


@pytest.mark.parametrize("lr", [1e-3, 5e-3, 1e-4, 1e-2])
@pytest.mark.parametrize("optimizer_class", ["adaptive_upgd", "adam"])
def test_lr_of_optimizer_kwargs_rules_before_and_after_training(lr: float, optimizer_class: str) -> None:
    model = make_model(optimizer_class=optimizer_class, optimizer_kwargs={"lr": lr})
    assert rates(model) == {"actor": lr, "critic": lr}
    model.learn(96)
    assert rates(model) == {"actor": lr, "critic": lr}
    assert model.learning_rate == lr


@pytest.mark.parametrize(
    ("optimizer_class", "default"), [("adaptive_upgd", 2e-3), (AdaptiveUPGD, 2e-3), ("upgd", 3e-4), ("adam", 3e-4)]
)
def test_without_any_lr_the_default_is_the_optimizers(optimizer_class: Any, default: float) -> None:
    assert rates(make_model(optimizer_class=optimizer_class)) == {"actor": default, "critic": default}


def test_lr_in_the_optimizer_kwargs_of_policy_kwargs_counts_too() -> None:
    policy_kwargs = {"lstm_hidden_size": 8, "optimizer_class": "sgd", "optimizer_kwargs": {"lr": 0.05, "momentum": 0.5}}
    model = make_model(policy_kwargs=policy_kwargs)
    model.learn(48)
    assert isinstance(model.policy.optimizer, torch.optim.SGD)
    assert (model.n_steps, model.n_quantiles) == (16, 8)
    assert rates(model) == {"actor": 0.05, "critic": 0.05}
    assert model.policy.optimizer.param_groups[0]["momentum"] == 0.5


def test_critics_have_a_rate_of_their_own_at_every_moment() -> None:
    model = make_model(learning_rate=LinearSchedule(1e-2, 1e-3, 1.0), critic_lr_multiplier=3.0)
    assert rates(model) == pytest.approx({"actor": 1e-2, "critic": 3e-2})
    model.learn(96)
    assert rates(model) == pytest.approx({"actor": 1e-3, "critic": 3e-3})


class Dense(BaseFeaturesExtractor):
    """An extractor with parameters."""

    def __init__(self, observation_space: spaces.Box) -> None:
        super().__init__(observation_space, 3)
        self.layer = nn.Linear(observation_space.shape[0], 3)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.layer(observations)


@pytest.mark.parametrize(
    "policy_kwargs",
    [
        {"enable_critic_lstm": False},
        {"enable_critic_lstm": False, "shared_lstm": True},
        {"features_extractor_class": Dense},
        {},
        {"features_extractor_class": Dense, "share_features_extractor": False},
    ],
    ids=lambda kwargs: "-".join(kwargs),
)
def test_the_actor_group_holds_exactly_what_the_log_probability_depends_on(policy_kwargs: dict[str, Any]) -> None:
    policy = make_model(policy_kwargs={"lstm_hidden_size": 8, **policy_kwargs}).policy
    states = RNNStates(*[(torch.zeros(1, 2, 8), torch.zeros(1, 2, 8))] * 2)
    _, log_prob, _ = policy.evaluate_actions(torch.ones(2, 4), torch.zeros(2), states, torch.ones(2))
    log_prob.sum().backward()
    groups = {group["name"]: {id(p) for p in group["params"]} for group in policy.optimizer.param_groups}
    assert groups["actor"] == {id(p) for p in policy.parameters() if p.grad is not None}
    assert groups["critic"] == {id(p) for p in policy.parameters()} - groups["actor"]


def test_a_rollout_beyond_the_total_does_not_turn_a_schedule_negative() -> None:
    model = make_model(learning_rate=lambda remaining: 1e-3 * remaining)
    model.learn(50)
    assert model.num_timesteps == 96
    assert rates(model) == {"actor": 0.0, "critic": 0.0}


def test_a_schedule_that_stops_giving_numbers_is_named_as_the_setting() -> None:
    model = make_model(learning_rate=lambda remaining: 1e-3 if remaining > 0.5 else float("nan"))
    with pytest.raises(SettingError, match="learning_rate gives nan"):
        model.learn(96)


def seeds(model: DistributionalPPO) -> set[int]:
    return {group["seed"] for group in model.policy.optimizer.param_groups}


def loaded(model: DistributionalPPO, **settings: Any) -> DistributionalPPO:
    file = io.BytesIO()
    model.save(file)
    file.seek(0)
    return DistributionalPPO.load(file, env=make_envs(), device="cpu", **settings)


def trained(**settings: Any) -> DistributionalPPO:
    return make_model(**settings).learn(48)


def test_a_load_keeps_the_seed_of_the_file_unless_another_one_is_asked_for() -> None:
    model, own = trained(), trained(optimizer_kwargs={"seed": 5})
    assert seeds(loaded(model)) == seeds(loaded(model, gamma=0.5)) == seeds(model)
    assert seeds(own) == seeds(loaded(own, seed=123)) == {5}
    assert seeds(loaded(own, optimizer_kwargs={"seed": 7})) == seeds(loaded(model, optimizer_kwargs={"seed": 7})) == {7}


def test_another_seed_of_the_model_gives_other_noise_and_always_the_same() -> None:
    model = trained()
    one, other, again = (loaded(model, seed=seed) for seed in (123, 124, 123))
    assert seeds(one) == seeds(again)
    assert len(seeds(one) | seeds(other) | seeds(model)) == 3
