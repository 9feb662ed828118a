"""The adapter of Stable-Baselines3 in the rules that need more of it; the findings are of the installed versions."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import pytest
import torch
from sb3_contrib import QRDQN, TQC, MaskablePPO, RecurrentPPO
from sb3_contrib.common.envs import InvalidActionEnvDiscrete
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

from rlverify.checks import Adapter, CheckRecord, Status, check_algorithm
from rlverify.checks.adapters.sb3 import SB3Adapter, arguments

SMALL: dict[str, Any] = {"seed": 0, "device": "cpu", "policy_kwargs": {"net_arch": [4]}}
ON: dict[str, Any] = {"n_steps": 8, "batch_size": 4, "n_epochs": 1, **SMALL}
RECURRENT: dict[str, Any] = {**ON, "policy_kwargs": {"net_arch": [4], "lstm_hidden_size": 4}}


def pendulum() -> VecNormalize:
    return VecNormalize(DummyVecEnv([lambda: gym.make("Pendulum-v1")] * 2))


def ppo() -> PPO:
    return PPO("MlpPolicy", pendulum(), **ON)


def to_zero(progress: float) -> float:
    return 1e-3 * progress


class ClockStartsAgain(PPO):
    """Forgets in a load how far its schedules are."""

    @classmethod
    def load(cls, *arguments: Any, **named: Any) -> Any:
        model = super().load(*arguments, **named)
        model.num_timesteps = 0
        return model


def recurrent() -> RecurrentPPO:
    return RecurrentPPO("MlpLstmPolicy", pendulum(), **RECURRENT)


def maskable() -> MaskablePPO:
    return MaskablePPO("MlpPolicy", InvalidActionEnvDiscrete(dim=4, n_invalid_actions=2), **ON)


def dqn() -> DQN:
    return DQN("MlpPolicy", "CartPole-v1", learning_starts=8, batch_size=4, buffer_size=64, **SMALL)


OFF: dict[str, Any] = {"learning_starts": 8, "batch_size": 4, "buffer_size": 64, "device": "cpu", "seed": 0}


def sac() -> SAC:
    return SAC("MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": [4]}, **OFF)


def tqc() -> TQC:
    return TQC("MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": [4]}, **OFF)


def qrdqn() -> QRDQN:
    return QRDQN("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [4]}, **OFF)


def checked(factory: Callable[[], Any], name: str) -> CheckRecord:
    (record,) = check_algorithm(factory, checks=[name])
    return record


@pytest.mark.parametrize(
    ("factory", "name"),
    [
        (recurrent, "episode_start_forgets"),
        (recurrent, "environments_do_not_leak"),
        (recurrent, "ratio_is_one_on_a_fresh_rollout"),
        (maskable, "ratio_is_one_on_a_fresh_rollout"),
        (ppo, "learning_rate_takes_effect"),
        (ppo, "one_sample_minibatch"),
        (ppo, "normalizer_is_finite_and_saved"),
        (ppo, "returns_minus_values_are_advantages"),
        (ppo, "nan_observation_is_reported"),
        (ppo, "advantages_are_generalised"),
        (ppo, "truncation_is_not_termination"),
        (lambda: PPO("MlpPolicy", "CartPole-v1", **ON, learning_rate=to_zero), "learning_rates_continue"),
        (dqn, "environment_can_be_copied"),
        (dqn, "unknown_settings_are_refused"),
        (dqn, "explored_values_train"),
        (sac, "learning_rate_zero_freezes"),
        (tqc, "settings_survive"),
        (qrdqn, "optimizers_hold_the_parameters"),
        (qrdqn, "targets_start_equal"),
    ],
)
def test_a_rule_passes_and_is_proven(factory: Callable[[], Any], name: str) -> None:
    assert checked(factory, name).outcome.startswith("pass, proven by"), checked(factory, name).finding


@pytest.mark.parametrize(
    ("factory", "name", "seen"),
    [
        (ppo, "environment_can_be_copied", "the copy raises AttributeError"),
        (ppo, "statistics_follow_the_policy", "the observation is"),
        (
            ppo,
            "unknown_settings_are_refused",
            "accepted without an error: policy_kwargs['net_arch']['rlverify_unknown']",
        ),
        (
            lambda: A2C("MlpPolicy", pendulum(), n_steps=4, **SMALL),
            "arguments_are_left_alone",
            "['policy_kwargs']['optimizer_class'] is torch.optim.rmsprop.RMSprop after the call",
        ),
        (
            lambda: ClockStartsAgain("MlpPolicy", "CartPole-v1", **ON, learning_rate=to_zero),
            "learning_rates_continue",
            "policy.optimizer.param_groups[0]['lr'] is 0.0005 at update 1 after the load, expected 0.00025",
        ),
        (recurrent, "one_sample_minibatch", "with batch_size=15, "),
        (maskable, "one_sample_minibatch", "with batch_size=7, "),
        (dqn, "pieces_equal_whole", "exploration_rate is 0."),
        (dqn, "nan_observation_is_reported", "learn() returns, and 4 parameters are not finite"),
        (dqn, "artefact_needs_no_unpickling", "model.zip: data: policy_class"),
        (dqn, "artefact_runs_nothing_when_read", "stable_baselines3.dqn.policies.DQNPolicy"),
    ],
)
def test_a_rule_fails(factory: Callable[[], Any], name: str, seen: str) -> None:
    record = checked(factory, name)
    assert record.status is Status.FAIL, record.finding
    assert seen in record.finding.seen


@pytest.mark.parametrize(
    ("factory", "name", "reason"),
    [
        (dqn, "episode_start_forgets", "DQNPolicy is not recurrent"),
        (dqn, "ratio_is_one_on_a_fresh_rollout", "DQN has no rollout buffer"),
        (dqn, "statistics_follow_the_policy", "the environment has no VecNormalize"),
        (maskable, "nan_observation_is_reported", "the observations are no floating-point numbers"),
    ],
)
def test_a_rule_that_does_not_apply_says_why(factory: Callable[[], Any], name: str, reason: str) -> None:
    record = checked(factory, name)
    assert (record.status, record.finding.seen) == (Status.NOT_APPLICABLE, reason)


@pytest.mark.usefixtures("processes")
def test_environments_in_worker_processes_are_not_copied() -> None:
    def factory() -> PPO:
        return PPO("MlpPolicy", SubprocVecEnv([lambda: gym.make("CartPole-v1")], start_method="fork"), **ON)

    record = checked(factory, "environment_can_be_copied")
    assert record.finding.seen == "the environments are in worker processes"


@pytest.mark.parametrize("train_freq", [1, 64, (1, "episode")])
@pytest.mark.parametrize("learning_starts", [0, 100])
def test_both_pieces_of_training_update_an_off_policy_model(train_freq: Any, learning_starts: int) -> None:
    settings = {**SMALL, "learning_starts": learning_starts, "batch_size": 4, "buffer_size": 512}
    model, adapter = DQN("MlpPolicy", "CartPole-v1", train_freq=train_freq, **settings), SB3Adapter()
    steps, after = adapter.steps(model), adapter.steps_after(model)
    assert after == min(steps, 32)
    adapter.learn(model, steps)
    first = model._n_updates
    assert first > 0
    adapter.learn(model, after)
    assert model._n_updates > first


def test_the_settings_of_a_model_are_found_through_subclasses() -> None:
    class Own(SAC):
        def __init__(self, *args: Any, extra: int = 1, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.extra = extra

    model = Own("MlpPolicy", "Pendulum-v1", gamma=0.5, extra=3, learning_starts=7, buffer_size=10, device="cpu")
    found = arguments(model)
    assert (found["gamma"], found["extra"], found["learning_starts"], found["ent_coef"]) == (0.5, 3, 7, "auto")
    assert type(Own(**found)) is Own


def test_a2c_has_no_remainder() -> None:
    record = checked(lambda: A2C("MlpPolicy", pendulum(), n_steps=4, **SMALL), "one_sample_minibatch")
    assert record.finding.seen == "no batch size leaves a remainder of one sample"


class Curious(PPO):
    """Has a network and an optimizer of its own, with the rate that PPO has by default."""

    trained = slice(1)

    def _setup_model(self) -> None:
        super()._setup_model()
        self.predictor = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
        self.own = torch.optim.Adam(self.predictor[self.trained].parameters(), lr=3e-4)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "predictor", "own"]

    def train(self) -> None:
        for data in self.rollout_buffer.get(8):
            self.own.zero_grad()
            self.predictor(data.observations).pow(2).mean().backward()
            self.own.step()
        super().train()


class CuriousInFull(Curious):
    trained = slice(2)


def curious(kind: type[Curious]) -> Callable[[], Any]:
    return lambda: kind("MlpPolicy", "Pendulum-v1", **ON)


def test_a_network_beside_the_policy_is_checked_by_its_name() -> None:
    record = checked(curious(Curious), "optimizers_hold_the_parameters")
    assert record.status is Status.FAIL
    assert "predictor.1.weight, predictor.1.bias" in record.finding.seen


@pytest.mark.parametrize(
    "name", ["optimizers_hold_the_parameters", "learning_rate_takes_effect", "learning_rate_zero_freezes"]
)
def test_an_optimizer_with_a_rate_of_its_own_is_no_failure(name: str) -> None:
    assert checked(curious(CuriousInFull), name).outcome.startswith("pass, proven by")


def test_an_adapter_with_one_method_does_the_rest_as_the_library() -> None:
    class Mine(Adapter):
        def callbacks(self, model: Any) -> list[Any]:  # noqa: ARG002
            return []

    (record,) = check_algorithm(dqn, adapter=Mine(), checks=["settings_survive"])
    assert record.outcome == "pass, proven by 1 fault"


def test_the_statistics_of_a_wrapper_of_gymnasium_are_checked() -> None:
    def factory() -> PPO:
        wrapped = DummyVecEnv([lambda: gym.wrappers.NormalizeObservation(gym.make("Pendulum-v1"))])
        return PPO("MlpPolicy", wrapped, **ON)

    record = checked(factory, "normalizer_is_finite_and_saved")
    assert record.status is Status.FAIL
    assert record.finding.where == "envs[0] NormalizeObservation.obs_rms.mean"


class StillTarget(SAC):
    """Never moves its target networks."""

    def train(self, *arguments: Any, **options: Any) -> None:
        tau, self.tau = self.tau, 0.0
        super().train(*arguments, **options)
        self.tau = tau


def still() -> SAC:
    return StillTarget("MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": [4]}, **OFF)


def test_a_target_that_stays_fails_where_that_of_the_library_moves() -> None:
    seen = checked(still, "targets_follow").finding.seen
    assert re.fullmatch(r"\d+ steps of training move no target network, and they do of a SAC", seen)
    rare = partial(DQN, "MlpPolicy", "CartPole-v1", target_update_interval=10_000, **SMALL)
    assert checked(rare, "targets_follow").status is Status.PASS  # the interval is made smaller
    (record,) = check_algorithm(rare, checks=["targets_follow"], as_is=True)
    assert record.status is Status.INCONCLUSIVE
    assert "your code never moves one, or later" in record.finding.seen


class BecomesItsTarget(DQN):
    """Assigns the network where it has to copy it."""

    def train(self, *arguments: Any, **options: Any) -> None:
        super().train(*arguments, **options)
        self.policy.q_net_target = self.policy.q_net


def test_a_target_that_becomes_the_network_that_it_follows_fails() -> None:
    found = checked(partial(BecomesItsTarget, "MlpPolicy", "CartPole-v1", **SMALL), "targets_follow").finding
    assert found.seen.startswith("the target q_net is trained: an optimizer has its parameters")


class EqualReturns(PPO):
    """Computes advantages with a lambda that is not that of its settings."""

    def _setup_model(self) -> None:
        super()._setup_model()
        self.rollout_buffer.gae_lambda = 1.0


def test_advantages_are_those_of_the_settings_of_the_model() -> None:
    make = partial(EqualReturns, "MlpPolicy", "CartPole-v1", **ON)
    assert checked(make, "advantages_are_generalised").status is Status.FAIL


class Anchored(PPO):
    """Follows with the head of its values and not with their trunk, in networks of its own."""

    def _setup_model(self) -> None:
        super()._setup_model()
        self.anchor_target = copy.deepcopy(self.policy.mlp_extractor)
        self.head_target = copy.deepcopy(self.policy.value_net)

    def train(self) -> None:
        super().train()
        self.head_target.load_state_dict(self.policy.value_net.state_dict())


def test_of_several_targets_each_has_to_follow() -> None:
    found = checked(partial(Anchored, "MlpPolicy", "CartPole-v1", **ON), "targets_follow").finding
    assert found.where.startswith("anchor_target.")
    assert {each.partition(".")[0] for each in found.causes} == {"anchor_target"}
    assert f"{len(found.causes)} of {len(found.causes) + 2} tensors of target networks stay" in found.seen


class StartsRateAgain(DQN):
    """Halves its learning rate at every update, from the beginning in each call of learn()."""

    def _setup_learn(self, *arguments: Any, **options: Any) -> Any:
        self.halvings = 0
        return super()._setup_learn(*arguments, **options)

    def _update_learning_rate(self, optimizers: Any) -> None:
        self.halvings += 1
        optimizers.param_groups[0]["lr"] = 1e-3 * 0.5**self.halvings


def test_a_rate_that_starts_again_is_yours_beside_the_exploration_of_the_library() -> None:
    made = partial(StartsRateAgain, "MlpPolicy", "CartPole-v1", learning_starts=8, batch_size=4, **SMALL)
    found = checked(made, "pieces_equal_whole")
    assert found.finding.why.startswith("exploration_rate is ")
    assert found.library is not None
    assert found.library.other_causes == ("policy.optimizer.param_groups[0]['lr']",)
