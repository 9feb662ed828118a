"""A small population that tests share; ``python -m tests.support.population_run FOLDER WRITE`` kills itself in it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from rlcore.checkpoint import container
from rlcore.pbt import HyperparamConfig, PBTConfig
from rlcore.pbt.population import Population
from rlcore.ppo.algorithm import DistributionalPPO
from tests.support.training import make_envs, make_model

UPDATES = 3
CONFIG: dict[str, Any] = {
    "population_size": 3,
    "perturbation_interval": 1,
    "truncation_ratio": 0.34,
    "hyperparams": [
        HyperparamConfig(name="learning_rate", min_value=1e-4, max_value=1e-1, is_log_scale=True),
        HyperparamConfig(name="sigma", min_value=1e-3, max_value=1e-1),
    ],
}


def build_model(hyperparams: Mapping[str, Any], seed: int) -> DistributionalPPO:
    settings = {"learning_rate": hyperparams["learning_rate"], "optimizer_kwargs": {"sigma": hyperparams["sigma"]}}
    envs = make_envs(n_envs=2, normalize=True, seed=seed)
    return make_model(envs, seed=seed, n_steps=32, batch_size=32, **settings)


def build(folder: Path, **changes: Any) -> Population:
    return Population(build_model, PBTConfig(**{**CONFIG, **changes}), folder=folder, seed=6)


def kill_at(write: int) -> None:
    """Let the process die, as by a power cut, instead of putting its n-th file in place."""
    done, replace = 0, os.replace

    def counted(source: Any, target: Any) -> None:
        nonlocal done
        done += 1
        if done == write:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target)

    container.os.replace = counted  # type: ignore[attr-defined]


if __name__ == "__main__":
    torch.set_num_threads(1)
    kill_at(int(sys.argv[2]))
    build(Path(sys.argv[1])).train(UPDATES)
