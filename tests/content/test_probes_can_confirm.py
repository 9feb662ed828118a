"""A probe that refutes a statement would confirm it if it were true, and one that confirms it would notice if not."""

from __future__ import annotations

import functools
import itertools
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.base_class import BaseAlgorithm

from rlcore import UPGD, DistributionalPPO, VarianceGradientScaler
from rlverify.project.content import open_project
from rlverify.project.planting import plant
from rlverify.records.measured import Observation
from verification.probes import (
    documented_words,
    endurance,
    gradient_noise,
    lost_statistics,
    noise_and_scaling,
    twin_mutation,
)
from verification.probes.make import Make

PROJECT = open_project(Path(__file__).parents[2])


def observe(probe: str) -> dict[str, Observation]:
    return {each.symptom: each for each in PROJECT.probe(probe)(*PROJECT.make(), 0)}


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
    with plant(PROJECT.fault("fix-05-two-results")):
        seen = observe("code-of-before-still-runs")
    assert seen["parameters, hyperparams = exploit_and_explore(member)"].holds


def test_states_that_an_example_resets_are_seen_to_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    take = DistributionalPPO.set_parameters

    def whole(self: DistributionalPPO, given: Any) -> None:
        take(self, given)
        self.reset_lstm_states_to_initial()

    monkeypatch.setattr(DistributionalPPO, "set_parameters", whole)
    seen = observe("the-usage-example-is-a-part-of-an-exploit")[
        "LSTM states of the old weights after the usage example"
    ]
    assert (seen.after, seen.holds) == ("reset", False)


def test_losses_that_are_told_apart_are_all_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, warn = itertools.count(), warnings.warn

    def numbered(message: str, category: type[Warning]) -> None:
        warn(f"{message} ({next(numbers)})", category, stacklevel=2)

    monkeypatch.setattr("rlcore.state.training.warn_caller", numbered)
    assert observe("only-the-first-loss-of-statistics-is-told")["warnings for three losses of statistics"].after == "3"


def test_a_rate_that_falls_on_is_seen_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(self: DistributionalPPO, *_: Any) -> None:
        self._current_progress_remaining = 0.0

    monkeypatch.setattr(DistributionalPPO, "_update_current_progress_remaining", ended)
    seen = observe("a-continued-run-raises-its-falling-rate")["falling learning rate when training continues"]
    assert (seen.after, seen.holds) == ("keeps falling", False)


def test_a_member_with_the_statistics_of_its_source_is_seen_to_value_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = lost_statistics._trained
    monkeypatch.setattr(lost_statistics, "_trained", lambda make, _, **options: trained(make, 0, **options))
    seen = observe("an-older-file-lacks-more-than-the-scalers-state")["values of raw observations after the exploit"]
    assert (seen.after, seen.holds) == ("the source's", False)


def test_critics_that_keep_what_they_knew_are_seen_to(monkeypatch: pytest.MonkeyPatch) -> None:
    teach = endurance._teach

    def once(model: Any, observations: torch.Tensor, returns: torch.Tensor, *, steps: int) -> None:
        if steps == 200:
            teach(model, observations, returns, steps=steps)

    monkeypatch.setattr(endurance, "_teach", once)
    seen = observe("critics-forget-when-taught-the-opposite-elsewhere")[
        "variance of the first task explained after training on the second"
    ]
    assert (seen.after, seen.holds) == ("more than half", False)


def test_scaling_that_changes_noise_beside_the_mean_is_seen_to(monkeypatch: pytest.MonkeyPatch) -> None:
    scale = VarianceGradientScaler.scale_gradients

    def smoothing(self: VarianceGradientScaler) -> float:
        factor = scale(self)
        for parameter in self.parameters:
            assert parameter.grad is not None
            parameter.grad.copy_((parameter.grad + parameter.grad.mean()) / 2)
        return factor

    monkeypatch.setattr(VarianceGradientScaler, "scale_gradients", smoothing)
    assert list(held("scaling-lowers-the-variance-and-not-beside-the-mean").values()) == [True, False]


def test_opposite_signs_that_change_over_time_are_seen_as_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = gradient_noise._measured

    def flipping(make: Any, estimator: str, history: Any) -> float:
        return measured(make, estimator, [(-1.0) ** step * each for step, each in enumerate(history)])

    monkeypatch.setattr(gradient_noise, "_measured", flipping)
    assert all(held("opposite-signs-are-noise").values())


@pytest.mark.parametrize("harmful", ["vf_coef", pytest.param("learning_rate", marks=pytest.mark.slow)])
def test_twins_that_one_of_three_mutations_drives_apart_are_seen_to_be(
    harmful: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_sided(model: DistributionalPPO, mutation: dict[str, Any]) -> None:
        """As if the mutation had reached one critic alone, which then learns elsewhere."""
        if harmful not in mutation:
            return
        for head in model.policy.value_net.heads[1:]:
            list(head.parameters())[-1].data += 3.0
            for parameter in head.parameters():
                parameter.requires_grad_(False)

    distance = twin_mutation.twin_distance
    monkeypatch.setattr(twin_mutation, "set_hyperparameters", one_sided)
    measured = functools.cache(lambda name: distance(*PROJECT.make(), 0, dict(name), rollouts=4))
    monkeypatch.setattr(twin_mutation, "twin_distance", lambda _make, _seed, given: measured(tuple(given.items())))
    assert all(held("twins-diverge-under-mutation").values())
    together = held("twins-stay-together-under-mutation")
    assert not any(holds for symptom, holds in together.items() if harmful in symptom)


def test_a_floor_below_the_noise_is_seen_to_leave_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(noise_and_scaling.DOCUMENTED, "min_noise_std", 1e-12)
    assert list(held("the-floor-takes-over-adaptive-noise").values()) == [False, True]


class _Silent(UPGD):
    """Takes sigma and adds no noise; where it was asked for, makes steps a little shorter if told to."""

    shorter = 1.0

    def __init__(self, params: Any, *, sigma: float, lr: float, **options: Any) -> None:
        super().__init__(params, sigma=0.0, lr=self.shorter * lr if sigma else lr, **options)


class _SteadiedByNoise(_Silent):
    shorter = 0.9


def test_an_optimizer_without_noise_is_neither_unsettled_nor_sensitive_to_it() -> None:
    make = Make(optimizers=(("UPGD", _Silent),))
    unsettled, sensitive = (
        [each.holds for each in PROJECT.probe(probe)(make, 0)]
        for probe in ("noise-beside-scaled-gradients-unsettles", "scaling-makes-sigma-matter")
    )
    assert (unsettled, sensitive) == ([False, True], [True, False])


def test_noise_that_steadies_is_seen_to() -> None:
    make = Make(optimizers=(("UPGD", _SteadiedByNoise),))
    assert all(each.holds for each in PROJECT.probe("noise-and-scaling-both-steady")(make, 0))


def test_missing_tests_that_are_in_a_list_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["test_pbt_twin_critics_vgs", "test_exploit_hands_over_vgs", "test_twin_critics_divergence_in_pbt"]
    text = "\n".join(f"- {name} ✅" for name in [*names, *("test_other" for _ in range(21))])
    monkeypatch.setattr(documented_words, "cited_text", lambda _: text)
    assert all(held("the-list-of-001-has-the-missing-tests").values())


def test_a_block_that_pyyaml_reads_as_numbers_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    load = documented_words.yaml.safe_load
    monkeypatch.setattr(
        documented_words.yaml, "safe_load", lambda text: load(text.replace("3e-4", "3.0e-4").replace("1e-6", "1.0e-6"))
    )
    assert all(held("documented-configuration-as-pyyaml-reads-it").values())


def test_quoted_code_that_measures_the_elements_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documented_words, "_quoted", lambda history: float(history.var(0, correction=0).mean()))
    (found,) = observe("quoted-code-measures-the-variance-of-the-mean").values()
    assert (found.after, found.holds) == ("of the elements over time", False)
