"""The losses of one minibatch, without its padding, and the limit on the norm of their gradient."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rlcore.errors import NonFiniteGradientError
from rlcore.functional.clipping import clipped_surrogate
from rlcore.ppo.buffer import Samples
from rlcore.ppo.values import ValueDistribution


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


def valid_predictions(predictions: Predictions, mask: Tensor) -> Predictions:
    """Return the predictions without padding, where ``mask``, of shape (batch,), is False."""
    return Predictions(*(None if field is None else field[mask] for field in predictions))  # type: ignore[arg-type]


def valid_targets(samples: Samples, mask: Tensor) -> Targets:
    """Return the targets without padding, where ``mask``, of shape (batch,), is False."""
    targets = samples.returns, samples.advantages, samples.old_log_prob, samples.old_values
    return Targets(*(target[mask] for target in targets))


def normalize_advantages(advantages: Tensor) -> Tensor:
    """Zero mean, unit standard deviation; a single advantage is left as it is."""
    if advantages.numel() < 2:
        return advantages
    return (advantages - advantages.mean()) / (advantages.std() + 1e-8)


def approximate_kl(log_ratio: Tensor) -> Tensor:
    """The estimator k3 of KL(pi_old || pi): mean(r - 1 - log r), never negative (Schulman 2020, "Approximating KL")."""
    return (log_ratio.exp() - 1.0 - log_ratio).mean()


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


def clip_norm(parameters: Iterable[tuple[str, nn.Parameter]], max_norm: float) -> None:
    """Do what ``torch.nn.utils.clip_grad_norm_`` does, which would make every gradient NaN because of one.

    :param parameters: with their names
    :param max_norm: largest L2 norm of all gradients together, > 0
    :raises NonFiniteGradientError: if the norm is NaN or infinite; no gradient is changed
    """
    named = {name: parameter for name, parameter in parameters if parameter.grad is not None}
    gradients = {name: parameter.grad for name, parameter in named.items() if parameter.grad is not None}
    norm = torch.nn.utils.get_total_norm(gradients.values())
    if not norm.isfinite():
        label = next((name for name, each in gradients.items() if not each.isfinite().all()), "the whole network")
        raise NonFiniteGradientError(
            label,
            f"the gradient of {label} has the norm {norm.item()}; look for a loss term that is not finite, in "
            "observations and rewards first. Nothing was changed.",
        )
    torch.nn.utils.clip_grads_with_norm_(named.values(), max_norm, norm)
