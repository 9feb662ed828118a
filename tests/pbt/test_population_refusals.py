"""What a population refuses before it trains: settings, folders that are not its own, intervals that are too short."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rlcore import (
    CheckpointError,
    DistributionalPPO,
    SettingError,
    UnknownSettingError,
)
from rlcore.checkpoint import save_container
from rlcore.pbt import HyperparamConfig, PBTConfig
from rlcore.pbt.hyperparams import check_interval, optimizer_steps_per_update
from rlcore.pbt.population import Population
from tests.support.population_run import CONFIG, build
from tests.support.training import make_envs, make_model

SIZES = {"n_steps": 32, "batch_size": 32}
"""Of the population that `build` makes."""


class TestRefusals:
    @pytest.mark.parametrize(
        ("name", "values", "error", "message"),
        [
            ("n_critics", [1, 2], SettingError, "it shapes the network"),
            ("lerning_rate", [0.1, 0.2], UnknownSettingError, "did you mean 'learning_rate'"),
            ("gamma", [0.9, 1.1], SettingError, r"gamma=1\.1"),
        ],
    )
    def test_a_hyperparameter_that_could_not_be_explored_is_refused_before_anything_is_trained(
        self, name: str, values: list[Any], error: type[Exception], message: str, tmp_path: Path
    ) -> None:
        config = PBTConfig(population_size=2, hyperparams=[HyperparamConfig(name=name, values=values)])
        start = [{name: values[0]}] * 2
        with pytest.raises(error, match=message):
            Population(
                lambda _, seed: make_model(make_envs(), seed=seed),
                config,
                folder=tmp_path / "new",
                initial_hyperparams=start,
            )
        assert not (tmp_path / "new").exists()

    def test_another_environment_than_the_folder_was_begun_with(self, tmp_path: Path) -> None:
        build(tmp_path).train(1)
        envs = partial(make_envs, "Pendulum-v1", 2, normalize=True)
        with pytest.raises(CheckpointError, match="Observation spaces do not match"):
            Population(lambda _, seed: make_model(envs(), seed=seed, **SIZES), PBTConfig(**CONFIG), folder=tmp_path)

    def test_what_is_known_to_be_explored_can_be(self, tmp_path: Path) -> None:
        config = PBTConfig(population_size=2, hyperparams=[HyperparamConfig("zzz", min_value=0.1, max_value=1.0)])
        with pytest.raises(UnknownSettingError, match="known here: ") as caught:
            Population(lambda _, seed: make_model(seed=seed), config, folder=tmp_path)
        known = str(caught.value).partition("known here: ")[2].split(", ")
        assert {"learning_rate", "gamma", "sigma", "vgs_alpha"} <= set(known)
        assert {"optimizer_class", "n_steps", "seed", "policy_kwargs"}.isdisjoint(known)

    def test_what_would_do_nothing_is_not_explored(self, tmp_path: Path) -> None:
        config = PBTConfig(population_size=2, hyperparams=[HyperparamConfig("vgs_alpha", min_value=0.1, max_value=1.0)])
        with pytest.raises(SettingError, match=r"vgs_alpha is explored, .* under variance_gradient_scaling=False"):
            Population(lambda _, seed: make_model(seed=seed, variance_gradient_scaling=False), config, folder=tmp_path)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"population_size": 4}, "population_size=4, and the population in .* was begun with 3"),
            ({"truncation_ratio": 0.5}, r"truncation_ratio=0\.5, and"),
            ({"seed": 5}, r"seed=6 and PBTConfig\.seed=5"),
        ],
    )
    def test_another_configuration_than_the_folder_was_begun_with(
        self, changes: dict[str, Any], message: str, tmp_path: Path
    ) -> None:
        build(tmp_path).train(0)
        with pytest.raises(SettingError, match=message):
            build(tmp_path, **changes)
        build(tmp_path, seed=6)

    def test_a_folder_keeps_the_seed_it_was_begun_with(self, tmp_path: Path) -> None:
        config = PBTConfig(population_size=2)
        first = Population(lambda _, seed: make_model(make_envs(), seed=seed), config, folder=tmp_path)
        first.train(0)
        second = Population(lambda _, seed: make_model(make_envs(), seed=seed), config, folder=tmp_path)
        assert first.seed == second.seed

    def test_a_state_that_is_damaged_or_foreign_is_named(self, tmp_path: Path) -> None:
        build(tmp_path).train(0)
        path = tmp_path / "population.pt"
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="digest"):
            build(tmp_path)
        save_container(path, {"format_version": "model_v1"})
        with pytest.raises(CheckpointError, match="is no state of a population"):
            build(tmp_path)


class TestAnotherRunThanTheFolders:
    @pytest.mark.parametrize(
        ("changes", "n_envs", "message"),
        [
            ({"gamma": 0.5}, 2, r"gamma=0\.5 is asked for, and what is to go on was trained with 0\.99"),
            ({"n_steps": 16}, 2, "n_steps=16 is asked for"),
            ({}, 4, "n_envs=4 is asked for, and what is to go on was trained with 2"),
        ],
    )
    def test_other_settings_do_not_go_on_unsaid(
        self, changes: dict[str, Any], n_envs: int, message: str, tmp_path: Path
    ) -> None:
        build(tmp_path).train(1)

        def other(hyperparams: Mapping[str, Any], seed: int) -> DistributionalPPO:
            envs = make_envs(n_envs=n_envs, normalize=True, seed=seed)
            settings = {"learning_rate": hyperparams["learning_rate"], "n_steps": 32, "batch_size": 32, **changes}
            return make_model(envs, seed=seed, optimizer_kwargs={"sigma": hyperparams["sigma"]}, **settings)

        with pytest.raises(SettingError, match=message):
            Population(other, PBTConfig(**CONFIG), folder=tmp_path, seed=6)
        assert build(tmp_path).train(2).best.step == 2

    def test_two_processes_do_not_train_in_one_folder(self, tmp_path: Path) -> None:
        first, second = build(tmp_path), build(tmp_path)

        def intrude(_: object) -> None:
            with pytest.raises(CheckpointError, match="another process is training in it"):
                second.train(1)

        first.train(1, intrude)
        assert build(tmp_path).train(2).best.step == 2

    def test_a_folder_that_another_has_trained_in_since_is_refused(self, tmp_path: Path) -> None:
        first = build(tmp_path)
        build(tmp_path).train(1)
        with pytest.raises(CheckpointError, match="was changed by another process since"):
            first.train(1)

    def test_a_folder_that_cannot_be_locked_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "lock").mkdir()
        with pytest.raises(CheckpointError, match=r"cannot be locked .*give another folder"):
            build(tmp_path).train(1)

    def test_a_damaged_model_is_named_with_a_way_on(self, tmp_path: Path) -> None:
        build(tmp_path).train(1)
        path = tmp_path / "members" / "member_1_step_1.zip"
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(CheckpointError, match=r"member_1_step_1\.zip: .* bring it back from a copy, or begin"):
            build(tmp_path)


class TestInterval:
    def test_the_first_exploit_must_come_after_the_warm_up(self) -> None:
        check_interval(5, 4, 19)
        with pytest.raises(SettingError, match=r"perturbation_interval=5 .* vgs_warmup_steps=20.* at least 6"):
            check_interval(5, 4, 20)
        check_interval(6, 4, 20)

    def test_optimizer_steps_are_the_minibatches_of_all_epochs(self) -> None:
        steps = optimizer_steps_per_update(n_steps=16, n_envs=3, batch_size=20, n_epochs=2)
        model = make_model(batch_size=20)
        model.learn(48)
        assert model.variance_gradient_scaler is not None
        assert steps == model.variance_gradient_scaler.step_count == 6

    def test_a_population_asks_unless_its_scaler_is_off(self, tmp_path: Path) -> None:
        config = PBTConfig(population_size=2, perturbation_interval=2)

        def make(_: Mapping[str, Any], seed: int, **settings: Any) -> DistributionalPPO:
            return make_model(make_envs(), seed=seed, **settings)

        with pytest.raises(SettingError, match=r"2 updates of 4 .* vgs_warmup_steps=8"):
            Population(lambda h, seed: make(h, seed, vgs_warmup_steps=8), config, folder=tmp_path)
        Population(lambda h, seed: make(h, seed, vgs_warmup_steps=7), config, folder=tmp_path)
        Population(lambda h, seed: make(h, seed, variance_gradient_scaling=False), config, folder=tmp_path)

    @pytest.mark.parametrize("seed", range(3))
    def test_the_fewest_epochs_that_may_be_explored_count_whatever_a_member_starts_with(
        self, seed: int, tmp_path: Path
    ) -> None:
        ranges = [HyperparamConfig("n_epochs", min_value=1, max_value=4)]
        config = PBTConfig(population_size=2, perturbation_interval=2, hyperparams=ranges, seed=seed)
        with pytest.raises(SettingError, match=r"2 updates of 2 .*vgs_warmup_steps=4"):
            Population(lambda _, own: make_model(make_envs(), seed=own, vgs_warmup_steps=4), config, folder=tmp_path)
