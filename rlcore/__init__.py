"""A small distributional-PPO core on Stable-Baselines3, built to be verified."""

from importlib import metadata

try:
    import sb3_contrib  # noqa: F401
    import xxhash  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError(f"rlcore needs {error.name}, which is not installed: pip install 'rlverify[rlcore]'") from None

from rlcore.checkpoint.formats import Checkpoint, load_checkpoint, save_checkpoint
from rlcore.envs.resumable import ResumableEnv
from rlcore.errors import (
    CallOrderError,
    CheckpointError,
    ConfigFileError,
    NonFiniteError,
    NonFiniteGradientError,
    NonFiniteObservationError,
    NonFiniteReturnError,
    ResumeWarning,
    RLCoreError,
    SettingError,
    StateError,
    UnknownSettingError,
    WorkerError,
)
from rlcore.optim.scaler import VarianceGradientScaler
from rlcore.optim.upgd import UPGD, AdaptiveUPGD
from rlcore.pbt import HyperparamConfig, PBTConfig, PBTScheduler, PopulationMember
from rlcore.pbt.hyperparams import optimizer_steps_per_update
from rlcore.pbt.population import LineageEvent, Population, PopulationResult, ancestors, read_lineage
from rlcore.pbt.turns import apply_exploit, save_pbt_checkpoint
from rlcore.pbt.workers import InlineExecutor, ProcessExecutor
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
from rlcore.run.config_file import TrainingConfig, build_model, load_config
from rlcore.run.inference import InferencePolicy, load_policy


def __getattr__(name: str) -> str:
    """``__version__``, asked of the installed distribution when it is needed."""
    if name == "__version__":
        return metadata.version("rlverify")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "UPGD",
    "AdaptiveUPGD",
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
    "InlineExecutor",
    "LineageEvent",
    "NonFiniteError",
    "NonFiniteGradientError",
    "NonFiniteObservationError",
    "NonFiniteReturnError",
    "PBTConfig",
    "PBTScheduler",
    "PPOSettings",
    "Population",
    "PopulationMember",
    "PopulationResult",
    "ProcessExecutor",
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
    "WorkerError",
    "ancestors",
    "apply_exploit",
    "build_model",
    "load_checkpoint",
    "load_config",
    "load_policy",
    "optimizer_steps_per_update",
    "read_lineage",
    "save_checkpoint",
    "save_pbt_checkpoint",
    "set_hyperparameters",
]
