"""A setting of a population that cannot be used is refused by name, however it was given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcore import HyperparamConfig, PBTConfig, PBTScheduler, SettingError, UnknownSettingError
from tests.support.schedulers import make_config

UNKNOWN: dict[str, tuple[dict[str, Any], str]] = {
    "a typing error": ({"population_sise": 3}, "did you mean 'population_size'?"),
    "one of a hyperparameter": ({"perturbation_factor": 1.5}, "'perturbation_factor' belongs in HyperparamConfig"),
    "one of the population": (
        {"hyperparams": [{"name": "x", "exploit_method": "truncation"}]},
        "'exploit_method' belongs in PBTConfig",
    ),
    "a typing error, nested": ({"hyperparams": [{"name": "x", "minvalue": 1}]}, "did you mean 'min_value'?"),
}
UNUSABLE: dict[str, tuple[dict[str, Any], str]] = {
    "text for a number": ({"population_size": "4"}, "population_size='4' cannot be used"),
    "a fraction of a step": ({"perturbation_interval": 2.5}, "perturbation_interval=2.5 cannot be used"),
    "a range from NaN": (
        {"hyperparams": [{"name": "x", "min_value": float("nan"), "max_value": 1}]},
        "min_value=nan cannot be used: .*input should be a finite number",
    ),
    "no list": ({"hyperparams": {"name": "x"}}, "hyperparams={'name': 'x'} cannot be used"),
    "no hyperparameter": ({"hyperparams": ["x"]}, r"hyperparams=\['x'\] cannot be used"),
    "one without a name": ({"hyperparams": [{"min_value": 1, "max_value": 2}]}, "name=None cannot be used"),
    "one twice": ({"hyperparams": [{"name": "x", "values": [1, 2]}] * 2}, "names x more than once"),
    "one value": ({"hyperparams": [{"name": "x", "values": [1]}]}, "at least two, all different"),
    "equal values": ({"hyperparams": [{"name": "x", "values": [1, 2, 1.0]}]}, "at least two, all different"),
    "another strategy": ({"optimizer_exploit_strategy": "keep"}, "'reset' or 'copy'"),
    "a negative seed": ({"seed": -1}, "seed=-1 cannot be used"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_an_unknown_or_misplaced_setting_names_the_right_one(case: str) -> None:
    given, words = UNKNOWN[case]
    with pytest.raises(UnknownSettingError) as caught:
        PBTConfig(**given)
    assert words in str(caught.value)


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_value_that_cannot_be_used_is_named(case: str) -> None:
    given, words = UNUSABLE[case]
    with pytest.raises(SettingError, match=words.replace("=", "'?\\]?=", 1)):
        PBTConfig(**given)


def test_numbers_of_numpy_are_taken_as_the_python_numbers_they_stand_for() -> None:
    config = HyperparamConfig("x", min_value=np.int64(1), max_value=np.int32(8), perturbation_factor=np.float64(1.5))
    assert config == HyperparamConfig("x", min_value=1, max_value=8, perturbation_factor=1.5)
    assert config.is_integer


def test_the_seed_of_the_configuration_and_the_argument_mean_the_same(tmp_path: Path) -> None:
    schedulers = [
        PBTScheduler(make_config(tmp_path, seed=3)),
        PBTScheduler(make_config(tmp_path), seed=3),
        PBTScheduler(make_config(tmp_path), seed=4),
    ]
    drawn = [[member.hyperparams for member in each.initialize_population()] for each in schedulers]
    assert drawn[0] == drawn[1] != drawn[2]
