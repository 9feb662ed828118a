"""Population-based training: members that copy better ones and explore their hyperparameters."""

from rlcore.pbt.config import PBTConfig
from rlcore.pbt.hyperparams import HyperparamConfig
from rlcore.pbt.member import PopulationMember
from rlcore.pbt.scheduler import PBTScheduler

__all__ = ["HyperparamConfig", "PBTConfig", "PBTScheduler", "PopulationMember"]
