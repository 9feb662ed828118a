"""A return distribution given by probabilities on fixed, evenly spaced atoms (Bellemare et al. 2017, "A Distributional
Perspective on Reinforcement Learning", arXiv:1707.06887)."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional


def categorical_support(
    v_min: float,
    v_max: float,
    num_atoms: int,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The atoms z_i = v_min + i * (v_max - v_min) / (num_atoms - 1).

    :param num_atoms: at least 2
    :return: shape (num_atoms,), rising
    """
    return torch.linspace(v_min, v_max, num_atoms, device=device, dtype=dtype)


def project(probabilities: Tensor, locations: Tensor, support: Tensor) -> Tensor:
    """Move mass from any locations onto the atoms: each part goes to its two neighbours, by nearness (2017, eq. 7).

    Mass is conserved everywhere, the mean wherever the locations lie within the support; what lies outside goes to the
    outermost atom. A location on an atom gives that atom everything.

    :param probabilities: shape (..., m)
    :param locations: shape (..., m), in units of the return
    :param support: shape (n,), n >= 2, evenly spaced and rising
    :return: shape (..., n)
    """
    return _project_positions(probabilities, (locations - support[0]) / _spacing(support), support.shape[0])


def project_returns(returns: Tensor, support: Tensor) -> Tensor:
    """Each return as a distribution on the atoms.

    :param returns: shape (...), in units of the return
    :param support: shape (n,)
    :return: shape (..., n)
    """
    locations = returns.unsqueeze(-1)
    return project(torch.ones_like(locations), locations, support)


def clip_categorical_mean(probabilities: Tensor, old_means: Tensor, clip_range: float, support: Tensor) -> Tensor:
    """Shift each distribution so that its mean lies within ``clip_range`` of the mean it had in the rollout.

    All atoms move by the difference and are projected back, so the shape stays as far as the support reaches. Where
    mass would leave the support it stays on the outermost atom, and the mean moves by less than it should.

    :param probabilities: shape (..., n), each summing to 1
    :param old_means: shape (...), each critic's own mean value in the rollout
    :param clip_range: largest change of the mean, in units of the return, > 0
    :param support: shape (n,)
    :return: shape (..., n)
    :raises ValueError: if the shapes do not fit
    """
    if probabilities.shape != (*old_means.shape, *support.shape):
        raise ValueError(
            f"probabilities of shape {tuple(probabilities.shape)}, old_means {tuple(old_means.shape)}, "
            f"support {tuple(support.shape)}"
        )
    means = categorical_mean(probabilities, support)
    shift = old_means + (means - old_means).clamp(-clip_range, clip_range) - means
    atoms = torch.arange(support.shape[0], device=support.device)
    return _project_positions(probabilities, atoms + (shift / _spacing(support)).unsqueeze(-1), support.shape[0])


def categorical_mean(probabilities: Tensor, support: Tensor) -> Tensor:
    """
    :param probabilities: shape (..., n)
    :param support: shape (n,)
    :return: shape (...), in units of the return
    """
    return (probabilities * support).sum(dim=-1)


def categorical_cross_entropy(logits: Tensor, returns: Tensor, support: Tensor) -> Tensor:
    """-sum_i m_i log p_i, where m is the projected return (Bellemare et al. 2017, algorithm 1).

    :param logits: shape (..., n)
    :param returns: shape (...)
    :param support: shape (n,)
    :return: shape (...), not negative
    """
    return _cross_entropy(functional.log_softmax(logits, dim=-1), returns, support)


def clipped_cross_entropy(
    logits: Tensor, returns: Tensor, old_means: Tensor, clip_range: float, support: Tensor
) -> Tensor:
    """The cross-entropy of the distribution whose mean is clipped; next to no probability counts as a little.

    The floor is the square root of the smallest number of the dtype, so that its reciprocal stays finite.

    :param logits: shape (..., n)
    :param returns: shape (...)
    :param old_means: shape (...)
    :param clip_range: see :func:`clip_categorical_mean`
    :param support: shape (n,)
    :return: shape (...), finite
    """
    floor = math.sqrt(torch.finfo(logits.dtype).tiny)
    probabilities = clip_categorical_mean(functional.softmax(logits, dim=-1), old_means, clip_range, support)
    return _cross_entropy(probabilities.clamp(min=floor).log(), returns, support)


def _cross_entropy(log_probabilities: Tensor, returns: Tensor, support: Tensor) -> Tensor:
    if log_probabilities.shape != (*returns.shape, *support.shape):
        raise ValueError(
            f"logits of shape {tuple(log_probabilities.shape)}, returns {tuple(returns.shape)}, "
            f"support {tuple(support.shape)}"
        )
    return -(project_returns(returns, support) * log_probabilities).sum(dim=-1)


def _project_positions(probabilities: Tensor, positions: Tensor, num_atoms: int) -> Tensor:
    """``project`` with locations counted in atoms, 0 being the first."""
    atoms = torch.arange(num_atoms, device=positions.device)
    distances = (positions.clamp(0, num_atoms - 1).unsqueeze(-1) - atoms).abs()
    return (probabilities.unsqueeze(-1) * (1 - distances).clamp(min=0)).sum(dim=-2)


def _spacing(support: Tensor) -> Tensor:
    return (support[-1] - support[0]) / (support.shape[0] - 1)
