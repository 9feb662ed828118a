"""What the projection onto fixed atoms conserves, wherever the mass lies."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rlcore.functional.categorical import (
    categorical_mean,
    categorical_support,
    clip_categorical_mean,
    project,
    project_returns,
)
from tests.reference import categorical_reference as reference

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}


class Case(NamedTuple):
    """A distribution somewhere, and a support; ``scale`` is the largest number in it."""

    probabilities: Tensor
    locations: Tensor
    support: Tensor
    scale: float

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self.support.dtype] * max(self.scale, 1.0)


@st.composite
def cases(draw: st.DrawFn, *, inside: bool = False) -> Case:
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    v_min = draw(st.floats(-100, 100))
    width = draw(st.floats(1, 200))
    support = categorical_support(v_min, v_min + width, draw(st.integers(2, 60)), dtype=dtype)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    parts = draw(st.integers(1, 40))
    probabilities = torch.rand(3, parts, generator=generator, dtype=dtype) + 1e-3
    probabilities /= probabilities.sum(dim=-1, keepdim=True)
    spread = torch.rand(3, parts, generator=generator, dtype=dtype)
    low, high = support[0], support[-1]
    locations = low + spread * (high - low) if inside else low - width + spread * 3 * width
    return Case(probabilities, locations.clamp(low, high) if inside else locations, support, float(support.abs().max()))


@given(cases(), st.floats(0, 1e30))
def test_a_value_beyond_the_support_goes_to_its_outermost_atom(case: Case, beyond: float) -> None:
    values = torch.stack([case.support[0] - beyond, case.support[-1] + beyond])
    projected = project_returns(values, case.support)
    edges = torch.eye(len(case.support), dtype=case.support.dtype)[[0, -1]]
    assert torch.allclose(projected, edges, atol=case.tolerance)


@given(cases())
def test_it_is_what_the_definition_gives(case: Case) -> None:
    support = reference.atoms(float(case.support[0]), float(case.support[-1]), len(case.support))
    projected = project(case.probabilities, case.locations, case.support)
    for row, (probabilities, locations) in enumerate(zip(case.probabilities, case.locations, strict=True)):
        expected = reference.project(probabilities.tolist(), locations.tolist(), support)
        assert projected[row].tolist() == pytest.approx(expected, abs=case.tolerance)


@given(cases(), st.floats(0.01, 50), st.integers(0, 2**16))
def test_a_clipped_mean_lies_within_the_range_or_at_the_edge_of_the_support(
    case: Case, clip_range: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    probabilities = project(case.probabilities, case.locations, case.support)
    low, high = case.support[0], case.support[-1]
    old = low + torch.rand(3, generator=generator, dtype=low.dtype) * (high - low)
    clipped = clip_categorical_mean(probabilities, old, clip_range, case.support)
    before, after = (categorical_mean(each, case.support) for each in (probabilities, clipped))
    assert torch.allclose(clipped.sum(dim=-1), probabilities.sum(dim=-1), atol=TOLERANCE[low.dtype])
    assert bool(((after - old).abs() <= (before - old).abs() + case.tolerance).all())
    support = reference.atoms(float(low), float(high), len(case.support))
    for row in range(3):
        expected = reference.clip_mean(probabilities[row].tolist(), float(old[row]), clip_range, support)
        assert clipped[row].tolist() == pytest.approx(expected, abs=4 * case.tolerance)
