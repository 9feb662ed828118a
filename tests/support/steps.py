"""Short ways to make a model take some optimizer steps, and to look at what they left."""

from __future__ import annotations

import gc
import math
from typing import Any

import torch
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from rlcore import DistributionalPPO, VarianceGradientScaler
from tests.support.training import laid_over, make_envs, make_model, tensors_in

UNCLIPPED = 1e9
"""A largest norm of the gradient that none reaches."""
TINY: dict[str, Any] = {"n_steps": 8, "batch_size": 24, "n_epochs": 1, "max_grad_norm": UNCLIPPED}
"""One optimizer step an update."""


def scaler_of(model: DistributionalPPO) -> VarianceGradientScaler:
    """The model's scaler, which must be there."""
    assert model.variance_gradient_scaler is not None
    return model.variance_gradient_scaler


def train(model: DistributionalPPO, updates: int) -> None:
    """Go on for some updates; the logger keeps what the last one said."""
    model.learn(updates * model.n_steps * model.n_envs, log_interval=10**9, reset_num_timesteps=False)


def logged(model: DistributionalPPO, key: str) -> float:
    """What the last update told the logger."""
    return float(model.logger.name_to_value[key])


def weights_of(model: DistributionalPPO) -> dict[str, Tensor]:
    """Copies of the policy's parameters, by name."""
    return {name: parameter.detach().clone() for name, parameter in model.policy.named_parameters()}


def unmoved(model: DistributionalPPO, before: dict[str, Tensor]) -> list[str]:
    """The parameters of which not one element has changed."""
    return [name for name, after in weights_of(model).items() if torch.equal(after, before[name])]


def fill(model: DistributionalPPO, value: float) -> None:
    """Make every parameter's every element the same."""
    with torch.no_grad():
        for parameter in model.policy.parameters():
            parameter.fill_(value)


def memory_of(model: DistributionalPPO) -> tuple[int, int, int]:
    """Tensors in what the model has learnt, their bytes, and the tensors alive in this process."""
    state = tensors_in(model.get_parameters())
    size = sum(tensor.numel() * tensor.element_size() for tensor in state)
    count = len(state)
    del state
    gc.collect()
    return count, size, sum(issubclass(type(each), Tensor) for each in gc.get_objects())


def all_finite(state: Any) -> bool:
    """Whether a nested state holds neither NaN nor infinity."""
    if isinstance(state, Tensor):
        return bool(torch.isfinite(state).all())
    if isinstance(state, float):
        return math.isfinite(state)
    items = state.values() if isinstance(state, dict) else state if isinstance(state, list | tuple) else ()
    return all(all_finite(item) for item in items)


def tiny(seed: int = 0, **settings: Any) -> DistributionalPPO:
    """A model that makes one optimizer step an update."""
    return make_model(make_envs(seed=seed), seed=seed, **{**TINY, **settings})


def after(steps: int, env: VecEnv | None = None, seed: int = 0, **settings: Any) -> DistributionalPPO:
    """A model whose optimizer and scaler have made that many steps, an even number, two an update."""
    envs = make_envs(seed=seed) if env is None else env
    model = make_model(envs, seed=seed, **laid_over({**TINY, "n_epochs": 2, "vgs_warmup_steps": 2}, settings))
    train(model, steps // 2)
    return model
