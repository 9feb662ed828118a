"""What can be seen of a model's optimizer steps from outside, and short ways to make some."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from rlcore import DistributionalPPO, VarianceGradientScaler
from tests.support.training import make_envs, make_model

UNCLIPPED = 1e9
"""A largest norm of the gradient that none reaches."""
TINY: dict[str, Any] = {"n_steps": 8, "batch_size": 24, "n_epochs": 1, "max_grad_norm": UNCLIPPED}
"""One optimizer step an update."""


@dataclass(frozen=True)
class Step:
    """One optimizer step.

    :param raw: what backward left behind, by parameter; a parameter without gradient has none
    :param used: what the optimizer was given, by parameter
    :param promised: the factor that the scaler had for this step; 1 without one
    """

    raw: dict[str, Tensor]
    used: dict[str, Tensor]
    promised: float


@contextmanager
def watched(model: DistributionalPPO) -> Iterator[list[Step]]:
    """Watch the optimizer that the model has now; the list grows with every step."""
    steps: list[Step] = []
    raw: dict[str, Tensor] = {}
    named = dict(model.policy.named_parameters())
    names = {parameter: name for name, parameter in named.items()}

    def after_backward(parameter: Tensor) -> None:
        raw[names[parameter]] = gradient_of(parameter)

    def before_step(*_: Any) -> None:
        used = {name: gradient_of(parameter) for name, parameter in named.items() if parameter.grad is not None}
        scaler = model.variance_gradient_scaler
        steps.append(Step(dict(raw), used, 1.0 if scaler is None else scaler.get_scaling_factor()))
        raw.clear()

    hooks = [parameter.register_post_accumulate_grad_hook(after_backward) for parameter in named.values()]
    hooks.append(model.policy.optimizer.register_step_pre_hook(before_step))
    try:
        yield steps
    finally:
        for hook in hooks:
            hook.remove()


def gradient_of(parameter: Tensor) -> Tensor:
    """A copy of the parameter's gradient."""
    assert parameter.grad is not None
    return parameter.grad.detach().clone()


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


def all_finite(state: Any) -> bool:
    """Whether a nested state holds neither NaN nor infinity."""
    if isinstance(state, Tensor):
        return bool(torch.isfinite(state).all())
    if isinstance(state, float):
        return math.isfinite(state)
    items = state.values() if isinstance(state, dict) else state if isinstance(state, list | tuple) else ()
    return all(all_finite(item) for item in items)


def after(steps: int, env: VecEnv | None = None, seed: int = 0, **settings: Any) -> DistributionalPPO:
    """A model whose optimizer and scaler have made that many steps, an even number, two an update."""
    envs = make_envs(seed=seed) if env is None else env
    model = make_model(envs, seed=seed, **{**TINY, "n_epochs": 2, "vgs_warmup_steps": 2, **settings})
    train(model, steps // 2)
    return model
