"""The components under test, made for a probe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

from rlcore import UPGD, AdaptiveUPGD, DistributionalPPO, PBTConfig, PBTScheduler, ResumableEnv, VarianceGradientScaler
from rlverify import Observation

SMALL_NETWORK = {"lstm_hidden_size": 16, "net_arch": [16]}


@dataclass(frozen=True)
class Make:
    """Factories of what is measured; give classes of your own to measure those.

    :param algorithm: DistributionalPPO or a class with its interface
    :param optimizers: utility-gated optimizers by the name under which they are reported
    :param scaler: VarianceGradientScaler or a class with its interface
    """

    algorithm: type[DistributionalPPO] = DistributionalPPO
    optimizers: tuple[tuple[str, type[torch.optim.Optimizer]], ...] = (("UPGD", UPGD), ("AdaptiveUPGD", AdaptiveUPGD))
    scaler: type[VarianceGradientScaler] = VarianceGradientScaler

    def envs(self, seed: int, env_id: str = "CartPole-v1", n_envs: int = 3) -> VecEnv:
        """Real environments whose state can be saved."""
        envs: VecEnv = make_vec_env(env_id, n_envs=n_envs, seed=seed, wrapper_class=ResumableEnv)
        return envs

    def model(self, seed: int, envs: VecEnv | None = None, **settings: Any) -> DistributionalPPO:
        """A model that trains in about a second, with twin critics, AdaptiveUPGD and variance gradient scaling."""
        small: dict[str, Any] = {
            "n_steps": 32,
            "batch_size": 48,
            "n_epochs": 2,
            "n_quantiles": 8,
            "variance_gradient_scaling": True,
            "vgs_warmup_steps": 4,
            "policy_kwargs": SMALL_NETWORK,
            "seed": seed,
            "device": "cpu",
        }
        if settings.get("variance_gradient_scaling") is False:
            del small["vgs_warmup_steps"]
        return self.algorithm("MlpLstmPolicy", self.envs(seed) if envs is None else envs, **{**small, **settings})

    def scheduler(self, seed: int, **settings: Any) -> PBTScheduler:
        """A population's scheduler, before its population is drawn."""
        return PBTScheduler(PBTConfig(**settings), seed=seed)


def equal(symptom: str, expected: object, seen: object) -> Observation:
    """Observe something that holds if it equals what is expected."""
    return Observation(symptom, str(expected), str(seen), holds=bool(seen == expected))
