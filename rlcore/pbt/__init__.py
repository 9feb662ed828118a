"""Population-based training: members that copy better ones and explore their hyperparameters."""

from rlcore.pbt.hyperparams import HyperparamConfig, PBTConfig
from rlcore.pbt.scheduler import PBTScheduler, PopulationMember

__all__ = ["HyperparamConfig", "PBTConfig", "PBTScheduler", "PopulationMember"]
