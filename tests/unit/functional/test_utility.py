"""The utility's functions: the devices they go to, and the scale at its edges."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from rlcore.functional.utility import UtilityExtremes, bounded, gate, gather, utility_scale


@pytest.mark.parametrize("scale_dtype", [torch.float32, torch.float64])
def test_a_gate_has_the_dtype_of_its_utility_whatever_that_of_the_scale(scale_dtype: torch.dtype) -> None:
    utility = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float16)
    protection = gate(utility, torch.tensor(2.0, dtype=scale_dtype))
    assert protection.dtype == torch.float16
    assert torch.equal(protection, torch.sigmoid(torch.tensor([-0.5, 0.0, 1.0])).half())


def test_a_scale_follows_the_utility_to_its_device_and_scalars_follow_the_first() -> None:
    """On devices that are made up, which refuse to be mixed as real ones do."""
    with FakeTensorMode():
        here, there = (torch.empty((), device=device) for device in ("cuda:0", "cuda:1"))
        assert gate(torch.empty(3, device="cuda:1"), here).device == there.device
        gathered = gather([here, there, torch.empty(())])
    assert gathered.device == here.device
    assert gathered.shape == (3,)


@pytest.mark.parametrize(
    ("maximum", "magnitude", "expected"),
    [(2.0, 5.0, 2.0), (0.0, 5.0, 5.0), (-3.0, 5.0, 5.0), (-0.1, 0.25, 0.25), (0.0, 0.0, 1.0)],
)
def test_the_scale_is_the_largest_utility_or_the_largest_magnitude_or_one(
    maximum: float, magnitude: float, expected: float
) -> None:
    assert utility_scale(UtilityExtremes(torch.tensor(maximum), torch.tensor(magnitude))) == torch.tensor(expected)
    assert utility_scale(UtilityExtremes(maximum, magnitude)) == expected
    assert utility_scale(UtilityExtremes(torch.tensor(maximum), magnitude)) == torch.tensor(expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_values_are_limited_to_a_quarter_of_the_range_of_their_dtype(dtype: torch.dtype) -> None:
    quarter = torch.finfo(dtype).max / 4
    values = torch.tensor([-torch.inf, -quarter, -1.0, 0.99 * quarter, torch.inf], dtype=dtype)
    assert torch.equal(bounded(values), torch.tensor([-quarter, -quarter, -1.0, 0.99 * quarter, quarter], dtype=dtype))
