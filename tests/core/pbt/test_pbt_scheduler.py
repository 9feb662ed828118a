"""The scheduler as the documents describe it: six tests of one hyperparameter's configuration, nine of the
population's, three of a member, twenty-four of the scheduler and three of edges."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlcore import HyperparamConfig, PBTConfig, PBTScheduler, PopulationMember, SettingError
from rlcore.checkpoint.formats import FORMAT_V2, load_checkpoint
from tests.support.schedulers import EPOCHS, LR, MOMENTUM, files_in, make_config, make_scheduler, parameters_of, report

CURRENT = {"learning_rate": 1e-4, "momentum": 0.9, "n_epochs": 5}


def resampled(config: HyperparamConfig) -> list[Any]:
    generator = np.random.default_rng(0)
    return [config.resample(generator) for _ in range(400)]


def perturbed(config: HyperparamConfig, value: Any) -> set[Any]:
    generator = np.random.default_rng(0)
    return {config.perturb(value, generator) for _ in range(40)}


def refuses(name: str, value: Any, wanted: str) -> None:
    with pytest.raises(SettingError, match=rf"\['{name}'\]={value!r} cannot be used: .*{wanted}") as caught:
        PBTConfig(**{name: value})
    assert caught.value.setting == f"PBTConfig[{name!r}]"


def scored(folder: Path, *performances: float | None, **settings: Any) -> PBTScheduler:
    scheduler = make_scheduler(folder, **settings)
    for member, performance in zip(scheduler.population, performances, strict=True):
        member.performance = performance
    return scheduler


def sources(folder: Path, **settings: Any) -> list[set[int | None]]:
    """Whom each of the members with scores of 0.3, 0.9, 0.7 and 0.5 copies in 60 draws; None for nobody."""
    scheduler = scored(folder, 0.3, 0.9, 0.7, 0.5, **settings)
    found = [[scheduler.choose_source(member) for _ in range(60)] for member in scheduler.population]
    return [{None if source is None else source.member_id for source in each} for each in found]


@pytest.fixture
def scheduler(tmp_path: Path) -> PBTScheduler:
    return make_scheduler(tmp_path, seed=42)


class TestHyperparamConfig:
    def test_continuous_hyperparam(self) -> None:
        config = HyperparamConfig(name="learning_rate", min_value=1e-5, max_value=1e-3)
        assert (config.name, config.min_value, config.max_value, config.values) == ("learning_rate", 1e-5, 1e-3, None)
        assert (config.perturbation_factor, config.resample_probability, config.is_log_scale) == (1.2, 0.25, False)
        assert config.is_integer is False

    def test_categorical_hyperparam(self) -> None:
        config = HyperparamConfig("activation", values=["relu", "tanh", "sigmoid"])
        assert config.values == ["relu", "tanh", "sigmoid"]
        assert config.is_integer is False

    def test_validation_no_range_or_values(self) -> None:
        for given in ({}, {"min_value": 0.1}, {"max_value": 0.1}):
            with pytest.raises(SettingError, match=r"'x': min_value=.* and max_value=.* leave nothing to draw from"):
                HyperparamConfig("x", **given)

    def test_validation_both_range_and_values(self) -> None:
        for given in ({"min_value": 0.0, "max_value": 1.0}, {"max_value": 1.0}):
            names = ".*".join(given)
            with pytest.raises(SettingError, match=rf"{names}.* and values=\[1, 2\] contradict each other"):
                HyperparamConfig("x", values=[1, 2], **given)

    def test_validation_invalid_range(self) -> None:
        for low, high in ((1.0, 0.5), (1.0, 1.0), (-1e308, 1e308)):
            with pytest.raises(SettingError, match="leave nothing to draw from"):
                HyperparamConfig("x", min_value=low, max_value=high)
        for low in (0, 0.0, -1e-3):
            with pytest.raises(SettingError, match=rf"min_value={low} and is_log_scale=True contradict each other"):
                HyperparamConfig("x", min_value=low, max_value=1.0, is_log_scale=True)

    def test_validation_invalid_resample_probability(self) -> None:
        for name, values in (("resample_probability", (1.5, -0.1, math.nan)), ("perturbation_factor", (1.0, 0.8))):
            for value in values:
                with pytest.raises(SettingError, match=rf"{name}'\]={value} cannot be used"):
                    HyperparamConfig("x", min_value=0.0, max_value=1.0, **{name: value})


class TestPBTConfig:
    def test_default_initialization(self) -> None:
        config = PBTConfig()
        assert (config.population_size, config.perturbation_interval, config.hyperparams) == (10, 5, [])
        assert (config.exploit_method, config.explore_method, config.truncation_ratio) == ("truncation", "both", 0.2)
        assert (config.metric_mode, config.ready_percentage) == ("max", 0.8)
        assert (config.optimizer_exploit_strategy, config.explore_without_exploit) == ("reset", False)

    def test_custom_initialization(self) -> None:
        given: dict[str, Any] = {
            "population_size": 5,
            "perturbation_interval": 10,
            "exploit_method": "binary_tournament",
            "explore_method": "perturb",
            "metric_name": "loss",
            "metric_mode": "min",
        }
        momentum = {"name": "momentum", "values": [0.8, 0.9, 0.95, 0.99]}
        config = PBTConfig(**given, hyperparams=[LR, momentum], checkpoint_dir="somewhere")
        assert {name: getattr(config, name) for name in given} == given
        assert (config.hyperparams, config.checkpoint_dir) == ([LR, MOMENTUM], Path("somewhere"))

    def test_validation_small_population(self) -> None:
        refuses("population_size", 1, "greater than or equal to 2")

    def test_validation_zero_perturbation_interval(self) -> None:
        refuses("perturbation_interval", 0, "greater than or equal to 1")

    def test_validation_invalid_exploit_method(self) -> None:
        refuses("exploit_method", "roulette", "'truncation' or 'binary_tournament'")

    def test_validation_invalid_explore_method(self) -> None:
        refuses("explore_method", "mutate", "'both', 'perturb' or 'resample'")

    def test_validation_invalid_truncation_ratio(self) -> None:
        refuses("truncation_ratio", 1.5, "less than or equal to 1")
        refuses("truncation_ratio", 0.0, "greater than 0")

    def test_validation_invalid_metric_mode(self) -> None:
        refuses("metric_mode", "best", "'max' or 'min'")

    def test_validation_invalid_ready_percentage(self) -> None:
        refuses("ready_percentage", 80, "less than or equal to 1")


class TestPopulationMember:
    def test_initialization(self) -> None:
        member = PopulationMember(member_id=0, hyperparams={"lr": 0.001, "momentum": 0.9})
        assert (member.member_id, member.hyperparams) == (0, {"lr": 0.001, "momentum": 0.9})
        assert (member.performance, member.step, member.checkpoint_path, member.history) == (None, 0, None, [])
        member.state_dict()["history"].append("changed")  # type: ignore[union-attr]
        assert member.history == []

    def test_record_step(self) -> None:
        hyperparams = {"lr": 0.001}
        member = PopulationMember(0, {"lr": 0.001})
        member.record_step(100, 0.8, hyperparams)
        hyperparams["lr"] = 0.5
        assert (member.step, member.performance) == (100, 0.8)
        assert member.history == [{"step": 100, "performance": 0.8, "hyperparams": {"lr": 0.001}}]

    def test_record_multiple_steps(self) -> None:
        member = PopulationMember(0, {"lr": 0.001})
        for step, performance in ((100, 0.8), (200, 0.9), (300, 0.7)):
            member.record_step(step, performance, member.hyperparams)
        assert (member.step, member.performance) == (300, 0.7)
        assert [(each["step"], each["performance"]) for each in member.history] == [(100, 0.8), (200, 0.9), (300, 0.7)]


class TestPBTScheduler:
    def test_initialization(self, tmp_path: Path) -> None:
        config = make_config(tmp_path / "checkpoints")
        scheduler = PBTScheduler(config, seed=42)
        assert scheduler.config is config
        assert scheduler.population == []
        assert (scheduler.exploitation_count, scheduler.exploration_count) == (0, 0)
        assert files_in(tmp_path) == []

    def test_initialize_population_random(self, tmp_path: Path) -> None:
        first, again, other = (make_scheduler(tmp_path, size=6, seed=seed).population for seed in (1, 1, 2))
        assert [member.member_id for member in first] == [0, 1, 2, 3, 4, 5]
        assert [member.hyperparams for member in first] == [member.hyperparams for member in again]
        assert [member.hyperparams for member in first] != [member.hyperparams for member in other]
        assert len({member.hyperparams["learning_rate"] for member in first}) == 6
        for member in first:
            assert list(member.hyperparams) == ["learning_rate", "momentum", "n_epochs"]
            for config in (LR, MOMENTUM, EPOCHS):
                config.check_value(member.hyperparams[config.name])

    def test_initialize_population_provided(self, scheduler: PBTScheduler) -> None:
        initial: list[dict[str, Any]] = [
            {**CURRENT, "n_epochs": np.int64(epochs), "fixed": "kept"} for epochs in (1, 2, 3, 4)
        ]
        population = scheduler.initialize_population(initial)
        assert [member.hyperparams for member in population] == [
            {**CURRENT, "n_epochs": epochs, "fixed": "kept"} for epochs in (1, 2, 3, 4)
        ]
        assert type(population[0].hyperparams["n_epochs"]) is int

    def test_initialize_population_wrong_size(self, scheduler: PBTScheduler) -> None:
        before = scheduler.population
        for initial, said in (
            ([CURRENT] * 3, "holds 3 mappings for population_size=4"),
            ([CURRENT, CURRENT, CURRENT, {"learning_rate": 1e-4}], "'momentum': None cannot be its value"),
            ([CURRENT, CURRENT, CURRENT, {**CURRENT, "n_epochs": 2.5}], "'n_epochs': 2.5 cannot be its value"),
            ([CURRENT, CURRENT, CURRENT, {**CURRENT, "n_epochs": True}], "'n_epochs': True cannot be its value"),
            ([CURRENT, CURRENT, CURRENT, {**CURRENT, "momentum": 0.85}], "'momentum': 0.85 cannot be its value"),
        ):
            with pytest.raises(SettingError, match=said):
                scheduler.initialize_population(initial)
        assert scheduler.population is before

    def test_should_exploit_and_explore(self, scheduler: PBTScheduler) -> None:
        member = scheduler.population[0]
        due = []
        for member.step in range(16):
            if scheduler.should_exploit_and_explore(member):
                due.append(member.step)
        assert due == [5, 10, 15]

    def test_update_performance(self, scheduler: PBTScheduler) -> None:
        member = scheduler.population[1]
        scheduler.update_performance(member, np.float32(0.5), 100, model_parameters=parameters_of(7))  # type: ignore[arg-type]
        assert (member.performance, type(member.performance), member.step) == (0.5, float, 100)
        assert member.history == [{"step": 100, "performance": 0.5, "hyperparams": member.hyperparams}]
        assert member.checkpoint_path is not None
        checkpoint = load_checkpoint(member.checkpoint_path, require_digest=True)
        assert (checkpoint.format_version, checkpoint.step, checkpoint.performance) == (FORMAT_V2, 100, 0.5)
        assert repr(checkpoint.data) == repr(parameters_of(7))

    def test_rank_population_max_mode(self, tmp_path: Path) -> None:
        ranked = scored(tmp_path, 0.5, 0.9, 0.7, 0.3).ranked()
        assert [member.performance for member in ranked] == [0.9, 0.7, 0.5, 0.3]

    def test_rank_population_min_mode(self, tmp_path: Path) -> None:
        ranked = scored(tmp_path, 0.5, 0.9, None, 0.3, metric_mode="min").ranked()
        assert [member.performance for member in ranked] == [0.3, 0.5, 0.9, None]

    def test_sample_hyperparams_continuous(self) -> None:
        drawn = np.array(resampled(HyperparamConfig("x", min_value=-1.0, max_value=3.0)))
        assert -1 <= drawn.min() <= drawn.max() <= 3
        assert abs(drawn.mean() - 1) < 5 * 4 / math.sqrt(12 * 400)

    def test_sample_hyperparams_continuous_log_scale(self) -> None:
        drawn = np.array(resampled(LR))
        assert 1e-5 <= drawn.min() <= drawn.max() <= 1e-3
        assert abs(np.log10(drawn).mean() + 4) < 5 * 2 / math.sqrt(12 * 400)

    def test_sample_hyperparams_categorical(self) -> None:
        drawn = resampled(MOMENTUM)
        shares = [drawn.count(value) / 400 for value in (0.8, 0.9, 0.95, 0.99)]
        assert all(abs(share - 0.25) < 5 * math.sqrt(0.25 * 0.75 / 400) for share in shares)

    def test_perturb_hyperparam_continuous(self) -> None:
        assert perturbed(HyperparamConfig("x", min_value=1e-5, max_value=1e-3), 5e-4) == {5e-4 * 1.2, 5e-4 / 1.2}

    def test_perturb_hyperparam_categorical(self) -> None:
        assert perturbed(MOMENTUM, 0.9) == {0.8, 0.95}

    def test_explore_hyperparams_perturb(self, tmp_path: Path) -> None:
        new = self.explored(tmp_path, "perturb")
        found = [{each[name] for each in new} for name in CURRENT]
        assert found == [{1e-4 * 1.2, 1e-4 / 1.2}, {0.8, 0.95}, {4, 6}]

    def test_explore_hyperparams_resample(self, tmp_path: Path) -> None:
        new = self.explored(tmp_path, "resample")
        rates, *others = [{each[name] for each in new} for name in CURRENT]
        assert not rates & {1e-4 * 1.2, 1e-4 / 1.2}
        assert others == [{0.8, 0.9, 0.95, 0.99}, set(range(1, 13))]

    def test_explore_hyperparams_both(self, tmp_path: Path) -> None:
        new = self.explored(tmp_path, "both")
        perturbed = sum(each["learning_rate"] in (1e-4 * 1.2, 1e-4 / 1.2) for each in new)
        assert abs(perturbed / len(new) - 0.75) < 5 * math.sqrt(0.75 * 0.25 / len(new))

    def test_should_exploit_truncation_bottom(self, tmp_path: Path) -> None:
        assert [None in each for each in sources(tmp_path, truncation_ratio=0.5)] == [False, True, True, False]

    def test_should_exploit_truncation_top(self, tmp_path: Path) -> None:
        assert sources(tmp_path, truncation_ratio=0.5)[1:3] == [{None}, {None}]

    def test_should_exploit_binary_tournament(self, tmp_path: Path) -> None:
        found = sources(tmp_path, exploit_method="binary_tournament")
        assert found == [{1, 2, 3}, {None}, {None, 1}, {None, 1, 2}]

    def test_select_source_member_truncation(self, tmp_path: Path) -> None:
        assert sources(tmp_path, truncation_ratio=0.5)[0] == {1, 2}

    def test_exploit_and_explore_not_ready(self, scheduler: PBTScheduler) -> None:
        for member in scheduler.population[:3]:
            before = dict(member.hyperparams)
            scheduler.update_performance(member, member.member_id, 5, model_parameters=parameters_of(member.member_id))
            assert scheduler.exploit_and_explore(scheduler.population[0])[0] is None
            assert scheduler.exploit_and_explore(member) == (None, before, None)
            assert member.hyperparams == before
        assert (scheduler.exploitation_count, scheduler.exploration_count) == (0, 0)

    def test_exploit_and_explore_ready(self, scheduler: PBTScheduler) -> None:
        worst, *_, best = report(scheduler, [0.1, 0.2, 0.3, 0.4])
        best_before, history = dict(best.hyperparams), list(worst.history)
        parameters, hyperparams, checkpoint_format = scheduler.exploit_and_explore(worst)
        assert checkpoint_format == FORMAT_V2
        assert repr(parameters) == repr(parameters_of(best.member_id))
        assert hyperparams == worst.hyperparams != best_before
        assert (worst.copied_from, worst.performance, worst.history) == (best.member_id, 0.1, history)
        assert scheduler.exploit_and_explore(best) == (None, best_before, None)
        assert (scheduler.exploitation_count, scheduler.exploration_count) == (1, 1)

    def test_get_stats(self, scheduler: PBTScheduler) -> None:
        report(scheduler, [1.0, 2.0, 4.0, math.nan])
        scheduler.exploit_and_explore(scheduler.population[3])
        assert scheduler.get_stats() == {
            "pbt/population_size": 4,
            "pbt/ready_members": 4,
            "pbt/mean_performance": pytest.approx(7 / 3),
            "pbt/std_performance": pytest.approx(math.sqrt(14 / 9)),
            "pbt/min_performance": 1.0,
            "pbt/max_performance": 4.0,
            "pbt/exploitation_count": 1,
            "pbt/exploration_count": 1,
        }

    def test_get_stats_empty_population(self, scheduler: PBTScheduler) -> None:
        for asked, size in ((PBTScheduler(scheduler.config), 0), (scheduler, 4)):
            stats = asked.get_stats()
            assert (stats["pbt/population_size"], stats["pbt/ready_members"]) == (size, 0)
            assert all(math.isnan(stats[f"pbt/{name}_performance"]) for name in ("mean", "std", "min", "max"))

    @staticmethod
    def explored(folder: Path, method: str) -> list[dict[str, Any]]:
        """What a member that copies CURRENT goes on with, many times."""
        scheduler = make_scheduler(folder, size=2, explore_method=method)
        worst, _ = scheduler.initialize_population([CURRENT, CURRENT])
        report(scheduler, [0.0, 1.0])
        return [scheduler.exploit_and_explore(worst)[1] for _ in range(100)]


class TestPBTEdgeCases:
    def test_perturbation_clipping_to_bounds(self) -> None:
        wide = HyperparamConfig("x", min_value=1e-5, max_value=1e-4, perturbation_factor=10.0)
        assert perturbed(wide, 5e-5) == {1e-5, 1e-4}
        assert perturbed(EPOCHS, 12) == {10, 12}

    def test_categorical_ends_have_one_neighbour(self) -> None:
        assert [perturbed(MOMENTUM, end) for end in (0.8, 0.99)] == [{0.9}, {0.95}]

    def test_empty_hyperparams_list(self, tmp_path: Path) -> None:
        scheduler = make_scheduler(tmp_path, size=2, hyperparams=[])
        worst, _ = report(scheduler, [0.0, 1.0])
        parameters, hyperparams, _ = scheduler.exploit_and_explore(worst)
        assert hyperparams == {}
        assert parameters is not None
        assert torch.equal(parameters["policy"]["weight"], torch.ones(2, 3))
