"""What a population refuses before it trains: settings, folders that are not its own, intervals that are too short."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcore import CheckpointError, DistributionalPPO, SettingError, UnknownSettingError
from rlcore.pbt import HyperparamConfig, PBTConfig, PBTScheduler
from rlcore.pbt.population import Population
from tests.support.population_run import CONFIG, build
from tests.support.schedulers import make_config
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
    ("changes", "seed", "message"),
    [
        ({"population_size": 4}, 6, "population_size=4, and the population in .* was begun with 3"),
        ({"truncation_ratio": 0.5}, 6, r"truncation_ratio=0\.5, and"),
        ({}, 5, "seed=5, and the population in .* was begun with 6"),
    ],
)
def test_another_configuration_than_the_folder_was_begun_with(
    changes: dict[str, Any], seed: int, message: str, tmp_path: Path
) -> None:
    build(tmp_path).train(0)
    population = plain(tmp_path, PBTConfig(**CONFIG))  # which takes over the seed, and sets what make_model ignores
    rates = [member.hyperparams["learning_rate"] for member in population.scheduler.population]
    assert (population.seed, [model.learning_rate for model in population.models]) == (6, rates)
    with pytest.raises(SettingError, match=message):
        plain(tmp_path, PBTConfig(**{**CONFIG, **changes}, seed=seed))


def edited(**fields: Any) -> Callable[[Path], object]:
    """Change fields of a file of JSON, which has no digest unless one is given, as in earlier versions."""

    def edit(path: Path) -> None:
        content = json.loads(path.read_text())
        assert content.pop("digest")
        path.write_text(json.dumps({**content, **fields}))

    return edit


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("population.json", lambda path: path.write_bytes(path.read_bytes()[:-100]), "is damaged"),
        ("population.json", lambda path: path.write_text("null"), r"population\.json: is damaged .*does not hold seed"),
        ("population.json", lambda path: path.write_text("[" * 10**5), r"population\.json: is damaged"),
        ("population.json", edited(config=[]), r"population\.json: is damaged .*does not hold seed"),
        ("population.json", edited(digest="0" * 64), r"population\.json: is damaged .*its digest does not fit"),
        (
            "population.json",
            lambda path: path.write_bytes(path.read_bytes().replace(b'"step": 1', b'"step": 2')),
            "digest",
        ),
        ("population.json", edited(scheduler={}), r"population\.json: scheduler cannot be used"),
        ("population.json", edited(lineage_size=10**9), r"lineage\.jsonl: is damaged"),
        ("population.json", lambda path: (path.unlink(), os.mkfifo(path)), "is not a regular file"),
        ("population.json", Path.unlink, r"members: holds models .* population\.json is missing"),
        ("lineage.jsonl", Path.unlink, r"lineage\.jsonl: is damaged"),
        ("members/member_1_step_1.zip", lambda path: os.truncate(path, 1000), r"member_1_step_1\.zip: "),
    ],
)
def test_what_is_damaged_is_named_and_kept(
    file: str, change: Callable[[Path], object], words: str, tmp_path: Path
) -> None:
    build(tmp_path).train(1)
    change(tmp_path / file)
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()}
    with pytest.raises(CheckpointError, match=words):
        build(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()} == kept


def test_a_population_of_an_earlier_version_whose_file_has_no_digest_goes_on(tmp_path: Path) -> None:
    build(tmp_path).train(1)
    edited()(tmp_path / "population.json")
    assert build(tmp_path).train(2).best.step == 2


@pytest.mark.parametrize(
    ("changes", "envs", "error", "message"),
    [
        ({"gamma": 0.5}, {}, SettingError, r"gamma=0\.5 is asked for, and what is to go on was trained with 0\.99"),
        ({"n_steps": 16}, {}, SettingError, "n_steps=16 is asked for"),
        ({}, {"n_envs": 4}, SettingError, "n_envs=4 is asked for, and what is to go on was trained with 2"),
        ({}, {"env_id": "Pendulum-v1"}, CheckpointError, "its observation_space is Box"),
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


NESTED: dict[str, Any] = {"name": "x", "values": [1, 2]}
UNUSABLE: list[tuple[dict[str, Any], str]] = [
    ({"population_sise": 3}, r"did you mean 'population_size'\?"),
    ({"perturbation_factor": 1.5}, "'perturbation_factor' belongs in HyperparamConfig"),
    ({"hyperparams": [{"name": "x", "exploit_method": "truncation"}]}, "'exploit_method' belongs in PBTConfig"),
    ({"hyperparams": [{"name": "x", "minvalue": 1}]}, r"did you mean 'min_value'\?"),
    ({"population_size": "4"}, "'population_size']='4' cannot be used"),
    ({"perturbation_interval": 2.5}, "'perturbation_interval']=2.5 cannot be used"),
    ({"hyperparams": [{"name": "x", "min_value": math.nan, "max_value": 1}]}, "'min_value']=nan .* a finite number"),
    ({"hyperparams": NESTED}, "'hyperparams']={'name': 'x'.* cannot be used"),
    ({"hyperparams": ["x"]}, r"'hyperparams']=['x'] cannot be used"),
    ({"hyperparams": [{"min_value": 1, "max_value": 2}]}, "'name']=None cannot be used"),
    ({"hyperparams": [NESTED] * 2}, "names x more than once"),
    ({"hyperparams": [{"name": "x", "values": [1]}]}, "at least two, all different"),
    ({"hyperparams": [{"name": "x", "values": [1, 2, 1.0]}]}, "at least two, all different"),
    ({"optimizer_exploit_strategy": "keep"}, "'reset' or 'copy'"),
    ({"seed": -1}, "'seed']=-1 cannot be used"),
]


@pytest.mark.parametrize(("given", "words"), UNUSABLE)
def test_a_setting_that_cannot_be_used_is_named(given: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words.replace("[", r"\[").replace("]", r"\]")) as caught:
        PBTConfig(**given)
    assert isinstance(caught.value, UnknownSettingError) == ("mean" in words or "belongs" in words)


def test_numbers_of_numpy_are_taken_as_the_python_numbers_they_stand_for() -> None:
    config = HyperparamConfig("x", min_value=np.int64(1), max_value=np.int32(8), perturbation_factor=np.float64(1.5))
    assert config == HyperparamConfig("x", min_value=1, max_value=8, perturbation_factor=1.5)
    assert config.is_integer


def test_the_seed_of_the_configuration_and_the_argument_mean_the_same(tmp_path: Path) -> None:
    given, as_argument = PBTScheduler(make_config(tmp_path, seed=3)), PBTScheduler(make_config(tmp_path), seed=3)
    other = PBTScheduler(make_config(tmp_path, seed=3), seed=4)
    drawn = [[each.hyperparams for each in one.initialize_population()] for one in (given, as_argument, other)]
    assert drawn[0] == drawn[1] != drawn[2]
