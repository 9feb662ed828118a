"""What a population refuses before it trains: settings, folders that are not its own, intervals that are too short."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlcore import CheckpointError, DistributionalPPO, SettingError, UnknownSettingError
from rlcore.pbt import HyperparamConfig, PBTConfig
from rlcore.pbt.population import Population
from tests.support.population_run import CONFIG, build
from tests.support.training import make_envs, make_model


def plain(folder: Path, config: PBTConfig, **settings: Any) -> Population:
    """A population whose models have these settings, in an environment of their own."""
    return Population(lambda _, seed: make_model(make_envs(), seed=seed, **settings), config, folder=folder)


@pytest.mark.parametrize(
    ("name", "values", "error", "message"),
    [
        ("n_critics", [1, 2], SettingError, "it shapes the network"),
        ("lerning_rate", [0.1, 0.2], UnknownSettingError, "did you mean 'learning_rate'"),
        ("gamma", [0.9, 1.1], SettingError, r"gamma=1\.1"),
        ("gamma", [0.9, 1.1, 0.8], SettingError, r"gamma=1\.1"),
    ],
)
def test_a_hyperparameter_that_could_not_be_explored_is_refused_before_anything_is_trained(
    name: str, values: list[Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    config = PBTConfig(population_size=2, hyperparams=[HyperparamConfig(name=name, values=values)], seed=0)
    with pytest.raises(error, match=message):
        plain(tmp_path / "new", config)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"population_size": 4}, "population_size=4, and the population in .* was begun with 3"),
        ({"truncation_ratio": 0.5}, r"truncation_ratio=0\.5, and"),
        ({"seed": 5}, r"seed=6, and the population in .* was begun with 5"),
    ],
)
def test_another_configuration_than_the_folder_was_begun_with(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    if "seed" in changes:
        Population(lambda _, seed: make_model(seed=seed), PBTConfig(**CONFIG), folder=tmp_path, seed=5).train(0)
        changes = {}
    else:
        build(tmp_path).train(0)
    with pytest.raises(SettingError, match=message):
        build(tmp_path, **changes)


def test_a_folder_keeps_the_seed_it_was_begun_with(tmp_path: Path) -> None:
    first = plain(tmp_path, PBTConfig(population_size=2))
    first.train(0)
    assert plain(tmp_path, PBTConfig(population_size=2)).seed == first.seed


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("population.json", "is damaged"),
        ("members/member_1_step_1.zip", r"member_1_step_1\.zip: "),
        (None, r"members: holds models .* population\.json is missing"),
    ],
)
def test_what_is_damaged_is_named_and_kept(file: str | None, words: str, tmp_path: Path) -> None:
    build(tmp_path).train(1)
    if file is None:
        (tmp_path / "population.json").unlink()
    else:
        (tmp_path / file).write_bytes((tmp_path / file).read_bytes()[:-100])
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    with pytest.raises(CheckpointError, match=words):
        build(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == kept


@pytest.mark.parametrize(
    ("changes", "envs", "error", "message"),
    [
        ({"gamma": 0.5}, {}, SettingError, r"gamma=0\.5 is asked for, and what is to go on was trained with 0\.99"),
        ({"n_steps": 16}, {}, SettingError, "n_steps=16 is asked for"),
        ({}, {"n_envs": 4}, SettingError, "n_envs=4 is asked for, and what is to go on was trained with 2"),
        ({}, {"env_id": "Pendulum-v1"}, CheckpointError, "Observation spaces do not match"),
    ],
)
def test_other_settings_do_not_go_on_unsaid(
    changes: dict[str, Any], envs: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    build(tmp_path).train(1)

    def other(hyperparams: Mapping[str, Any], seed: int) -> DistributionalPPO:
        made = make_envs(**{"n_envs": 2, "normalize": True, "seed": seed, **envs})
        settings = {"learning_rate": hyperparams["learning_rate"], "n_steps": 32, "batch_size": 32, **changes}
        return make_model(made, seed=seed, optimizer_kwargs={"sigma": hyperparams["sigma"]}, **settings)

    with pytest.raises(error, match=message):
        Population(other, PBTConfig(**CONFIG), folder=tmp_path, seed=6)
    assert build(tmp_path).train(2).best.step == 2


def test_two_processes_do_not_train_in_one_folder(tmp_path: Path) -> None:
    first, second = build(tmp_path), build(tmp_path)

    def intrude(_: object) -> None:
        with pytest.raises(CheckpointError, match="another process is training in it"):
            second.train(1)

    first.train(1, intrude)
    with pytest.raises(CheckpointError, match="was changed since this population was made"):
        second.train(1)
    assert build(tmp_path).train(2).best.step == 2


class TestInterval:
    def test_a_population_asks_unless_its_scaler_is_off(self, tmp_path: Path) -> None:
        config = PBTConfig(population_size=2, perturbation_interval=2)
        with pytest.raises(SettingError, match=r"2 updates of 4 .* vgs_warmup_steps=8"):
            plain(tmp_path, config, vgs_warmup_steps=8)
        plain(tmp_path, config, vgs_warmup_steps=7)
        plain(tmp_path, config, variance_gradient_scaling=False)

    @pytest.mark.parametrize("seed", range(3))
    def test_the_fewest_epochs_that_may_be_explored_count_whatever_a_member_starts_with(
        self, seed: int, tmp_path: Path
    ) -> None:
        ranges = [HyperparamConfig("n_epochs", min_value=1, max_value=4)]
        config = PBTConfig(population_size=2, perturbation_interval=2, hyperparams=ranges, seed=seed)
        with pytest.raises(SettingError, match=r"2 updates of 2 .*vgs_warmup_steps=4"):
            plain(tmp_path, config, vgs_warmup_steps=4)
