"""What an update says to the logger, under Stable-Baselines3's keys where it has them."""

from __future__ import annotations

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

    def add_losses(self, losses: MinibatchLosses) -> None:
        """Note the losses of a minibatch, whether or not a step follows."""
        for name, value in losses._asdict().items():
            self._measured[KEYS[name]].append(value.detach())

    def add_scaling_factor(self, factor: float) -> None:
        """Note the factor by which the gradients of a step were scaled."""
        self._factors.append(factor)

    def record(self, logger: Logger, scaler: VarianceGradientScaler | None) -> None:
        """Record the means over the update, and where the scaler stands after it."""
        for key, values in self._measured.items():
            logger.record(key, float(torch.stack(values).mean()))
        if scaler is None:
            return
        if self._factors:
            logger.record("vgs/scaling_factor", sum(self._factors) / len(self._factors))
        logger.record("vgs/step_count", scaler.step_count)
        logger.record("vgs/normalized_variance", scaler.get_normalized_variance())
