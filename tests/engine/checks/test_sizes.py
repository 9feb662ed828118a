"""Settings that only cost time are smaller in the checks, which say so, unless a model cannot be made with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from sb3_contrib import TRPO
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecFrameStack, VecMonitor, VecNormalize

from rlverify.checks import Status, check_algorithm, details
from rlverify.checks.adapters.sb3 import SB3Adapter
from rlverify.checks.engine import search
from rlverify.checks.engine.twins import smaller_model

CART, PENDULUM = "CartPole-v1", "Pendulum-v1"


def net() -> dict[str, Any]:
    """New, since some constructors write into the dictionary that they get."""
    return {"policy_kwargs": {"net_arch": [4]}, "device": "cpu", "seed": 0}


class Fixed(PPO):
    """Takes none of the sizes."""

    def __init__(self) -> None:
        super().__init__("MlpPolicy", CART, n_steps=512, **net())


class Deaf(PPO):
    """Takes the sizes and does not use them."""

    def __init__(self, policy: Any, env: Any, n_steps: int = 512, **settings: Any) -> None:
        super().__init__(policy, env, **{**settings, "n_steps": max(n_steps, 512)})


class Episodes(ReplayBuffer):
    """Stands for a buffer that samples whole episodes alone."""


def changed() -> PPO:
    model = PPO("MlpPolicy", CART, **net())
    model.mine = 3
    return model


def trained_before() -> PPO:
    model = PPO("MlpPolicy", CART, **net())
    for parameter in model.policy.parameters():
        parameter.data.zero_()
    return model


def wrapped(layer: Callable[[VecEnv], VecEnv], count: int = 6) -> PPO:
    return PPO("MlpPolicy", layer(DummyVecEnv([lambda: gym.make(CART)] * count)), **net())


ON_POLICY = "n_steps 2048 -> 64, n_epochs 10 -> 2"
ALONE = f"{ON_POLICY}, batch_size 64 -> 32"
AGAIN = "cannot be made again with its own arguments"
LINES: dict[str, tuple[Callable[[], BaseAlgorithm], str]] = {
    "ppo": (lambda: PPO("MlpPolicy", CART, **net()), f"shrunk: {ALONE}"),
    "without a seed": (lambda: PPO("MlpPolicy", CART, **{**net(), "seed": None}), f"shrunk: {ALONE}"),
    "a buffer that may need whole episodes": (
        lambda: SAC("MlpPolicy", PENDULUM, replay_buffer_class=Episodes, learning_starts=500, **net()),
        "shrunk: buffer_size 1000000 -> 1024, batch_size 256 -> 32",
    ),
    "trpo": (
        lambda: TRPO("MlpPolicy", CART, **net()),
        "shrunk: n_steps 2048 -> 64, n_critic_updates 10 -> 2, batch_size 128 -> 32",
    ),
    "a whole rollout as a batch": (
        lambda: PPO("MlpPolicy", CART, n_steps=256, batch_size=256, n_epochs=1, **net()),
        "shrunk: n_steps 256 -> 64, batch_size 256 -> 64",
    ),
    "td3": (lambda: TD3("MlpPolicy", PENDULUM, **net()), "shrunk: buffer_size 1000000 -> 1024, batch_size 256 -> 32"),
    "dqn": (
        lambda: DQN("MlpPolicy", CART, learning_starts=10_000, gradient_steps=64, **net()),
        "shrunk: buffer_size 1000000 -> 1024, learning_starts 10000 -> 64, gradient_steps 64 -> 8, "
        "target_update_interval 10000 -> 16",
    ),
    "small on-policy": (lambda: PPO("MlpPolicy", CART, n_steps=64, n_epochs=10, **net()), ""),
    "small off-policy": (lambda: TD3("MlpPolicy", PENDULUM, buffer_size=4096, batch_size=64, **net()), ""),
    "a2c": (lambda: A2C("MlpPolicy", make_vec_env(CART, 4), **net()), ""),
    "many environments": (lambda: wrapped(VecNormalize), f"shrunk: {ON_POLICY}, environments 6 -> 2"),
    "two layers": (
        lambda: wrapped(lambda env: VecMonitor(VecNormalize(env))),
        f"shrunk: {ON_POLICY}, environments 6 -> 2",
    ),
    "a layer with arrays of its own": (
        lambda: wrapped(lambda env: VecFrameStack(env, 2)),
        "shrunk: n_steps 2048 -> 21, n_epochs 10 -> 2, batch_size 64 -> 63",
    ),
    "no argument": (Fixed, f"not shrunk: Fixed {AGAIN} (Fixed.__init__() got an unexpected keyword "),
    "no effect": (
        lambda: Deaf("MlpPolicy", CART, **net()),
        f"not shrunk: Deaf {AGAIN} (n_steps has no effect); make the factory faster: n_steps 512 -> 64, "
        "n_epochs 10 -> 2, batch_size 64 -> 32",
    ),
    "an attribute of the factory": (changed, f"not shrunk: PPO {AGAIN} (mine differs)"),
    "parameters of the factory": (trained_before, f"not shrunk: PPO {AGAIN} (parameter "),
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_a_line_says_what_is_smaller_or_why_nothing_is(name: str) -> None:
    factory, line = LINES[name]
    (record,) = check_algorithm(factory, checks=["arguments_are_left_alone"])
    assert record.shrunk == line or (line.startswith("not shrunk") and record.shrunk.startswith(line))


def test_a_model_that_cannot_be_shrunk_is_checked_as_it_is_and_the_line_says_what_helps() -> None:
    (record,) = check_algorithm(Fixed, checks=["deterministic"], tier="smoke")
    assert record.status is Status.PASS
    assert record.shrunk.endswith("; make the factory faster: n_steps 512 -> 64, n_epochs 10 -> 2, batch_size 64 -> 32")


def test_as_is_keeps_every_size() -> None:
    seen: list[int] = []

    class Noted(SB3Adapter):
        def learn(self, model: BaseAlgorithm, steps: int) -> Any:
            seen.append(model.n_steps)  # type: ignore[attr-defined]
            return super().learn(model, steps)

    def run(*, as_is: bool) -> str:
        seen.clear()
        made = lambda: PPO("MlpPolicy", CART, n_steps=256, n_epochs=1, **net())  # noqa: E731
        (record,) = check_algorithm(made, adapter=Noted(), checks=["deterministic"], tier="smoke", as_is=as_is)
        return record.shrunk

    assert (run(as_is=True), set(seen)) == ("", {256})
    assert (run(as_is=False), set(seen)) == ("shrunk: n_steps 256 -> 64, batch_size 64 -> 32", {64})


def test_as_is_proves_and_explains_with_the_smaller_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_RUNS", 4)
    seen: list[int] = []

    class Noted(SB3Adapter):
        def load(self, folder: Any, fresh: BaseAlgorithm) -> BaseAlgorithm:
            seen.append(fresh.n_steps)  # type: ignore[attr-defined]
            return super().load(folder, fresh)

    def make() -> PPO:
        return PPO("MlpPolicy", CART, n_steps=256, n_epochs=1, **net())

    (record,) = check_algorithm(make, adapter=Noted(), checks=["resume_is_exact"], as_is=True)
    assert record.finding.why.startswith("restoring ")
    assert seen.count(256) == 2  # the gate and the check
    assert seen.count(64) > 2


def test_what_changes_behaviour_stays() -> None:
    noise, rate = NormalActionNoise(np.zeros(1), np.ones(1)), LinearSchedule(1e-3, 1e-4, 1.0)
    env = VecNormalize(make_vec_env(PENDULUM, 6, seed=3), gamma=0.5)
    made = smaller_model(
        SB3Adapter(), lambda: SAC("MlpPolicy", env, learning_rate=rate, action_noise=noise, use_sde=True, **net())
    )
    assert (made.learning_rate, made.action_noise, made.use_sde, made.n_envs) == (rate, noise, True, 2)
    assert (made.policy_kwargs["net_arch"], made.seed) == ([4], 0)
    kept = made.get_vec_normalize_env()
    assert (type(kept.venv), kept.gamma, kept.returns.shape) == (DummyVecEnv, 0.5, (2,))
    made.learn(120)
    assert env.num_envs == 6


def test_the_workers_of_sub_processes_are_cut_too(processes: None) -> None:  # noqa: ARG001
    def make() -> PPO:
        return PPO("MlpPolicy", make_vec_env(CART, 5, vec_env_cls=SubprocVecEnv), n_steps=8, batch_size=8, **net())

    (record,) = check_algorithm(make, checks=["deterministic"], tier="smoke")
    assert (record.status, record.shrunk) == (Status.PASS, "shrunk: environments 5 -> 2")


def test_a_failure_shows_what_is_smaller() -> None:
    (record,) = check_algorithm(LINES["ppo"][0], checks=["set_parameters_copies"])
    assert f"\nshrunk: {ALONE}\n" in details(record)
