"""What an update says to the logger, under Stable-Baselines3's keys where it has them."""

from __future__ import annotations

import statistics
from collections import defaultdict

import torch
from stable_baselines3.common.logger import Logger

from rlcore.optim.scaler import VarianceGradientScaler
from rlcore.ppo.losses import MinibatchLosses

KEYS = {
    "policy": "train/policy_gradient_loss",
    "value": "train/value_loss",
    "entropy": "train/entropy_loss",
    "approx_kl": "train/approx_kl",
    "clip_fraction": "train/clip_fraction",
    "total": "train/loss",
}


class UpdateLog:
    """Collects the measures of every minibatch of one update and records their means."""

    def __init__(self) -> None:
        self._measured: dict[str, list[torch.Tensor]] = defaultdict(list)
        self._factors: list[float] = []
        self._epoch_start = 0

    def begin_epoch(self) -> None:
        """Note that what follows belongs to another pass over the rollout."""
        self._epoch_start = len(self._measured[KEYS["approx_kl"]])

    def add_losses(self, losses: MinibatchLosses) -> None:
        """Note the losses of a minibatch, whether or not a step follows."""
        for name, value in losses._asdict().items():
            self._measured[KEYS[name]].append(value.detach())

    def add_scaling_factor(self, factor: float) -> None:
        """Note the factor by which the gradients of a step were scaled."""
        self._factors.append(factor)

    def mean(self, loss: str) -> float:
        """Mean over the minibatches of the update.

        :param loss: a field of :class:`rlcore.ppo.losses.MinibatchLosses`
        """
        return float(torch.stack(self._measured[KEYS[loss]]).mean())

    def kl_of_last_epoch(self) -> float:
        """Mean divergence over the minibatches since ``begin_epoch``, each measured before its own step."""
        return float(torch.stack(self._measured[KEYS["approx_kl"]][self._epoch_start :]).mean())

    def record(self, logger: Logger, scaler: VarianceGradientScaler | None) -> None:
        """Record the means over the update, the spread of the scaling, and where the scaler stands after it."""
        for key, values in self._measured.items():
            logger.record(key, float(torch.stack(values).mean()))
        if scaler is None:
            return
        if self._factors:
            logger.record("vgs/scaling_factor", sum(self._factors) / len(self._factors))
            logger.record("vgs/scaling_factor_min", min(self._factors))
            logger.record("vgs/scaling_factor_median", statistics.median(self._factors))
            logger.record("vgs/scaling_factor_max", max(self._factors))
        logger.record("vgs/step_count", scaler.step_count)
        logger.record("vgs/normalized_variance", scaler.get_normalized_variance())
