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
from rlcore.pbt import HyperparamConfig, PBTConfig, PBTScheduler, PopulationMember
from rlcore.pbt.exploit import apply_exploit, save_pbt_checkpoint
from rlcore.pbt.interval import check_interval, optimizer_steps_per_update
from rlcore.pbt.lineage import Ancestor, LineageEvent, ancestors, read_lineage
from rlcore.pbt.population import MemberStatus, Population, PopulationResult
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.config import PPOSettings
from rlcore.ppo.live_settings import set_hyperparameters
from rlcore.ppo.policy import DistributionalRecurrentPolicy

__all__ = [
    "UPGD",
    "AdaptiveUPGD",
    "Ancestor",
    "CallOrderError",
    "Checkpoint",
    "CheckpointError",
    "DistributionalPPO",
    "DistributionalRecurrentPolicy",
    "HyperparamConfig",
    "LineageEvent",
    "MemberStatus",
    "NonFiniteGradientError",
    "PBTConfig",
    "PBTScheduler",
    "PPOSettings",
    "Population",
    "PopulationMember",
    "PopulationResult",
    "RLCoreError",
    "ResumableEnv",
    "ResumeWarning",
    "SettingError",
    "StateError",
    "UnknownSettingError",
    "VarianceGradientScaler",
    "ancestors",
    "apply_exploit",
    "check_interval",
    "load_checkpoint",
    "optimizer_steps_per_update",
    "read_lineage",
    "save_checkpoint",
    "save_pbt_checkpoint",
    "set_hyperparameters",
]
