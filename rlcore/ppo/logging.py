"""Log every measure of an update; docs/tensorboard.md explains the keys."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from statistics import fmean, median

import numpy as np
import torch
from stable_baselines3.common.utils import explained_variance

from rlcore.optim.upgd_step import noise_to_signal
from rlcore.ppo.construction import ConfiguredPPO
from rlcore.ppo.losses import MinibatchLosses
from rlcore.ppo.policy import TwinCriticBuffer

Measures = Iterator[tuple[str, float]]

KEYS = {"policy": "policy_gradient_loss", "value": "value_loss", "entropy": "entropy_loss", "total": "loss"}
"""The keys of losses that have other names than their fields."""


class UpdateLog:
    """Collects the losses of every minibatch of one update, and the factors that scaled its gradients."""

    def __init__(self) -> None:
        self._losses: list[MinibatchLosses] = []
        self.factors: list[float] = []
        self._epoch_start = 0

    def begin_epoch(self) -> None:
        """Begin another pass over the rollout."""
        self._epoch_start = len(self._losses)

    def add_losses(self, losses: MinibatchLosses) -> None:
        """Add the losses of a minibatch, with or without a step after it."""
        self._losses.append(losses._replace(total=losses.total.detach()))

    def add_scaling_factor(self, factor: float) -> None:
        """Add the factor by which the gradients of a step were scaled."""
        self.factors.append(factor)

    def mean(self, loss: str, start: int = 0) -> float:
        """Return the mean of a field of MinibatchLosses over the minibatches from ``start`` on."""
        return float(torch.stack([getattr(each, loss) for each in self._losses[start:]]).mean())

    def kl_of_last_epoch(self) -> float:
        """Mean divergence over the minibatches since ``begin_epoch``, each measured before its own step."""
        return self.mean("approx_kl", self._epoch_start)


def explained_variance_of(buffer: TwinCriticBuffer) -> float:
    """Share of the returns' variance that the values that acted explain, at most 1; NaN where all returns are equal."""
    return float(explained_variance(buffer.values.flatten(), buffer.returns.flatten()))


def record(model: ConfiguredPPO, log: UpdateLog, explained: float) -> None:
    """Record every measure of an update.

    :param explained: the rollout's explained variance
    """
    model.logger.record("train/explained_variance", explained)
    losses = ((f"train/{KEYS.get(name, name)}", log.mean(name)) for name in MinibatchLosses._fields)
    measures = losses, _of_settings(model, log), _of_values(model), _of_lstm(model), _of_steps(model, log)
    for key, value in chain(*measures):
        model.logger.record(key, value)
    model.logger.record("train/n_updates", model._n_updates, exclude="tensorboard")


def _of_settings(model: ConfiguredPPO, log: UpdateLog) -> Measures:
    remaining = model._current_progress_remaining
    yield "train/ent_coef", model.entropy_schedule.coefficient(remaining)
    yield "train/clip_range", model.clip_range(remaining)
    if model.clip_range_vf is not None:
        yield "train/clip_range_vf", model.clip_range_vf(remaining)
    if hasattr(model.policy, "log_std"):
        yield "train/std", model.policy.log_std.exp().mean().item()
    if model.kl_penalty_target is not None:
        yield "train/kl_penalty_coef", model.kl_penalty.coefficient
        yield "train/kl_penalty", model.kl_penalty.coefficient * log.mean("approx_kl")
        yield "train/kl_last_epoch", log.kl_of_last_epoch()


def _of_values(model: ConfiguredPPO) -> Measures:
    buffer = model.rollout_buffer
    yield "train/value_variance", float(np.var(buffer.values, dtype=np.float64))
    if model.n_critics == 2:
        yield "twin_critics/divergence", float(np.abs(np.diff(buffer.critic_values, axis=-1)).mean(dtype=np.float64))
    if model.return_scale is not None:
        yield from zip(("train/return_mean", "train/return_std"), model.value_scale.statistics, strict=True)


def _of_lstm(model: ConfiguredPPO) -> Measures:
    hidden = {"actor": model._last_lstm_states.pi[0]}
    if model.policy.lstm_critic is not None:
        hidden["critic"] = model._last_lstm_states.vf[0]
    for name, layers in hidden.items():
        for index, layer in enumerate(layers):
            key = f"lstm/{name}_hidden_layer{index}"
            yield f"{key}_norm", float(torch.linalg.vector_norm(layer))
            yield f"{key}_mean", float(layer.mean())
            yield f"{key}_std", float(layer.std(correction=0))


def _of_steps(model: ConfiguredPPO, log: UpdateLog) -> Measures:
    ratio, scaler = noise_to_signal(model.policy.optimizer), model.variance_gradient_scaler
    if ratio is not None:
        yield "optim/noise_to_signal", ratio
    if scaler is not None:
        for key, of in (("", fmean), ("_min", min), ("_median", median), ("_max", max)) if log.factors else ():
            yield f"vgs/scaling_factor{key}", of(log.factors)
        yield "vgs/step_count", scaler.step_count
        yield "vgs/normalized_variance", scaler.get_normalized_variance()
        yield "vgs/warmup_complete", float(not scaler.is_warming_up)
