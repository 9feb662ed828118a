"""How a critic describes returns: what its outputs mean, and what they lose against the returns of a rollout."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional

from rlcore.functional import categorical
from rlcore.functional.clipping import clip_distribution_mean
from rlcore.functional.quantile import quantile_huber_loss
from rlcore.ppo.returns import ReturnScale


class ValueDistribution(ABC):
    """A distribution over returns, one for each critic; outputs have the shape (..., n_outputs).

    :param n_outputs: how many numbers a critic puts out
    """

    n_outputs: int

    def fixed_support(self) -> Tensor | None:
        """The returns that the outputs are about, where outputs mean nothing without them; None otherwise."""
        return None

    @classmethod
    @abstractmethod
    def from_settings(cls, settings: Any, scale: ReturnScale) -> Self:
        """Built as the settings say.

        :param settings: what has every setting as an attribute
        :param scale: the scale of the returns, which a distribution in raw units leaves alone
        """

    @abstractmethod
    def mean(self, outputs: Tensor) -> Tensor:
        """The value, in units of the return; shape (...)."""

    @abstractmethod
    def sample_losses(self, outputs: Tensor, returns: Tensor) -> Tensor:
        """
        :param outputs: shape (..., n_outputs)
        :param returns: shape (...), in units of the return
        :return: shape (...)
        """

    @abstractmethod
    def clipped_sample_losses(
        self, outputs: Tensor, returns: Tensor, old_values: Tensor, clip_range_vf: float
    ) -> Tensor:
        """The same, of distributions that are shifted until their mean lies within ``clip_range_vf`` of ``old_values``.

        :param old_values: shape (...), each critic's own mean in the rollout, in units of the return
        :param clip_range_vf: in units of the return, > 0
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
            losses = torch.max(losses, self.clipped_sample_losses(outputs, targets, old_values, clip_range_vf))
        return losses.mean()


class QuantileValues(ValueDistribution):
    """Quantiles of the return, in units of z = (return - mean) / std of the return scale.

    :param n_quantiles: at least 1
    :param huber_kappa: where the quantile Huber loss turns linear, in units of z, >= 0
    """

    def __init__(self, n_quantiles: int, huber_kappa: float = 1.0, scale: ReturnScale | None = None) -> None:
        self.n_outputs = n_quantiles
        self.huber_kappa = huber_kappa
        self.scale = ReturnScale() if scale is None else scale

    @classmethod
    def from_settings(cls, settings: Any, scale: ReturnScale) -> Self:
        return cls(settings.n_quantiles, settings.huber_kappa, scale)

    def quantiles(self, outputs: Tensor) -> Tensor:
        """The quantiles in units of the return; shape (..., n_outputs)."""
        return self.scale.denormalise(outputs)

    def mean(self, outputs: Tensor) -> Tensor:
        return self.scale.denormalise(outputs.mean(dim=-1))

    def sample_losses(self, outputs: Tensor, returns: Tensor) -> Tensor:
        return quantile_huber_loss(outputs, self.scale.normalise(returns), self.huber_kappa)

    def clipped_sample_losses(
        self, outputs: Tensor, returns: Tensor, old_values: Tensor, clip_range_vf: float
    ) -> Tensor:
        clip_range = clip_range_vf / self.scale.snapshot.std
        clipped = clip_distribution_mean(outputs, self.scale.normalise(old_values), clip_range)
        return self.sample_losses(clipped, returns)


class CategoricalValues(ValueDistribution):
    """Logits of atoms between ``v_min`` and ``v_max``, always in units of the return.

    No affine change of logits preserves what they say on fixed atoms, so there is no return scale here.

    :param num_atoms: at least 2
    :param v_min: the smallest return that can be told apart
    :param v_max: the largest one, > v_min
    """

    def __init__(self, num_atoms: int, v_min: float, v_max: float) -> None:
        self.n_outputs = num_atoms
        self.v_min = v_min
        self.v_max = v_max

    @classmethod
    def from_settings(cls, settings: Any, scale: ReturnScale) -> Self:  # noqa: ARG003
        assert settings.num_atoms is not None, "resolve_settings() gives categorical values their atoms and range"
        assert settings.v_min is not None
        assert settings.v_max is not None
        return cls(settings.num_atoms, settings.v_min, settings.v_max)

    def fixed_support(self) -> Tensor:
        device = torch.get_default_device()  # the meta device, where only the shape is asked for
        return categorical.categorical_support(self.v_min, self.v_max, self.n_outputs, device=device)

    def probabilities(self, outputs: Tensor) -> Tensor:
        """The probability of each atom; shape (..., n_outputs)."""
        return functional.softmax(outputs, dim=-1)

    def mean(self, outputs: Tensor) -> Tensor:
        return categorical.categorical_mean(self.probabilities(outputs), self._support(outputs))

    def sample_losses(self, outputs: Tensor, returns: Tensor) -> Tensor:
        return categorical.categorical_cross_entropy(outputs, returns, self._support(outputs))

    def clipped_sample_losses(
        self, outputs: Tensor, returns: Tensor, old_values: Tensor, clip_range_vf: float
    ) -> Tensor:
        return categorical.clipped_cross_entropy(outputs, returns, old_values, clip_range_vf, self._support(outputs))

    def _support(self, outputs: Tensor) -> Tensor:
        return categorical.categorical_support(
            self.v_min, self.v_max, self.n_outputs, device=outputs.device, dtype=outputs.dtype
        )


VALUE_DISTRIBUTIONS: dict[str, type[ValueDistribution]] = {
    "quantile": QuantileValues,
    "categorical": CategoricalValues,
}
"""By the name that the setting ``value_distribution`` has for it."""
