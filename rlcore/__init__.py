"""A small distributional-PPO core on Stable-Baselines3, built to be verified."""

from rlcore.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from rlcore.configuration import TrainingConfig, build_model, load_config
from rlcore.environments import register_environments
from rlcore.envs import ResumableEnv
from rlcore.errors import (
    CallOrderError,
    CheckpointError,
    ConfigFileError,
    NonFiniteGradientError,
    ResumeWarning,
    RLCoreError,
    SettingError,
    StateError,
    UnknownSettingError,
)
from rlcore.inference import InferencePolicy, infer_signals, load_policy
from rlcore.optim.scaler import VarianceGradientScaler
from rlcore.optim.upgd import UPGD, AdaptiveUPGD
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.config import PPOSettings
from rlcore.ppo.policy import DistributionalRecurrentPolicy

register_environments()

__all__ = [
    "UPGD",
    "AdaptiveUPGD",
    "CallOrderError",
    "Checkpoint",
    "CheckpointError",
    "ConfigFileError",
    "DistributionalPPO",
    "DistributionalRecurrentPolicy",
    "InferencePolicy",
    "NonFiniteGradientError",
    "PPOSettings",
    "RLCoreError",
    "ResumableEnv",
    "ResumeWarning",
    "SettingError",
    "StateError",
    "TrainingConfig",
    "UnknownSettingError",
    "VarianceGradientScaler",
    "build_model",
    "infer_signals",
    "load_checkpoint",
    "load_config",
    "load_policy",
    "register_environments",
    "save_checkpoint",
]
