"""Distributional PPO: the algorithm, its settings, its policies and how they represent values."""

from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.live import set_hyperparameters
from rlcore.ppo.policy import (
    DistributionalRecurrentCnnPolicy,
    DistributionalRecurrentMultiInputPolicy,
    DistributionalRecurrentPolicy,
)
from rlcore.ppo.returns import ReturnScale
from rlcore.ppo.settings import PPOSettings
from rlcore.ppo.values import CategoricalValues, QuantileValues, ValueDistribution

__all__ = [
    "CategoricalValues",
    "DistributionalPPO",
    "DistributionalRecurrentCnnPolicy",
    "DistributionalRecurrentMultiInputPolicy",
    "DistributionalRecurrentPolicy",
    "PPOSettings",
    "QuantileValues",
    "ReturnScale",
    "ValueDistribution",
    "set_hyperparameters",
]
