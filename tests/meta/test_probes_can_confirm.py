"""A probe that refutes a statement would confirm it if it were true, and one that confirms it would notice if not."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.base_class import BaseAlgorithm

from rlcore import DistributionalPPO, VarianceGradientScaler
from verification.faults import plant
from verification.laboratory import Laboratory
from verification.model import Observation
from verification.probes import lost_statistics

LABORATORY = Laboratory()


def observe(probe: str) -> dict[str, Observation]:
    return {each.symptom: each for each in LABORATORY.probe(probe)(LABORATORY.make(), 0)}


def held(probe: str) -> dict[str, bool]:
    return {symptom: each.holds for symptom, each in observe(probe).items()}


def test_a_scaler_that_is_left_out_of_a_stock_file_is_seen_to_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    excluded = BaseAlgorithm._excluded_save_params
    monkeypatch.setattr(BaseAlgorithm, "_excluded_save_params", lambda self: [*excluded(self), "scaler"])
    assert all(held("sb3-keeps-what-get-parameters-does-not-name").values())
    assert all(held("sb3-an-empty-pytorch-variables-file-tells-of-a-loss").values())


def test_a_stock_save_that_asks_getstate_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    save = BaseAlgorithm.save

    def asking(self: Any, *arguments: Any, **options: Any) -> None:
        self.__getstate__()
        save(self, *arguments, **options)

    monkeypatch.setattr(BaseAlgorithm, "save", asking)
    seen = held("sb3-saves-through-get-parameters")
    assert [symptom for symptom, holds in seen.items() if not holds] == ["save() calls __getstate__() of the model"]


def test_parameters_that_a_stock_model_takes_are_seen_to_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    take = PPO.set_parameters

    def lenient(self: Any, given: Any, *arguments: Any, **options: Any) -> None:
        take(self, {key: state for key, state in given.items() if key != "vgs_state"}, *arguments, **options)

    monkeypatch.setattr(PPO, "set_parameters", lenient)
    assert all(held("sb3-reads-parameters-of-the-fixed-version").values())


def test_statistics_that_matter_to_an_evaluation_are_seen_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(self: VarianceGradientScaler) -> None:
        with torch.no_grad():
            for parameter in self.parameters:
                parameter.neg_()

    monkeypatch.setattr(VarianceGradientScaler, "reset_statistics", spoil)
    assert all(held("evaluation-needs-the-statistics").values())


def test_an_answer_of_two_results_is_seen_to_be_unpacked() -> None:
    with plant(LABORATORY.fault("fix-05-two-results")):
        seen = observe("code-of-before-still-runs")
    assert seen["parameters, hyperparams = exploit_and_explore(member)"].holds


def test_states_that_an_example_resets_are_seen_to_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    take = DistributionalPPO.set_parameters

    def whole(self: DistributionalPPO, given: Any) -> None:
        take(self, given)
        self.reset_lstm_states_to_initial()

    monkeypatch.setattr(DistributionalPPO, "set_parameters", whole)
    assert observe("the-usage-example-is-a-whole-exploit")["LSTM states of the old weights"].holds


def test_losses_that_are_told_apart_are_all_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, warn = itertools.count(), warnings.warn

    def numbered(message: str, category: type[Warning], stacklevel: int = 1) -> None:
        warn(f"{message} ({next(numbers)})", category, stacklevel=stacklevel + 1)

    monkeypatch.setattr("rlcore.checkpoint.training_state.warnings.warn", numbered)
    assert observe("only-the-first-loss-of-statistics-is-told")["warnings of three losses"].after == "3"


def test_a_rate_that_falls_on_is_seen_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(self: DistributionalPPO, *_: Any) -> None:
        self._current_progress_remaining = 0.0

    monkeypatch.setattr(DistributionalPPO, "_update_current_progress_remaining", ended)
    assert all(held("a-continued-run-is-one-run").values())


def test_a_member_with_the_statistics_of_its_source_is_seen_to_value_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = lost_statistics._trained
    monkeypatch.setattr(lost_statistics, "_trained", lambda make, _, **options: trained(make, 0, **options))
    assert observe("an-older-file-lacks-the-statistics-and-nothing-else")["values of raw observations"].holds
