"""How a critic describes returns: the meaning of its outputs, and their loss against the returns of a rollout."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rlcore.functional import categorical
from rlcore.functional.clipping import clip_distribution_mean
from rlcore.functional.quantile import quantile_huber_loss
from rlcore.ppo.returns import ReturnScale


class ValueDistribution(ABC):
    """A distribution over returns, one for each critic; outputs have the shape (..., n_outputs).

    Returns, values and clip ranges are in units of the return.

    :param n_outputs: how many numbers a critic puts out
    """

    n_outputs: int

    def fixed_support(self) -> Tensor | None:
        """Return the atoms, of shape (n_outputs,), on the default device; None where outputs need none."""
        return None

    @abstractmethod
    def mean(self, outputs: Tensor) -> Tensor:
        """Return the value; shape (...)."""

    @abstractmethod
    def sample_losses(self, outputs: Tensor, returns: Tensor) -> Tensor:
        """
        :param outputs: shape (..., n_outputs)
        :param returns: shape (...)
        :return: shape (...)
        """

    @abstractmethod
    def clipped_losses(self, outputs: Tensor, returns: Tensor, old_values: Tensor, clip_range_vf: float) -> Tensor:
        """Return ``sample_losses`` of outputs shifted until their mean is within ``clip_range_vf`` of ``old_values``.

        :param old_values: shape (...), each critic's own mean in the rollout
        :param clip_range_vf: > 0
        """

    def loss(self, outputs: Tensor, returns: Tensor, old_values: Tensor, clip_range_vf: float | None) -> Tensor:
        """Per sample and critic max(clipped, unclipped), then the mean over samples and critics.

        :param outputs: shape (batch, n_critics, n_outputs)
        :param returns: shape (batch,)
        :param old_values: shape (batch, n_critics), each critic's own mean in the rollout
        :param clip_range_vf: None for no clipping
        :return: 0-dim
        """
        targets = returns.unsqueeze(-1).expand(-1, outputs.shape[1])
        losses = self.sample_losses(outputs, targets)
        if clip_range_vf is not None:
            losses = torch.max(losses, self.clipped_losses(outputs, targets, old_values, clip_range_vf))
        return losses.mean()


class QuantileValues(ValueDistribution):
    """Quantiles of the return, in units of z = (return - mean) / std of the return scale.

    :param n_quantiles: at least 1
    :param huber_kappa: where the quantile Huber loss turns linear, in units of z, >= 0
    """

    def __init__(self, n_quantiles: int, huber_kappa: float = 1.0, scale: ReturnScale | None = None) -> None:
        self.n_outputs = n_quantiles
        self.huber_kappa = huber_kappa
        self.scale = scale or ReturnScale()

    def quantiles(self, outputs: Tensor) -> Tensor:
        """Return the quantiles in units of the return; shape (..., n_outputs)."""
        return self.scale.denormalise(outputs)

    def mean(self, outputs: Tensor) -> Tensor:
        return self.scale.denormalise(outputs.mean(dim=-1))

    def sample_losses(self, outputs: Tensor, returns: Tensor) -> Tensor:
        return quantile_huber_loss(outputs, self.scale.normalise(returns), self.huber_kappa)

    def clipped_losses(self, outputs: Tensor, returns: Tensor, old_values: Tensor, clip_range_vf: float) -> Tensor:
        clip_range = clip_range_vf / self.scale.snapshot.std
        clipped = clip_distribution_mean(outputs, self.scale.normalise(old_values), clip_range)
        return self.sample_losses(clipped, returns)


class CategoricalValues(ValueDistribution):
    """Logits of atoms between ``v_min`` and ``v_max``, always in units of the return.

    There is no return scale: no affine change of logits preserves their meaning on fixed atoms.

    :param num_atoms: at least 2
    :param v_min: the smallest return that can be told apart
    :param v_max: the largest one, > v_min
    """

    def __init__(self, num_atoms: int, v_min: float, v_max: float) -> None:
        self.n_outputs = num_atoms
        self.v_min = v_min
        self.v_max = v_max

    def fixed_support(self) -> Tensor:
        return self._support(torch.empty(0))

    def mean(self, outputs: Tensor) -> Tensor:
        return categorical.categorical_mean(functional.softmax(outputs, dim=-1), self._support(outputs))

    def sample_losses(self, outputs: Tensor, returns: Tensor) -> Tensor:
        return categorical.categorical_cross_entropy(outputs, returns, self._support(outputs))

    def clipped_losses(self, outputs: Tensor, returns: Tensor, old_values: Tensor, clip_range_vf: float) -> Tensor:
        return categorical.clipped_cross_entropy(outputs, returns, old_values, clip_range_vf, self._support(outputs))

    def _support(self, like: Tensor) -> Tensor:
        atoms = self.v_min, self.v_max, self.n_outputs
        return categorical.categorical_support(*atoms, device=like.device, dtype=like.dtype)


def make_values(settings: Any, scale: ReturnScale) -> ValueDistribution:
    """Return the distribution that the setting ``value_distribution`` of a model, or of its like, names."""
    if settings.value_distribution == "categorical":
        return CategoricalValues(settings.num_atoms, settings.v_min, settings.v_max)
    return QuantileValues(settings.n_quantiles, settings.huber_kappa, scale)
