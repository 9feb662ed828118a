"""Settings of the value distribution and the return scale that need or exclude each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlcore import DistributionalPPO, SettingError
from rlcore.ppo.arguments import resolve_settings
from tests.support.training import make_model

ATOMS: dict[str, Any] = {"value_distribution": "categorical", "v_min": -1.0, "v_max": 1.0}

CONTRADICTIONS: dict[str, tuple[dict[str, Any], str, str]] = {
    "no smallest return": ({"value_distribution": "categorical", "v_max": 1.0}, "v_min", "needs v_min and v_max"),
    "no largest return": ({"value_distribution": "categorical", "v_min": 1.0}, "v_max", "needs v_min and v_max"),
    "a range upside down": ({**ATOMS, "v_min": 2.0}, "v_min", r"v_min=2.0 and v_max=1.0"),
    "an empty range": ({**ATOMS, "v_min": 1.0}, "v_min", r"v_min=1.0 and v_max=1.0"),
    "one atom": ({**ATOMS, "num_atoms": 1}, "num_atoms", "num_atoms=1"),
    "an endless range": ({**ATOMS, "v_max": float("inf")}, "v_max", "v_max=inf"),
    "a range for quantiles": ({"v_min": 0.0}, "v_min", "v_min=0.0 and value_distribution='quantile'"),
    "another range for quantiles": ({"v_max": 0.0}, "v_max", "v_max=0.0 and value_distribution='quantile'"),
    "atoms for quantiles": ({"num_atoms": 51}, "num_atoms", "num_atoms=51 and value_distribution='quantile'"),
    "quantiles for atoms": ({**ATOMS, "n_quantiles": 8}, "n_quantiles", "n_quantiles=8 .*'categorical' contradict"),
    "a kappa for atoms": ({**ATOMS, "huber_kappa": 0.5}, "huber_kappa", "huber_kappa=0.5 .*'categorical' contradict"),
    "a scale for atoms": (
        {**ATOMS, "return_scale": "zero_lag"},
        "return_scale",
        "return_scale='zero_lag' and value_distribution='categorical' contradict",
    ),
    "a lagging scale for atoms": ({**ATOMS, "return_scale": "snapshot"}, "return_scale", "'snapshot' and"),
    "an unknown rule": ({"return_scale": "popart"}, "return_scale", "return_scale='popart'"),
    "an unknown distribution": ({"value_distribution": "normal"}, "value_distribution", "='normal'"),
    "averages that never move": ({"return_scale_decay": 1.0}, "return_scale_decay", "=1.0"),
    "no floor": ({"return_scale_min_std": 0.0}, "return_scale_min_std", "=0.0"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_settings_that_do_not_go_together_raise_and_are_both_named(case: str) -> None:
    given, setting, words = CONTRADICTIONS[case]
    with pytest.raises(SettingError, match=words) as caught:
        DistributionalPPO("MlpLstmPolicy", "CartPole-v1", **given)
    assert caught.value.setting == setting
    assert "\n" not in str(caught.value)


def test_returns_are_scaled_without_lag_unless_told_otherwise() -> None:
    settings = resolve_settings({})
    assert (settings.value_distribution, settings.return_scale, settings.num_atoms) == ("quantile", "zero_lag", None)
    assert resolve_settings({"return_scale": None}).return_scale is None


@pytest.mark.parametrize("given", [{}, {"return_scale": None}, {"num_atoms": 51}])
def test_who_asks_for_atoms_alone_gets_raw_units(given: dict[str, Any]) -> None:
    settings = resolve_settings({**ATOMS, **given})
    assert (settings.num_atoms, settings.return_scale) == (51, None)


def test_atoms_are_resolved_wherever_the_optimizer_is_set() -> None:
    settings = resolve_settings({**ATOMS, "policy_kwargs": {"optimizer_class": "adam"}})
    assert (settings.num_atoms, settings.return_scale, settings.optimizer_class) == (51, None, "adam")


def test_settings_resolved_once_resolve_to_themselves_when_a_file_is_loaded(tmp_path: Path) -> None:
    model = make_model(**ATOMS, n_quantiles=32)
    model.save(tmp_path / "model.zip")
    loaded = DistributionalPPO.load(tmp_path / "model.zip", device="cpu")
    assert (loaded.num_atoms, loaded.v_min, loaded.v_max, loaded.return_scale) == (51, -1.0, 1.0, None)
