"""A return distribution given by its quantiles (Dabney et al. 2018, "Distributional Reinforcement Learning with
Quantile Regression")."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def quantile_midpoints(
    n_quantiles: int, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> Tensor:
    """The levels tau_hat_i = (2i + 1) / 2N that minimise the 1-Wasserstein distance (Dabney et al. 2018, Lemma 2).

    :param n_quantiles: N, at least 1
    :return: shape (n_quantiles,), in (0, 1), rising
    """
    return (torch.arange(n_quantiles, device=device, dtype=dtype) + 0.5) / n_quantiles


def quantile_huber_loss(quantiles: Tensor, targets: Tensor, kappa: float = 1.0) -> Tensor:
    """Quantile Huber loss of a predicted distribution against one sampled return (Dabney et al. 2018, eq. 10).

    rho_tau(u) = |tau - 1{u < 0}| * L_kappa(u) / kappa with u = target - quantile; kappa = 0 is the plain quantile loss.
    The mean over the quantiles is taken, so that the size of the loss does not depend on their number.

    Deviation: the paper regresses on all quantiles of the distributional Bellman target. Here the target is one sampled
    lambda-return, so the spread of the predicted distribution is that of lambda-returns.

    :param quantiles: shape (..., n_quantiles)
    :param targets: shape (...), the returns
    :param kappa: where the quadratic part ends, in units of the return, >= 0
    :return: shape (...), not negative
    """
    levels = quantile_midpoints(quantiles.shape[-1], device=quantiles.device, dtype=quantiles.dtype)
    errors = targets.unsqueeze(-1) - quantiles
    weights = (levels - (errors.detach() < 0).to(quantiles.dtype)).abs()
    if kappa == 0.0:
        return (weights * errors.abs()).mean(dim=-1)
    huber = functional.huber_loss(errors, torch.zeros_like(errors), reduction="none", delta=kappa)
    return (weights * huber / kappa).mean(dim=-1)


def clip_distribution_mean(quantiles: Tensor, old_means: Tensor, clip_range: float) -> Tensor:
    """Shift each distribution so that its mean lies within ``clip_range`` of the mean it had in the rollout.

    The whole distribution moves by the difference, so its shape stays and clipping acts on the mean alone.

    :param quantiles: shape (..., n_quantiles)
    :param old_means: shape (...), each critic's own mean value in the rollout
    :param clip_range: largest change of the mean, in units of the return, > 0
    :return: shape (..., n_quantiles)
    """
    means = quantiles.mean(dim=-1)
    clipped = old_means + (means - old_means).clamp(-clip_range, clip_range)
    return quantiles + (clipped - means).unsqueeze(-1)
