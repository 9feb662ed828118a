"""Distributional PPO: the algorithm, its settings, its policies and how they represent values."""

from rlcore.ppo.adaptive import ReturnScale
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.live import set_hyperparameters
from rlcore.ppo.losses import CategoricalValues, QuantileValues, ValueDistribution
from rlcore.ppo.policy import (
    DistributionalRecurrentCnnPolicy,
    DistributionalRecurrentMultiInputPolicy,
    DistributionalRecurrentPolicy,
)
from rlcore.ppo.settings import PPOSettings

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
