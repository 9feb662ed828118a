"""Trials of Ray Tune that train in a fraction of a second, made in this process as Ray makes them in its actors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from rlcore import DistributionalPPO
from tests.support.training import make_envs, make_model

CONFIG: dict[str, Any] = {"learning_rate": 1e-3, "clip_range": 0.2, "ent_coef": 0.01, "sigma": 0.01}


def build(config: Mapping[str, Any], seed: int) -> DistributionalPPO:
    """A model behind VecNormalize; what else the config has is left to whoever calls."""
    settings = {name: config[name] for name in ("n_steps", "optimizer_class") if name in config}
    return make_model(make_envs(n_envs=2, normalize=True, seed=seed), seed=seed, **settings)


def as_ray_gives(config: Mapping[str, Any], trial: str) -> dict[str, Any]:
    """The config with what Ray says of the trial in it."""
    return {**config, "__trial_info__": SimpleNamespace(trial_id=trial, trial_name=trial)}


@contextmanager
def results_in(folder: Path) -> Iterator[None]:
    """Let trainables that no Tuner starts leave their folders here, and not in the user's home."""
    with mock.patch("ray.tune.trainable.trainable.DEFAULT_STORAGE_PATH", str(folder)):
        yield
