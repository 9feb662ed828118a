"""A small distributional-PPO core on Stable-Baselines3, built to be verified."""

from rlcore.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from rlcore.envs import ResumableEnv
from rlcore.errors import (
    CallOrderError,
    CheckpointError,
    NonFiniteGradientError,
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
from rlcore.ppo.policy import (
    DistributionalRecurrentCnnPolicy,
    DistributionalRecurrentMultiInputPolicy,
    DistributionalRecurrentPolicy,
)

__all__ = [
    "UPGD",
    "AdaptiveUPGD",
    "CallOrderError",
    "Checkpoint",
    "CheckpointError",
    "DistributionalPPO",
    "DistributionalRecurrentCnnPolicy",
    "DistributionalRecurrentMultiInputPolicy",
    "DistributionalRecurrentPolicy",
    "NonFiniteGradientError",
    "PPOSettings",
    "RLCoreError",
    "ResumableEnv",
    "ResumeWarning",
    "SettingError",
    "StateError",
    "UnknownSettingError",
    "VarianceGradientScaler",
    "load_checkpoint",
    "save_checkpoint",
]
