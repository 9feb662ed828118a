"""How a critic describes returns, the losses of one minibatch, and the limit on the norm of their gradient."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from sb3_contrib.common.recurrent.type_aliases import RecurrentRolloutBufferSamples
from torch import Tensor, nn
from torch.nn import functional

from rlcore.errors import NonFiniteGradientError
from rlcore.functional import categorical
from rlcore.functional.quantile import clip_distribution_mean, quantile_huber_loss
from rlcore.ppo.adaptive import ReturnScale


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


class Predictions(NamedTuple):
    """The policy's predictions for a minibatch; every field of shape (batch,) but ``value_outputs``."""

    value_outputs: Tensor
    """Shape (batch, n_critics, n_outputs); the value distribution gives their meaning."""
    log_prob: Tensor
    entropy: Tensor | None
    """None where the distribution has no closed form."""


class Targets(NamedTuple):
    """The record of the same minibatch in the rollout; every field of shape (batch,) but ``old_values``."""

    returns: Tensor
    advantages: Tensor
    old_log_prob: Tensor
    old_values: Tensor
    """Shape (batch, n_critics): each critic's own mean."""


class MinibatchLosses(NamedTuple):
    """Scalars (0-dim tensors); only ``total`` carries a gradient."""

    total: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor
    approx_kl: Tensor
    clip_fraction: Tensor


def valid_predictions(predictions: Predictions, valid: Tensor) -> Predictions:
    """Return the predictions without padding: those at the indices ``valid``."""
    return Predictions(*(None if field is None else field[valid] for field in predictions))  # type: ignore[arg-type]


def valid_targets(samples: RecurrentRolloutBufferSamples, valid: Tensor) -> Targets:
    """Return the targets without padding: those at the indices ``valid``."""
    targets = samples.returns, samples.advantages, samples.old_log_prob, samples.old_values
    return Targets(*(target[valid] for target in targets))


def normalize_advantages(advantages: Tensor) -> Tensor:
    """Zero mean, unit standard deviation; a single advantage is left as it is."""
    if advantages.numel() < 2:
        return advantages
    return (advantages - advantages.mean()) / (advantages.std() + 1e-8)


def approximate_kl(log_ratio: Tensor) -> Tensor:
    """The estimator k3 of KL(pi_old || pi): mean(r - 1 - log r), never negative (Schulman 2020, "Approximating KL")."""
    return (log_ratio.exp() - 1.0 - log_ratio).mean()


def clipped_surrogate(advantages: Tensor, log_ratio: Tensor, clip_range: float) -> Tensor:
    """L^CLIP per sample: min(r A, clip(r, 1 - eps, 1 + eps) A) (Schulman et al. 2017, eq. 7).

    :param advantages: shape (batch,)
    :param log_ratio: log pi(a|s) - log pi_old(a|s), shape (batch,)
    :param clip_range: eps, > 0
    :return: shape (batch,); to be maximised
    """
    ratio = log_ratio.exp()
    return torch.min(advantages * ratio, advantages * ratio.clamp(1.0 - clip_range, 1.0 + clip_range))


def minibatch_losses(
    predictions: Predictions,
    targets: Targets,
    values: ValueDistribution,
    *,
    clip_range: float,
    clip_range_vf: float | None,
    ent_coef: float,
    vf_coef: float,
    normalize_advantage: bool,
    kl_penalty_coef: float = 0.0,
) -> MinibatchLosses:
    """The PPO objective of one minibatch (Schulman et al. 2017, eq. 9; the KL penalty is eq. 8), to be minimised."""
    advantages = normalize_advantages(targets.advantages) if normalize_advantage else targets.advantages
    log_ratio = predictions.log_prob - targets.old_log_prob
    policy_loss = -clipped_surrogate(advantages, log_ratio, clip_range).mean()
    value_loss = values.loss(predictions.value_outputs, targets.returns, targets.old_values, clip_range_vf)
    entropy = -predictions.log_prob if predictions.entropy is None else predictions.entropy
    entropy_loss = -entropy.mean()
    total = policy_loss + ent_coef * entropy_loss + vf_coef * value_loss
    kl = approximate_kl(log_ratio)
    if kl_penalty_coef > 0:
        total = total + kl_penalty_coef * kl
    clip_fraction = ((log_ratio.exp() - 1.0).abs() > clip_range).float().mean()
    parts = (policy_loss, value_loss, entropy_loss, kl, clip_fraction)
    return MinibatchLosses(total, *(part.detach() for part in parts))


def clip_norm(parameters: Iterable[tuple[str, nn.Parameter]], max_norm: float, known: float = math.inf) -> None:
    """Do what ``torch.nn.utils.clip_grad_norm_`` does, which would make every gradient NaN because of one.

    :param parameters: with their names
    :param max_norm: largest L2 norm of all gradients together, > 0
    :param known: no less than that norm; where its square is far from infinity, the CPU does not wait for the norm
    :raises NonFiniteGradientError: if the norm is NaN or infinite; no gradient is changed
    """
    named = {name: parameter for name, parameter in parameters if parameter.grad is not None}
    gradients = {name: parameter.grad for name, parameter in named.items() if parameter.grad is not None}
    norm = torch.nn.utils.get_total_norm(gradients.values())
    if not known < 0.5 * torch.finfo(norm.dtype).max ** 0.5 and not norm.isfinite():
        label = next((name for name, each in gradients.items() if not each.isfinite().all()), "the whole network")
        raise NonFiniteGradientError(
            label,
            f"the gradient of {label} has the norm {norm.item()}; look for a loss term that is not finite, in "
            "observations and rewards first. Nothing was changed.",
        )
    torch.nn.utils.clip_grads_with_norm_(named.values(), max_norm, norm)
