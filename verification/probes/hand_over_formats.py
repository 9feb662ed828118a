"""What a population's files and results hold, in the two formats of document 003, and what its examples do."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rlcore import DistributionalPPO, PBTScheduler, ResumeWarning, apply_exploit
from rlverify import Observation, probe
from verification.probes.make import Make
from verification.probes.models import scaler_of

V1, V2 = "v1_policy_only", "v2_full_parameters"
FEW, MANY = 4, 10
"""Steps of the scaler of the member that copies, and of the one that is copied, as in the document."""
LR = {"name": "learning_rate", "min_value": 1e-5, "max_value": 1e-3}


@dataclass(frozen=True)
class Pair:
    """A worse member that has reported, a better one that is about to, and their models."""

    scheduler: PBTScheduler
    target: DistributionalPPO
    source: DistributionalPPO
    folder: Path


@probe("files-and-models-keep-the-documented-counts")
def files_and_models_keep_the_documented_counts(make: Make, seed: int) -> Sequence[Observation]:
    """8 steps saved and loaded; 10 steps read from a file into a model of 4."""
    saved, source, target = (_after(make, seed + i, steps) for i, steps in enumerate((8, MANY, FEW)))
    own = scaler_of(target).grad_var_ema
    with tempfile.TemporaryDirectory() as folder:
        saved.save(Path(folder) / "saved.zip")
        source.save(Path(folder) / "source.zip")
        with _silent():
            loaded = type(saved).load(Path(folder) / "saved.zip", env=make.envs(seed), device="cpu")
            target.set_parameters(Path(folder) / "source.zip")
    return [
        _count("step_count after save() and load()", loaded, 8),
        _variance("grad_var_ema after save() and load()", loaded, saved, None),
        _count("step_count after reading another's file", target, MANY),
        _variance("grad_var_ema after reading another's file", target, source, own),
    ]


@probe("a-population-hands-over-statistics-with-weights")
def a_population_hands_over_statistics_with_weights(make: Make, seed: int) -> Sequence[Observation]:
    """The document's own validation: report full parameters, exploit, apply, train on."""
    with _pair(make, seed) as pair:
        better, worse = pair.scheduler.population[1], pair.scheduler.population[0]
        pair.scheduler.update_performance(better, 0.8, 5, model_parameters=pair.source.get_parameters())
        parameters, hyperparams, checkpoint_format = pair.scheduler.exploit_and_explore(worse)
        assert parameters is not None, "the better of two members is copied"
        own = scaler_of(pair.target).grad_var_ema
        apply_exploit(pair.target, parameters, hyperparams)
    exploited = pair.target
    observations = [
        _text("format of the file", V2, str(checkpoint_format)),
        _weights("weights after the exploit", exploited, pair.source),
        _count("step_count after the exploit", exploited, MANY),
        _variance("grad_var_ema after the exploit", exploited, pair.source, own),
        _same_factor("factor after the exploit", exploited, pair.source),
    ]
    exploited.learn(24, reset_num_timesteps=False)
    return [*observations, _count("step_count after training on", exploited, MANY + 2)]


@probe("a-members-file-holds-what-the-document-lists")
def a_members_file_holds_what_the_document_lists(make: Make, seed: int) -> Sequence[Observation]:
    """Report full parameters; read the file with plain torch."""
    with _pair(make, seed) as pair:
        better = pair.scheduler.population[1]
        pair.scheduler.update_performance(better, 0.8, 100, model_parameters=pair.source.get_parameters())
        content = torch.load(str(better.checkpoint_path), weights_only=True)
    statistics = content["data"]["vgs_state"]
    steps = "none" if statistics is None else str(statistics["step_count"])
    parts = sorted(set(pair.source.get_parameters()) - set(content["data"]))
    return [
        _text(
            "format_version, step, performance",
            f"{V2}, 100, 0.8",
            f"{content['format_version']}, {content['step']}, {content['performance']}",
        ),
        _text("parts of get_parameters() that are missing", "none", ", ".join(parts) or "none"),
        _text("step_count of vgs_state", str(MANY), steps),
    ]


@probe("older-files-are-still-read")
def older_files_are_still_read(make: Make, seed: int) -> Sequence[Observation]:
    """The usage of before, as it is written: a policy's state dict is reported, found out to be v1, and taken."""
    with _pair(make, seed) as pair, _silent():
        worse, better = pair.scheduler.population
        pair.scheduler.update_performance(
            better, performance=0.8, step=100, model_state_dict=pair.source.policy.state_dict()
        )
        parameters, hyperparams, checkpoint_format = pair.scheduler.exploit_and_explore(worse)
        apply_exploit(pair.target, parameters or pair.target.get_parameters(), hyperparams)
    return [
        _text("format found out", V1, str(checkpoint_format)),
        _text("parts in the file", "policy", ", ".join(parameters or ["none"])),
        _weights("weights after the exploit", pair.target, pair.source),
    ]


@probe("older-files-and-usage-bring-a-warning")
def older_files_and_usage_bring_a_warning(make: Make, seed: int) -> Sequence[Observation]:
    """Count the warnings of reporting a policy alone, of reading it, and of the usage that is recommended."""
    with _pair(make, seed) as pair:
        worse, better = pair.scheduler.population
        with warnings.catch_warnings(record=True) as reporting:
            warnings.simplefilter("always")
            pair.scheduler.update_performance(better, 0.8, 5, model_state_dict=pair.source.policy.state_dict())
        with warnings.catch_warnings(record=True) as reading:
            warnings.simplefilter("always")
            pair.scheduler.exploit_and_explore(worse)
        with warnings.catch_warnings(record=True) as recommended:
            warnings.simplefilter("always")
            pair.scheduler.update_performance(better, 0.8, 6, model_parameters=pair.source.get_parameters())
            pair.scheduler.exploit_and_explore(worse)
    deprecated = sum(issubclass(each.category, DeprecationWarning) for each in reporting)
    told = sum(issubclass(each.category, ResumeWarning) and V1 in str(each.message) for each in reading)
    return [
        _text("warnings of model_state_dict", "1", str(deprecated)),
        _text("warnings of the file's format", "1", str(told)),
        _text("warnings of the recommended usage", "0", str(len(recommended))),
    ]


@probe("an-exploit-answers-with-three-results")
def an_exploit_answers_with_three_results(make: Make, seed: int) -> Sequence[Observation]:
    """What exploit_and_explore() returns before the population is ready, to the worse member, and to the best."""
    with _pair(make, seed) as pair:
        worse, better = pair.scheduler.population
        unready = pair.scheduler.exploit_and_explore(worse)
        pair.scheduler.update_performance(better, 0.8, 5, model_parameters=pair.source.get_parameters())
        copying, best = pair.scheduler.exploit_and_explore(worse), pair.scheduler.exploit_and_explore(better)
    return [
        _text("results before the population is ready", "None, dict, None", _types(unready)),
        _text("results for the member that copies", "dict, dict, str", _types(copying)),
        _text("results for the best member", "None, dict, None", _types(best)),
    ]


@probe("code-of-before-still-runs")
def code_of_before_still_runs(make: Make, seed: int) -> Sequence[Observation]:
    """A caller and a reader as they were written before the fix, beside the version after it."""
    with _pair(make, seed) as pair, _silent():
        worse, better = pair.scheduler.population
        pair.scheduler.update_performance(better, 0.8, 5, model_parameters=pair.source.get_parameters())
        path = str(better.checkpoint_path)
        return [
            _text("a policy's state dict is still reported", "yes", _reported(pair)),
            _text("parameters, hyperparams = exploit_and_explore(member)", "runs", _unpacked(pair, worse)),
            _text("policy.load_state_dict(torch.load(path)) of a new file", "runs", _read_as_before(pair, path)),
        ]


@probe("the-usage-example-restores-the-statistics")
def the_usage_example_restores_the_statistics(make: Make, seed: int) -> Sequence[Observation]:
    """The usage of after, as it is written: set_parameters() of what an exploit returned."""
    with _pair(make, seed) as pair:
        _run_example(pair)
    return [_count("step_count after the example", pair.target, MANY)]


@probe("the-usage-example-is-a-part-of-an-exploit")
def the_usage_example_is_a_part_of_an_exploit(make: Make, seed: int) -> Sequence[Observation]:
    """The same example; is what else an exploit consists of left undone?"""
    with _pair(make, seed) as pair:
        remembered = any(bool(each.any()) for each in pair.target._last_lstm_states.pi)
        hyperparams = _run_example(pair)
    explored, asked = float(pair.target.lr_schedule(1.0)), float(hyperparams["learning_rate"])
    fresh = not any(bool(each.any()) for each in pair.target._last_lstm_states.pi)
    assert remembered, "the member that copies has LSTM states of its old weights"
    return [
        _weights("weights after the example", pair.target, pair.source),
        _text("learning rate that trains", "its own", "the explored one" if explored == asked else "its own"),
        _text("LSTM states of the old weights", "kept", "gone" if fresh else "kept"),
    ]


def _run_example(pair: Pair) -> dict[str, Any]:
    scheduler, model, (member, better) = pair.scheduler, pair.target, pair.scheduler.population
    scheduler.update_performance(better, performance=0.8, step=100, model_parameters=pair.source.get_parameters())
    new_params, new_hp, _ = scheduler.exploit_and_explore(member)
    if new_params is not None:
        model.set_parameters(new_params)
    return new_hp


def _reported(pair: Pair) -> str:
    better = pair.scheduler.population[1]
    pair.scheduler.update_performance(better, 0.8, 6, model_state_dict=pair.source.policy.state_dict())
    return "yes" if better.step == 6 else "no"


def _unpacked(pair: Pair, member: Any) -> str:
    results: Any = pair.scheduler.exploit_and_explore(member)
    try:
        _, _ = results
    except ValueError as error:
        return f"ValueError: {error}"
    return "runs"


def _read_as_before(pair: Pair, path: str) -> str:
    try:
        pair.target.policy.load_state_dict(torch.load(path, weights_only=True))
    except RuntimeError:
        return "RuntimeError"
    return "runs"


@contextmanager
def _pair(make: Make, seed: int) -> Iterator[Pair]:
    """Two members, of which the worse one has reported its full parameters."""
    with tempfile.TemporaryDirectory() as folder:
        scheduler = make.scheduler(seed, population_size=2, hyperparams=[LR], checkpoint_dir=folder)
        scheduler.initialize_population()
        target, source = _after(make, seed, FEW), _after(make, seed + 1, MANY)
        scheduler.update_performance(scheduler.population[0], 0.2, 5, model_parameters=target.get_parameters())
        yield Pair(scheduler, target, source, Path(folder))


def _after(make: Make, seed: int, steps: int) -> DistributionalPPO:
    """A model whose scaler has made so many steps, two an update, and acts from the third on."""
    model = make.model(seed, n_steps=8, batch_size=24, n_epochs=2, vgs_warmup_steps=2, vgs_alpha=1.0)
    model.learn(steps // 2 * 24)
    return model


def _text(symptom: str, expected: str, found: str) -> Observation:
    return Observation(symptom, expected, found, holds=found == expected)


def _count(symptom: str, model: DistributionalPPO, expected: int) -> Observation:
    return _text(symptom, str(expected), str(scaler_of(model).step_count))


def _variance(symptom: str, model: DistributionalPPO, source: DistributionalPPO, own: float | None) -> Observation:
    """Whether the average is the source's, and no longer what it was."""
    found, expected = scaler_of(model).grad_var_ema, scaler_of(source).grad_var_ema
    words = {expected: "the source's", own: "its own"}
    return _text(symptom, "the source's", "None" if found is None else words.get(found, "another"))


def _weights(symptom: str, model: DistributionalPPO, source: DistributionalPPO) -> Observation:
    pairs = zip(model.policy.parameters(), source.policy.parameters(), strict=True)
    same = all(torch.equal(one, other) for one, other in pairs)
    return _text(symptom, "the source's", "the source's" if same else "others")


def _same_factor(symptom: str, model: DistributionalPPO, source: DistributionalPPO) -> Observation:
    same = scaler_of(model).get_scaling_factor() == scaler_of(source).get_scaling_factor() < 1.0
    return _text(symptom, "the source's", "the source's" if same else "another")


def _types(results: Sequence[object]) -> str:
    return ", ".join("None" if each is None else type(each).__name__ for each in results)


@contextmanager
def _silent() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResumeWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield
