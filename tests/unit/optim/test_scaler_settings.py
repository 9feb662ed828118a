"""The settings and the parameters of a gradient scaler: what is taken, as what, and what is said of the rest."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rlcore.errors import SettingError
from rlcore.optim.gradient_variance import ESTIMATORS
from rlcore.optim.settings import ScalerSettings
from rlcore.optim.scaler import _checked_parameters as checked_parameters


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enabled", False), ("beta", 0.0), ("beta", 0.9999), ("alpha", 0.0), ("alpha", 0.5), ("alpha", 1e9),
        ("eps", 1e-300), ("eps", 1e30), ("warmup_steps", 0), ("warmup_steps", 10**9), ("min_scaling_factor", 0.0),
        ("min_scaling_factor", 1.0), ("max_normalized_variance", 1e-6), ("max_normalized_variance", 1e300),
        *(("estimator", name) for name in ESTIMATORS), ("normalization", "squared_mean"),
        ("normalization", "second_moment"),
    ],
)  # fmt: skip
def test_a_setting_may_lie_anywhere_in_its_range_with_its_ends(name: str, value: Any) -> None:
    assert getattr(ScalerSettings(**{name: value}), name) == value


@pytest.mark.parametrize(
    ("name", "value", "plain"),
    [
        ("beta", np.float32(0.5), 0.5),
        ("alpha", Fraction(1, 4), 0.25),
        ("eps", 1, 1.0),
        ("warmup_steps", np.int64(7), 7),
        ("min_scaling_factor", np.int64(1), 1.0),
        ("max_normalized_variance", 90, 90.0),
    ],
)
def test_a_number_of_another_kind_becomes_a_plain_one(name: str, value: Any, plain: float) -> None:
    kept = getattr(ScalerSettings(**{name: value}), name)
    assert (kept, type(kept)) == (plain, type(plain))


@pytest.mark.parametrize(
    ("name", "range_of_it"),
    [
        ("beta", "a number in \\[0, 1\\)"),
        ("alpha", "a finite number of at least 0"),
        ("eps", "a finite number above 0"),
        ("min_scaling_factor", "a number from 0 to 1"),
        ("max_normalized_variance", "a finite number above 0"),
    ],
)
def test_a_number_outside_its_range_is_refused_with_the_range(name: str, range_of_it: str) -> None:
    with pytest.raises(SettingError, match=f"^{name}=-0.5: .*[.] Give {range_of_it} "):
        ScalerSettings(**{name: -0.5})


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("estimator", "'mean', 'spatial', 'total', 'element'"),
        ("normalization", "'squared_mean', 'second_moment'"),
    ],
)
def test_an_unknown_choice_is_refused_with_those_there_are(name: str, choices: str) -> None:
    with pytest.raises(SettingError, match=f"^{name}='other': .* Give one of {choices} "):
        ScalerSettings(**{name: "other"})


def test_a_removed_estimator_is_refused_with_what_to_use_instead() -> None:
    with pytest.raises(SettingError, match=r"^estimator='sketch': 'sketch' was removed\. Use 'element',") as caught:
        ScalerSettings(estimator="sketch")
    assert caught.value.setting == "estimator"


A, B = (nn.Parameter(torch.zeros(2)) for _ in range(2))


def test_names_are_kept_where_there_are_any() -> None:
    assert checked_parameters([("a", A), ("b", B)]) == (("a", "b"), (A, B))
    names, parameters = checked_parameters(each for each in (A, B))
    assert names == (None, None)
    assert [id(each) for each in parameters] == [id(A), id(B)]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (5, "parameters is a int;"),
        ([], "parameters is empty,"),
        ([A, B, A], "parameters holds a parameter more than once,"),
        ([("a", A), ("b", A)], "parameters holds a parameter more than once,"),
        ([A, torch.zeros(2)], "parameters[1] is a Tensor,"),
        ([A, ("b", 3.0)], "parameters[1] is a float,"),
        ([("a", "b", A)], "parameters[0] is a tuple,"),
        ([nn.Parameter(torch.zeros(2, dtype=torch.complex64))], "parameters[0] is a torch.complex64,"),
        ([nn.Parameter(torch.zeros(2, dtype=torch.int32), requires_grad=False)], "parameters[0] is a torch.int32,"),
    ],
)
def test_unusable_parameters_are_refused_with_the_place_and_what_stands_there(parameters: Any, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        checked_parameters(parameters)
    assert caught.value.setting == "parameters"
    assert str(caught.value).startswith(message)
