"""Small populations that report scores and save tiny parameters, without training anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rlcore import HyperparamConfig, PBTConfig, PBTScheduler, PopulationMember

LR = HyperparamConfig("learning_rate", min_value=1e-5, max_value=1e-3, is_log_scale=True)
MOMENTUM = HyperparamConfig("momentum", values=[0.8, 0.9, 0.95, 0.99])
EPOCHS = HyperparamConfig("n_epochs", min_value=1, max_value=12)


def make_config(folder: Path, size: int = 4, **settings: Any) -> PBTConfig:
    """A population of ``size`` over three kinds of hyperparameter."""
    given = {"population_size": size, "hyperparams": [LR, MOMENTUM, EPOCHS], "checkpoint_dir": folder}
    return PBTConfig(**{**given, **settings})


def make_scheduler(folder: Path, size: int = 4, seed: int = 0, **settings: Any) -> PBTScheduler:
    """A scheduler whose population is drawn."""
    scheduler = PBTScheduler(make_config(folder, size, **settings), seed=seed)
    scheduler.initialize_population()
    return scheduler


def parameters_of(value: float) -> Any:
    """What a model's ``get_parameters()`` gives, recognisable by ``value``."""
    return {
        "policy": {"weight": torch.full((2, 3), float(value))},
        "policy.optimizer": {"state": {0: {"exp_avg": torch.full((2, 3), value + 0.5)}}, "param_groups": []},
        "vgs_state": {"step_count": int(value)},
    }


def report(scheduler: PBTScheduler, performances: Sequence[float], step: int = 5) -> list[PopulationMember]:
    """Let every member report a score and save parameters that hold its own number."""
    for member, performance in zip(scheduler.population, performances, strict=True):
        scheduler.update_performance(member, performance, step, model_parameters=parameters_of(member.member_id))
    return scheduler.population


def files_in(folder: Path) -> list[str]:
    """Names of the files in a folder, sorted; none if there is no folder."""
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []
