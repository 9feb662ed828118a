"""Settings of what is switched off are refused where somebody asks for them, and nowhere else."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from rlcore import DistributionalPPO, ResumeWarning, SettingError, load_policy
from rlcore.ppo.live import set_hyperparameters
from tests.support.training import make_envs, make_model


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    """The file of a model with settings of its own for what can be switched off."""
    model = make_model(vgs_beta=0.5, return_scale_decay=0.5, kl_penalty_target=0.01, kl_penalty_coef=0.5)
    model.learn(48)
    model.save(tmp_path / "tuned.zip")
    return tmp_path / "tuned.zip"


def switched_off(file: Path) -> DistributionalPPO:
    off: dict[str, Any] = {"variance_gradient_scaling": False, "kl_penalty_target": None}
    with pytest.warns(ResumeWarning, match="gradient statistics are dropped"):
        return DistributionalPPO.load(file, env=make_envs(), device="cpu", **off)


def test_what_a_file_brings_may_be_idle(tuned: Path, tmp_path: Path) -> None:
    model = switched_off(tuned)
    model.save(tmp_path / "off.zip")
    again = DistributionalPPO.load(tmp_path / "off.zip", device="cpu")
    copy = pickle.loads(pickle.dumps(again))  # noqa: S301
    for each in (model, again, copy):
        assert (each.vgs_beta, each.return_scale_decay, each.kl_penalty_coef) == (0.5, 0.5, 0.5)
    assert load_policy(tmp_path / "off.zip").device.type == "cpu"


def test_what_is_asked_for_at_a_load_may_not(tuned: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"vgs_alpha=0\.5 would do nothing, as variance_gradient_scaling=False"):
        DistributionalPPO.load(tuned, device="cpu", variance_gradient_scaling=False, vgs_alpha=0.5)
    switched_off(tuned).save(tmp_path / "off.zip")
    with pytest.raises(SettingError, match=r"vgs_alpha=0\.5 would do nothing, as variance_gradient_scaling=False"):
        DistributionalPPO.load(tmp_path / "off.zip", device="cpu", vgs_alpha=0.5)


def test_a_population_may_switch_a_penalty_off_and_go_on_exploring_it(tuned: Path) -> None:
    model = DistributionalPPO.load(tuned, device="cpu")
    set_hyperparameters(model, {"kl_penalty_target": None, "kl_penalty_coef": 0.25})
    assert (model.kl_penalty.coefficient, model.kl_penalty_coef) == (0.0, 0.25)
    set_hyperparameters(model, {"kl_penalty_target": 0.01})
    assert model.kl_penalty.coefficient == 0.25


def test_setting_an_attribute_of_what_is_switched_off_is_refused() -> None:
    model = make_model()
    with pytest.raises(SettingError, match=r"kl_penalty_coef=0\.5 would do nothing, as kl_penalty_target=None"):
        model.kl_penalty_coef = 0.5
    model.kl_penalty_target = 0.01
    model.kl_penalty_coef = 0.5
    assert model.kl_penalty.coefficient == 0.5
