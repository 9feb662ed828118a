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
    NonFiniteObservationError,
    NonFiniteReturnError,
    ResumeWarning,
    RLCoreError,
    SettingError,
    StateError,
    TooLargeError,
    UnknownSettingError,
)
from rlcore.inference import InferencePolicy, infer_signals, load_policy
from rlcore.optim.scaler import VarianceGradientScaler
from rlcore.optim.upgd import UPGD, AdaptiveUPGD
from rlcore.pbt import HyperparamConfig, PBTConfig, PBTScheduler, PopulationMember
from rlcore.pbt.exploit import apply_exploit, save_pbt_checkpoint
from rlcore.pbt.interval import check_interval, optimizer_steps_per_update
from rlcore.pbt.lineage import Ancestor, LineageEvent, ancestors, read_lineage
from rlcore.pbt.population import MemberStatus, Population, PopulationResult
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.config import PPOSettings
from rlcore.ppo.live_settings import set_hyperparameters
from rlcore.ppo.policy import (
    DistributionalRecurrentCnnPolicy,
    DistributionalRecurrentMultiInputPolicy,
    DistributionalRecurrentPolicy,
)
from rlcore.ppo.returns import ReturnScale
from rlcore.ppo.values import CategoricalValues, QuantileValues, ValueDistribution

register_environments()

__all__ = [
    "UPGD",
    "AdaptiveUPGD",
    "Ancestor",
    "CallOrderError",
    "CategoricalValues",
    "Checkpoint",
    "CheckpointError",
    "ConfigFileError",
    "DistributionalPPO",
    "DistributionalRecurrentCnnPolicy",
    "DistributionalRecurrentMultiInputPolicy",
    "DistributionalRecurrentPolicy",
    "HyperparamConfig",
    "InferencePolicy",
    "LineageEvent",
    "MemberStatus",
    "NonFiniteGradientError",
    "NonFiniteObservationError",
    "NonFiniteReturnError",
    "PBTConfig",
    "PBTScheduler",
    "PPOSettings",
    "Population",
    "PopulationMember",
    "PopulationResult",
    "QuantileValues",
    "RLCoreError",
    "ResumableEnv",
    "ResumeWarning",
    "ReturnScale",
    "SettingError",
    "StateError",
    "TooLargeError",
    "TrainingConfig",
    "UnknownSettingError",
    "ValueDistribution",
    "VarianceGradientScaler",
    "ancestors",
    "apply_exploit",
    "build_model",
    "check_interval",
    "infer_signals",
    "load_checkpoint",
    "load_config",
    "load_policy",
    "optimizer_steps_per_update",
    "read_lineage",
    "register_environments",
    "save_checkpoint",
    "save_pbt_checkpoint",
    "set_hyperparameters",
]
