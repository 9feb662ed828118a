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
    NonFiniteReturnError,
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
from rlcore.ppo.returns import ReturnScale
from rlcore.ppo.values import CategoricalValues, QuantileValues, ValueDistribution

register_environments()

__all__ = [
    "UPGD",
    "AdaptiveUPGD",
    "CallOrderError",
    "CategoricalValues",
    "Checkpoint",
    "CheckpointError",
    "ConfigFileError",
    "DistributionalPPO",
    "DistributionalRecurrentPolicy",
    "InferencePolicy",
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
    "TrainingConfig",
    "UnknownSettingError",
    "ValueDistribution",
    "VarianceGradientScaler",
    "build_model",
    "infer_signals",
    "load_checkpoint",
    "load_config",
    "load_policy",
    "register_environments",
    "save_checkpoint",
]
