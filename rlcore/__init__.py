"""A small distributional-PPO core on Stable-Baselines3, built to be verified."""

from rlcore.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from rlcore.envs import ResumableEnv
from rlcore.errors import (
    CallOrderError,
    CheckpointError,
    NonFiniteGradientError,
    NonFiniteReturnError,
    ResumeWarning,
    RLCoreError,
    SettingError,
    StateError,
    UnknownSettingError,
)
from rlcore.optim.scaler import VarianceGradientScaler
from rlcore.optim.upgd import UPGD, AdaptiveUPGD
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.config import PPOSettings
from rlcore.ppo.policy import DistributionalRecurrentPolicy
from rlcore.ppo.returns import ReturnScale
from rlcore.ppo.values import CategoricalValues, QuantileValues, ValueDistribution

__all__ = [
    "UPGD",
    "AdaptiveUPGD",
    "CallOrderError",
    "CategoricalValues",
    "Checkpoint",
    "CheckpointError",
    "DistributionalPPO",
    "DistributionalRecurrentPolicy",
    "NonFiniteGradientError",
    "NonFiniteReturnError",
    "PPOSettings",
    "QuantileValues",
    "RLCoreError",
    "ResumableEnv",
    "ResumeWarning",
    "ReturnScale",
    "SettingError",
    "StateError",
    "UnknownSettingError",
    "ValueDistribution",
    "VarianceGradientScaler",
    "load_checkpoint",
    "save_checkpoint",
]
