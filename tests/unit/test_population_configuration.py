"""What the file of a population says is checked before anything is built: what it explores, and when it exploits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rlcore import SettingError, TrainingConfig, UnknownSettingError, load_config

SIZES = {"n_steps": 16, "batch_size": 24, "n_epochs": 2, "variance_gradient_scaling": True, "vgs_warmup_steps": 0}
"""With three environments 48 samples in minibatches of 24, twice: 4 optimizer steps an update."""


def run(*hyperparams: dict[str, Any], interval: int = 2, total: int = 480, **algorithm: Any) -> dict[str, Any]:
    """A run of 10 updates; a setting of None is left out."""
    given = {name: value for name, value in {**SIZES, **algorithm}.items() if value is not None}
    return {
        "environment": {"id": "CartPole-v1", "n_envs": 3},
        "algorithm": given,
        "pbt": {"population_size": 2, "perturbation_interval": interval, "hyperparams": list(hyperparams)},
        "total_timesteps": total,
    }


def between(name: str, low: float, high: float) -> dict[str, Any]:
    return {"name": name, "min_value": low, "max_value": high}


GAMMA = between("gamma", 0.9, 0.99)

REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a misspelt name": (run(GAMMA, between("lerning_rate", 0.1, 0.2)), "hyperparams", "did you mean 'learning_rate'"),
    "what shapes the network": (
        run(GAMMA, {"name": "n_critics", "values": [1, 2]}),
        "hyperparams",
        "shapes the network",
    ),
    "an impossible end": (run(between("gamma", 0.9, 1.5)), "hyperparams", "gamma=1.5"),
    "an impossible option": (run(GAMMA, between("sigma", -1.0, 1.0)), "hyperparams", "sigma.*-1.0"),
    "few epochs within the warm-up": (
        run(between("n_epochs", 1, 9), n_epochs=None, vgs_warmup_steps=4),
        "perturbation_interval",
        "2 updates of 2 .*vgs_warmup_steps=4",
    ),
    "large minibatches within the warm-up": (
        run({"name": "batch_size", "values": [16, 48, 24]}, batch_size=None, vgs_warmup_steps=4),
        "perturbation_interval",
        "2 updates of 2 ",
    ),
    "a long warm-up": (
        run(GAMMA, between("vgs_warmup_steps", 2, 8), vgs_warmup_steps=None),
        "perturbation_interval",
        "2 updates of 4 ",
    ),
    "a misspelt entry": (run(GAMMA, {"name": "ent_coef", "minvalue": 0.9}), "pbt", "did you mean 'min_value'"),
    "an entry that cannot be": (
        run(GAMMA, between("ent_coef", 0.2, 0.1)),
        "hyperparams",
        "min_value=0.2 and max_value=0.1",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_population_could_not_do_is_refused_where_it_stands(case: str, tmp_path: Path) -> None:
    given, written, words = REFUSED[case]
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(given, sort_keys=False))
    with pytest.raises(SettingError, match=words) as caught:
        load_config(path)
    line = int(str(caught.value).split("line ")[1].split(":")[0])
    assert written in path.read_text().splitlines()[line - 1]
    assert isinstance(caught.value, UnknownSettingError) == ("misspelt" in case)


ACCEPTED = {
    "enough epochs": run(between("n_epochs", 2, 9), n_epochs=None, vgs_warmup_steps=7),
    "no warm-up without a scaler": run(
        between("n_epochs", 1, 9), n_epochs=None, vgs_warmup_steps=None, variance_gradient_scaling=False
    ),
    "a penalty that is on": run(between("kl_penalty_coef", 0.1, 1.0), kl_penalty_target=0.01),
    "a penalty that may be on": run(
        {"name": "kl_penalty_target", "values": [None, 0.01]}, between("kl_penalty_coef", 0.1, 1.0)
    ),
    "ends that only their defaults contradict": run(
        between("kl_penalty_min_coef", 0.5, 0.6), between("kl_penalty_coef", 0.7, 0.8), kl_penalty_target=0.01
    ),
    "a floor that may lie above what it is a floor of": run(
        between("ent_coef", 0.01, 0.1), between("ent_coef_min", 0.0, 0.05), between("sigma", 0.1, 0.2)
    ),
    "one exploit": run(GAMMA, interval=9),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_a_population_can_do_is_accepted(case: str) -> None:
    assert TrainingConfig.from_mapping(ACCEPTED[case]).pbt is not None
