"""Identities of the gradient variances, in the oracle and in the scaler, over random histories."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from rlcore.optim.scaler import VarianceGradientScaler
from tests.reference import variance_reference as reference

betas = st.sampled_from([0.0, 0.5, 0.9, 0.99])


@st.composite
def histories(draw: st.DrawFn) -> reference.Array:
    """Random gradients ``[t, n]`` around random means, of random scale."""
    steps, size = draw(st.integers(1, 12)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    center = draw(st.sampled_from([0.0, 1.0, -30.0])) * rng.normal(size=size)
    return (rng.normal(size=(steps, size)) + center) * 10.0 ** draw(st.integers(-3, 3))


def raw_variance(history: reference.Array, beta: float, estimator: Any) -> float:
    """Read the scaler's variance: an eps far above every denominator turns the ratio into variance / eps."""
    eps = 1e30
    parameter = nn.Parameter(torch.zeros(history.shape[1], dtype=torch.float64))
    scaler = VarianceGradientScaler([parameter], beta=beta, estimator=estimator, eps=eps)
    for gradient in history:
        parameter.grad = torch.as_tensor(gradient).clone()
        scaler.update_statistics()
    return scaler.get_normalized_variance() * eps


def close(expected: float, history: reference.Array) -> Any:
    """Equal up to the rounding of sums of squares."""
    return pytest.approx(expected, rel=1e-9, abs=1e-12 * float((history**2).mean()))


@given(histories(), betas)
def test_total_is_mean_plus_spatial_and_element_plus_heterogeneity(history: reference.Array, beta: float) -> None:
    total = reference.total_variance(history, beta)
    mean, spatial = reference.variance_of_mean(history, beta), reference.spatial_variance(history, beta)
    element, heterogeneity = reference.element_variance(history, beta), reference.heterogeneity(history, beta)
    assert mean + spatial == close(total, history)
    assert element + heterogeneity == close(total, history)


@given(histories(), betas)
def test_total_of_the_oracle_is_the_scalers_element_plus_heterogeneity(history: reference.Array, beta: float) -> None:
    element = raw_variance(history, beta, "element")
    assert element + reference.heterogeneity(history, beta) == close(reference.total_variance(history, beta), history)


@given(histories(), betas)
def test_total_of_the_oracle_is_the_scalers_mean_plus_spatial(history: reference.Array, beta: float) -> None:
    mean = raw_variance(history, beta, "mean")
    assert mean + reference.spatial_variance(history, beta) == close(reference.total_variance(history, beta), history)


@given(histories(), betas)
def test_the_variance_of_the_mean_never_exceeds_that_of_the_elements(history: reference.Array, beta: float) -> None:
    mean, element = raw_variance(history, beta, "mean"), raw_variance(history, beta, "element")
    assert 0.0 <= mean <= element + 1e-12 * float((history**2).mean())


@given(histories(), betas)
def test_both_variances_agree_for_a_single_element(history: reference.Array, beta: float) -> None:
    single = history[:, :1]
    assert raw_variance(single, beta, "mean") == close(raw_variance(single, beta, "element"), single)


@given(histories(), betas, st.sampled_from(["mean", "element"]))
def test_variances_ignore_a_constant_gradient_and_square_the_scale(
    history: reference.Array, beta: float, estimator: Any
) -> None:
    shifted = history + 3.0 * np.arange(history.shape[1])
    assert raw_variance(shifted, beta, estimator) == close(raw_variance(history, beta, estimator), shifted)
    expected = 16.0 * raw_variance(history, beta, estimator)
    assert raw_variance(4.0 * history, beta, estimator) == close(expected, 4.0 * history)


@given(histories(), betas, st.sampled_from(["mean", "element"]), st.randoms(use_true_random=False))
def test_variances_ignore_the_order_of_elements(
    history: reference.Array, beta: float, estimator: Any, random: Any
) -> None:
    order = list(range(history.shape[1]))
    random.shuffle(order)
    expected = raw_variance(history, beta, estimator)
    assert raw_variance(history[:, order], beta, estimator) == close(expected, history)


@given(histories(), betas)
def test_the_element_fraction_of_the_second_moment_lies_between_zero_and_one(
    history: reference.Array, beta: float
) -> None:
    parameter = nn.Parameter(torch.zeros(history.shape[1], dtype=torch.float64))
    scaler = VarianceGradientScaler(
        [parameter], beta=beta, estimator="element", normalization="second_moment", eps=1e-300
    )
    for gradient in history:
        parameter.grad = torch.as_tensor(gradient).clone()
        scaler.update_statistics()
    assert 0.0 <= scaler.get_normalized_variance() <= 1.0 + 1e-12
