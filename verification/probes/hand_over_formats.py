"""Document 003's two file formats of a population: what files and results contain, and what its examples do."""

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
from verification.probes.make import Make, equal
from verification.probes.models import scaler_of

V1, V2 = "v1_policy_only", "v2_full_parameters"
FEW, MANY = 4, 10
"""Scaler steps of the member that copies and of its source, as in the document."""
LR = {"name": "learning_rate", "min_value": 1e-5, "max_value": 1e-3}


@dataclass(frozen=True)
class Pair:
    """A worse member that has reported its parameters, a better one that has not yet, and their models."""

    scheduler: PBTScheduler
    target: DistributionalPPO
    source: DistributionalPPO
    folder: Path


@probe("files-and-models-keep-the-documented-counts")
def files_and_models_keep_the_documented_counts(make: Make, seed: int) -> Sequence[Observation]:
    """Save and load a model of 8 scaler steps. Read a file of 10 steps into a model of 4."""
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
        _count("step_count after set_parameters() from another model's file", target, MANY),
        _variance("grad_var_ema after set_parameters() from another model's file", target, source, own),
    ]


@probe("a-population-hands-over-statistics-with-weights")
def a_population_hands_over_statistics_with_weights(make: Make, seed: int) -> Sequence[Observation]:
    """Run the document's validation: report full parameters, exploit, apply, train further."""
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
        _same_factor("scaling factor after the exploit", exploited, pair.source),
    ]
    exploited.learn(24, reset_num_timesteps=False)
    return [*observations, _count("step_count after the exploit and one update", exploited, MANY + 2)]


@probe("a-members-file-holds-what-the-document-lists")
def a_members_file_holds_what_the_document_lists(make: Make, seed: int) -> Sequence[Observation]:
    """Report full parameters. Read the file with torch.load()."""
    with _pair(make, seed) as pair:
        better = pair.scheduler.population[1]
        pair.scheduler.update_performance(better, 0.8, 100, model_parameters=pair.source.get_parameters())
        content = torch.load(str(better.checkpoint_path), weights_only=True)
    statistics = content["data"]["vgs_state"]
    steps = "none" if statistics is None else str(statistics["step_count"])
    parts = sorted(set(pair.source.get_parameters()) - set(content["data"]))
    return [
        _text(
            "format_version, step and performance in the file",
            f"{V2}, 100, 0.8",
            f"{content['format_version']}, {content['step']}, {content['performance']}",
        ),
        _text("parts of get_parameters() missing in the file", "none", ", ".join(parts) or "none"),
        _text("step_count of vgs_state in the file", str(MANY), steps),
    ]


@probe("older-files-are-still-read")
def older_files_are_still_read(make: Make, seed: int) -> Sequence[Observation]:
    """Run the document's old usage: report a policy's state dict. The file is recognised as v1 and used."""
    with _pair(make, seed) as pair, _silent():
        worse, better = pair.scheduler.population
        pair.scheduler.update_performance(
            better, performance=0.8, step=100, model_state_dict=pair.source.policy.state_dict()
        )
        parameters, hyperparams, checkpoint_format = pair.scheduler.exploit_and_explore(worse)
        apply_exploit(pair.target, parameters or pair.target.get_parameters(), hyperparams)
    return [
        _text("recognised file format", V1, str(checkpoint_format)),
        _text("parts in the file", "policy", ", ".join(parameters or ["none"])),
        _weights("weights after the exploit", pair.target, pair.source),
    ]


@probe("older-files-and-usage-bring-a-warning")
def older_files_and_usage_bring_a_warning(make: Make, seed: int) -> Sequence[Observation]:
    """Count the warnings when only a policy is reported, when its file is read, and with the recommended usage."""
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
        _text("warnings for model_state_dict=", "1", str(deprecated)),
        _text("warnings for reading a v1 file", "1", str(told)),
        _text("warnings with the recommended usage", "0", str(len(recommended))),
    ]


@probe("an-exploit-answers-with-three-results")
def an_exploit_answers_with_three_results(make: Make, seed: int) -> Sequence[Observation]:
    """Check what exploit_and_explore() returns: population not ready, worse member, best member."""
    with _pair(make, seed) as pair:
        worse, better = pair.scheduler.population
        unready = pair.scheduler.exploit_and_explore(worse)
        pair.scheduler.update_performance(better, 0.8, 5, model_parameters=pair.source.get_parameters())
        copying, best = pair.scheduler.exploit_and_explore(worse), pair.scheduler.exploit_and_explore(better)
    return [
        _text("types returned by exploit_and_explore(), population not ready", "None, dict, None", _types(unready)),
        _text("types returned by exploit_and_explore(), member that copies", "dict, dict, str", _types(copying)),
        _text("types returned by exploit_and_explore(), best member", "None, dict, None", _types(best)),
    ]


@probe("code-of-before-still-runs")
def code_of_before_still_runs(make: Make, seed: int) -> Sequence[Observation]:
    """Run code written before the fix with the fixed version."""
    with _pair(make, seed) as pair, _silent():
        worse, better = pair.scheduler.population
        pair.scheduler.update_performance(better, 0.8, 5, model_parameters=pair.source.get_parameters())
        path = str(better.checkpoint_path)
        return [
            _text("update_performance() accepts a policy's state dict", "yes", _reported(pair)),
            _text("parameters, hyperparams = exploit_and_explore(member)", "runs", _unpacked(pair, worse)),
            _text("policy.load_state_dict(torch.load(path)) with a v2 file", "runs", _read_as_before(pair, path)),
        ]


@probe("the-usage-example-restores-the-statistics")
def the_usage_example_restores_the_statistics(make: Make, seed: int) -> Sequence[Observation]:
    """Run the document's new usage: set_parameters() with the parameters that an exploit returned."""
    with _pair(make, seed) as pair:
        _run_example(pair)
    return [_count("step_count after document 003's usage example", pair.target, MANY)]


@probe("the-usage-example-is-a-part-of-an-exploit")
def the_usage_example_is_a_part_of_an_exploit(make: Make, seed: int) -> Sequence[Observation]:
    """Run the same example. Check which other parts of an exploit it leaves out."""
    with _pair(make, seed) as pair:
        remembered = any(bool(each.any()) for each in pair.target._last_lstm_states.pi)
        hyperparams = _run_example(pair)
    explored, asked = float(pair.target.lr_schedule(1.0)), float(hyperparams["learning_rate"])
    fresh = not any(bool(each.any()) for each in pair.target._last_lstm_states.pi)
    assert remembered, "the member that copies has LSTM states of its old weights"
    return [
        _weights("weights after document 003's usage example", pair.target, pair.source),
        _text("learning rate after the usage example", "unchanged", "explored" if explored == asked else "unchanged"),
        _text("LSTM states of the old weights after the usage example", "kept", "reset" if fresh else "kept"),
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
    """A model whose scaler has made that many steps, two per update, and acts from the third on."""
    model = make.model(seed, n_steps=8, batch_size=24, n_epochs=2, vgs_warmup_steps=2, vgs_alpha=1.0)
    model.learn(steps // 2 * 24)
    return model


def _text(symptom: str, expected: str, found: str) -> Observation:
    return equal(symptom, expected, found)


def _count(symptom: str, model: DistributionalPPO, expected: int) -> Observation:
    return _text(symptom, str(expected), str(scaler_of(model).step_count))


def _variance(symptom: str, model: DistributionalPPO, source: DistributionalPPO, own: float | None) -> Observation:
    """Check that the average is the source's, and no longer the model's own."""
    found, expected = scaler_of(model).grad_var_ema, scaler_of(source).grad_var_ema
    words = {expected: "the source's", own: "its own"}
    return _text(symptom, "the source's", "None" if found is None else words.get(found, "different"))


def _weights(symptom: str, model: DistributionalPPO, source: DistributionalPPO) -> Observation:
    pairs = zip(model.policy.parameters(), source.policy.parameters(), strict=True)
    same = all(torch.equal(one, other) for one, other in pairs)
    return _text(symptom, "the source's", "the source's" if same else "different")


def _same_factor(symptom: str, model: DistributionalPPO, source: DistributionalPPO) -> Observation:
    same = scaler_of(model).get_scaling_factor() == scaler_of(source).get_scaling_factor() < 1.0
    return _text(symptom, "the source's", "the source's" if same else "different")


def _types(results: Sequence[object]) -> str:
    return ", ".join("None" if each is None else type(each).__name__ for each in results)


@contextmanager
def _silent() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResumeWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield
