"""Configurations that between them have every part of the training state and every variant of it."""

from __future__ import annotations

import io
from functools import cache
from typing import Any

from stable_baselines3.common.vec_env import VecEnv

from rlcore import DistributionalPPO, PPOSettings
from tests.support.training import laid_over, make_envs, make_model

TINY: dict[str, Any] = {
    "n_steps": 8,
    "batch_size": 8,
    "n_epochs": 1,
    "n_quantiles": 4,
    "vgs_warmup_steps": 1,
    "policy_kwargs": {"lstm_hidden_size": 4, "net_arch": [4]},
}
N_ENVS = 2
ROLLOUT = N_ENVS * 8

ALWAYS_MOVING: dict[str, Any] = {
    "ent_coef": 0.01,
    "ent_coef_final": 0.001,
    "ent_coef_boost": 8.0,
    "ent_coef_plateau_explained_variance": 1.0,
    "kl_penalty_target": 1e-9,
}
"""Entropy and KL penalty such that every update changes their state."""

NORMALIZED = "normalize"
UNUSED = PPOSettings.model_fields["n_quantiles"].default

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "quantiles, zero lag, adaptive noise": {"optimizer_kwargs": {"sigma": 0.01, "adaptive_noise": True}},
    "atoms, Adam, element": {
        "value_distribution": "categorical",
        "num_atoms": 5,
        "v_min": -10.0,
        "v_max": 10.0,
        "n_quantiles": UNUSED,
        "optimizer_class": "adam",
        "vgs_estimator": "element",
    },
    "snapshot, normaliser, spatial": {"return_scale": "snapshot", "vgs_estimator": "spatial", NORMALIZED: True},
    "no scaler, UPGD, single critic": {
        "variance_gradient_scaling": False,
        "optimizer_class": "upgd",
        "n_critics": 1,
    },
    "schedules, normaliser, mean": {**ALWAYS_MOVING, "vgs_estimator": "mean", NORMALIZED: True},
    "raw returns, total, SGD": {
        "return_scale": None,
        "vgs_estimator": "total",
        "optimizer_class": "sgd",
        "optimizer_kwargs": {"momentum": 0.9},
    },
}


def configured_envs(name: str, seed: int = 0) -> VecEnv:
    """Environments as the configuration wants them."""
    return make_envs(n_envs=N_ENVS, normalize=CONFIGURATIONS[name].get(NORMALIZED, False), seed=seed)


def new_model(name: str, seed: int = 0, rollouts: int = 2) -> DistributionalPPO:
    """A model that has had so many rollouts; with 0, not even a reset of its environments."""
    settings = {key: value for key, value in CONFIGURATIONS[name].items() if key != NORMALIZED}
    model = make_model(configured_envs(name, seed), **laid_over(TINY, {**settings, "seed": seed}))
    if rollouts:
        model.learn(rollouts * ROLLOUT)
    return model


@cache
def trained_file(name: str, seed: int, rollouts: int) -> bytes:
    """The file of such a model."""
    file = io.BytesIO()
    new_model(name, seed, rollouts).save(file)
    return file.getvalue()


def trained_model(name: str, seed: int = 0, rollouts: int = 2) -> DistributionalPPO:
    """Such a model, read from a file that is written once."""
    file = io.BytesIO(trained_file(name, seed, rollouts))
    return DistributionalPPO.load(file, env=configured_envs(name, seed + 50), device="cpu")
