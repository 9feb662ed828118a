"""The algorithms of the field report: each with the defaults of its library, and with settings that are used less.

Only sizes differ from the defaults, so that a check takes seconds: steps of a rollout, batch, buffer and start of
learning. Every function is a factory for `rlverify.checks.check_algorithm`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import gymnasium as gym
import numpy as np
from sb3_contrib import QRDQN, TQC, TRPO, MaskablePPO, RecurrentPPO
from sb3_contrib.common.wrappers import ActionMasker
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

ROLLOUT: Final[dict[str, Any]] = {"n_steps": 64}
OFF_POLICY: Final[dict[str, Any]] = {"learning_starts": 64, "batch_size": 32, "buffer_size": 4096}
Factory = Callable[[], BaseAlgorithm]


def normalized_pendulum(n_envs: int) -> VecNormalize:
    """Pendulum in some environments, with normalised observations and rewards."""
    return VecNormalize(DummyVecEnv([lambda: Monitor(gym.make("Pendulum-v1"))] * n_envs))


def ppo(seed: int = 0) -> PPO:
    return PPO("MlpPolicy", "CartPole-v1", **ROLLOUT, seed=seed)


def ppo_awkward(seed: int = 0) -> PPO:
    settings: dict[str, Any] = {
        "learning_rate": LinearSchedule(3e-4, 1e-4, 1.0),
        "n_steps": 33,
        "batch_size": 32,
        "target_kl": 0.5,
    }
    return PPO("MlpPolicy", normalized_pendulum(3), use_sde=True, sde_sample_freq=4, seed=seed, **settings)


def a2c(seed: int = 0) -> A2C:
    return A2C("MlpPolicy", "CartPole-v1", seed=seed)


def a2c_awkward(seed: int = 0) -> A2C:
    return A2C("MlpPolicy", normalized_pendulum(2), normalize_advantage=True, use_sde=True, seed=seed)


def dqn(seed: int = 0) -> DQN:
    return DQN("MlpPolicy", "CartPole-v1", **OFF_POLICY, seed=seed)


def dqn_awkward(seed: int = 0) -> DQN:
    frugal: dict[str, Any] = {
        "optimize_memory_usage": True,
        "replay_buffer_kwargs": {"handle_timeout_termination": False},
    }
    return DQN("MlpPolicy", "CartPole-v1", **OFF_POLICY, **frugal, tau=0.5, target_update_interval=7, seed=seed)


def sac(seed: int = 0) -> SAC:
    return SAC("MlpPolicy", "Pendulum-v1", **OFF_POLICY, seed=seed)


def sac_awkward(seed: int = 0) -> SAC:
    noise = OrnsteinUhlenbeckActionNoise(np.zeros(1), np.full(1, 0.1))
    settings: dict[str, Any] = {
        "action_noise": noise,
        "use_sde": True,
        "gradient_steps": -1,
        "target_update_interval": 3,
    }
    return SAC("MlpPolicy", normalized_pendulum(2), **OFF_POLICY, **settings, seed=seed)


def td3(seed: int = 0) -> TD3:
    return TD3("MlpPolicy", "Pendulum-v1", **OFF_POLICY, seed=seed)


def td3_awkward(seed: int = 0) -> TD3:
    settings: dict[str, Any] = {
        "action_noise": NormalActionNoise(np.zeros(1), np.full(1, 0.1)),
        "n_steps": 3,
        "policy_delay": 3,
    }
    return TD3("MlpPolicy", normalized_pendulum(2), **OFF_POLICY, **settings, seed=seed)


def trpo(seed: int = 0) -> TRPO:
    return TRPO("MlpPolicy", "CartPole-v1", **ROLLOUT, seed=seed)


def trpo_awkward(seed: int = 0) -> TRPO:
    settings: dict[str, Any] = {"n_steps": 33, "batch_size": 32, "sub_sampling_factor": 2, "use_sde": True}
    return TRPO("MlpPolicy", normalized_pendulum(3), **settings, seed=seed)


def recurrent_ppo(seed: int = 0) -> RecurrentPPO:
    return RecurrentPPO("MlpLstmPolicy", "CartPole-v1", **ROLLOUT, policy_kwargs={"lstm_hidden_size": 32}, seed=seed)


def recurrent_ppo_awkward(seed: int = 0) -> RecurrentPPO:
    policy: dict[str, Any] = {
        "lstm_hidden_size": 16,
        "shared_lstm": True,
        "enable_critic_lstm": False,
        "n_lstm_layers": 2,
    }
    settings: dict[str, Any] = {"n_steps": 33, "batch_size": 33, "policy_kwargs": policy, "n_epochs": 3}
    return RecurrentPPO("MlpLstmPolicy", normalized_pendulum(3), **settings, seed=seed)


def tqc(seed: int = 0) -> TQC:
    return TQC("MlpPolicy", "Pendulum-v1", **OFF_POLICY, seed=seed)


def tqc_awkward(seed: int = 0) -> TQC:
    settings: dict[str, Any] = {
        "train_freq": (1, "episode"),
        "gradient_steps": 8,
        "top_quantiles_to_drop_per_net": 5,
        "ent_coef": 0.1,
    }
    return TQC("MlpPolicy", normalized_pendulum(1), **OFF_POLICY, **settings, seed=seed)


def qrdqn(seed: int = 0) -> QRDQN:
    return QRDQN("MlpPolicy", "CartPole-v1", **OFF_POLICY, seed=seed)


def qrdqn_awkward(seed: int = 0) -> QRDQN:
    settings: dict[str, Any] = {
        "learning_rate": LinearSchedule(5e-4, 1e-4, 1.0),
        "tau": 0.5,
        "target_update_interval": 7,
    }
    return QRDQN("MlpPolicy", "CartPole-v1", **OFF_POLICY, **settings, max_grad_norm=0.5, seed=seed)


def inwards(env: gym.Env[Any, Any]) -> Any:
    """The actions that do not push the cart further from the middle, where it is far from it."""
    place = env.unwrapped.state[0]  # type: ignore[attr-defined]  # of CartPole
    return np.array([place > -0.05, place < 0.05])


def masked_cartpole() -> Monitor[Any, Any]:
    """CartPole, in which some actions are invalid."""
    return Monitor(ActionMasker(gym.make("CartPole-v1"), inwards))


def maskable_ppo(seed: int = 0) -> MaskablePPO:
    return MaskablePPO("MlpPolicy", masked_cartpole(), **ROLLOUT, seed=seed)


def maskable_ppo_awkward(seed: int = 0) -> MaskablePPO:
    envs = DummyVecEnv([masked_cartpole] * 3)
    return MaskablePPO("MlpPolicy", envs, n_steps=33, batch_size=32, n_epochs=3, target_kl=0.5, seed=seed)


@dataclass(frozen=True)
class FieldAlgorithm:
    """An algorithm of the report.

    :param name: that of its class
    :param library: the distribution that it is of
    :param defaults: makes it with the defaults of its library; takes a seed
    :param awkward: makes it with settings that are used less; takes a seed
    """

    name: str
    library: str
    defaults: Callable[..., BaseAlgorithm]
    awkward: Callable[..., BaseAlgorithm]

    @property
    def sources(self) -> tuple[str, str]:
        """The code of both functions."""
        return inspect.getsource(self.defaults).strip(), inspect.getsource(self.awkward).strip()


SB3: Final = "stable-baselines3"
CONTRIB: Final = "sb3-contrib"
ALGORITHMS: Final = (
    FieldAlgorithm("PPO", SB3, ppo, ppo_awkward),
    FieldAlgorithm("A2C", SB3, a2c, a2c_awkward),
    FieldAlgorithm("DQN", SB3, dqn, dqn_awkward),
    FieldAlgorithm("SAC", SB3, sac, sac_awkward),
    FieldAlgorithm("TD3", SB3, td3, td3_awkward),
    FieldAlgorithm("TRPO", CONTRIB, trpo, trpo_awkward),
    FieldAlgorithm("RecurrentPPO", CONTRIB, recurrent_ppo, recurrent_ppo_awkward),
    FieldAlgorithm("TQC", CONTRIB, tqc, tqc_awkward),
    FieldAlgorithm("QRDQN", CONTRIB, qrdqn, qrdqn_awkward),
    FieldAlgorithm("MaskablePPO", CONTRIB, maskable_ppo, maskable_ppo_awkward),
)
