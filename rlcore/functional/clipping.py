"""The two clippings of PPO (Schulman et al. 2017): of the probability ratio and of the change in value."""

from __future__ import annotations

import torch
from torch import Tensor


def clipped_surrogate(advantages: Tensor, log_ratio: Tensor, clip_range: float) -> Tensor:
    """L^CLIP per sample: min(r A, clip(r, 1 - eps, 1 + eps) A) (Schulman et al. 2017, eq. 7).

    :param advantages: shape (batch,)
    :param log_ratio: log pi(a|s) - log pi_old(a|s), shape (batch,)
    :param clip_range: eps, > 0
    :return: shape (batch,); to be maximised
    """
    ratio = log_ratio.exp()
    return torch.min(advantages * ratio, advantages * ratio.clamp(1.0 - clip_range, 1.0 + clip_range))


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
