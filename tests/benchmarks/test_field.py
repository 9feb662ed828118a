"""The field report: what is measured, and that each script shows what its finding claims."""

from __future__ import annotations

import copy
import os
import random
import re
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.base_class import BaseAlgorithm

import benchmarks.field.reproductions as scripts_of_the_report
from benchmarks.field import effects, measuring
from benchmarks.field.__main__ import main
from benchmarks.field.algorithms import ALGORITHMS
from benchmarks.field.effects import MEASURED, effect_of
from benchmarks.field.explanations import BY_DESIGN, EXPLANATIONS
from benchmarks.field.findings import LEGEND, matrix
from benchmarks.field.measuring import DEFAULTS, FieldTask, _shown, algorithm_tasks, measure, optimizer_tasks
from benchmarks.field.page import reproduction
from benchmarks.field.records import Checked, read_field_report
from rlverify.checks.adapters.sb3 import SB3Adapter
from rlverify.checks.engine.check_records import CheckFinding, CheckRecord, Status
from rlverify.checks.engine.rule import RULES
from rlverify.running.executors import Executor, InlineExecutor, ProcessExecutor


def run(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["field", *arguments])
    main()


def test_an_optimizer_is_measured_and_its_page_can_be_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.field.__main__.ProcessExecutor", lambda _count: InlineExecutor())
    monkeypatch.delattr(os, "fork")  # all in this process: faster
    run("run", "Adam", "--output", str(tmp_path / "new"), monkeypatch=monkeypatch)
    assert capsys.readouterr().err.startswith("Adam, defaults: ")
    data, page = tmp_path / "new" / "field-report.json", tmp_path / "new" / "field-report.md"
    report = read_field_report(data)
    assert report.algorithms == ()
    (adam,) = report.optimizers
    status = {each.check: each.status for each in adam.records}
    assert status["state_dict_continues"] is status["learning_rate_zero_freezes"] is Status.PASS
    assert status["load_state_dict_copies"] is Status.FAIL
    assert Status.ERROR not in status.values()
    first = page.read_text(encoding="utf-8")
    assert "| `load_state_dict_copies` | ✗ |\n" in first
    assert "Algorithms by checks" not in first
    page.unlink()
    run("report", "--output", str(tmp_path / "new"), monkeypatch=monkeypatch)
    assert page.read_text(encoding="utf-8") == first
    exec(reproduction(adam, "missing_gradients_are_skipped"), {})  # noqa: S102 - what a reader would run
    assert capsys.readouterr().out.startswith("pass, proven by 1 fault\n")


@pytest.mark.slow
def test_an_algorithm_is_measured_in_both_variants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("run", "A2C", "--output", str(tmp_path), monkeypatch=monkeypatch)
    report = read_field_report(tmp_path / "field-report.json")
    defaults, awkward = report.algorithms
    assert (defaults.variant, awkward.variant, report.optimizers) == ("defaults", "awkward", ())
    assert defaults.problem == awkward.problem == ""
    assert awkward.effects == {}
    failed = {each.check for each in defaults.records if each.status is Status.FAIL}
    assert {"resume_is_exact", "set_parameters_copies", "arguments_are_left_alone"} <= failed
    assert set(defaults.effects) == {"resume_is_exact", "set_parameters_copies"}
    assert all(min(each.distance) > 0 for each in defaults.effects.values())
    assert failed <= {each.check for each in report.reproductions}


@pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")  # which is meant
def test_every_factory_makes_its_class_with_the_seed_that_it_is_given() -> None:
    assert len({each.factory for each in algorithm_tasks()}) == 2 * len(ALGORITHMS) == 20
    for each in ALGORITHMS:
        for factory in (each.defaults, each.awkward):
            model = factory(3)
            assert (type(model).__name__, model.seed) == (each.name, 3)
            assert type(model).__module__.startswith(each.library.replace("-", "_"))


def test_every_optimizer_of_torch_is_checked_once() -> None:
    names = [each.name for each in optimizer_tasks()]
    assert names == sorted(set(names))
    assert {"Adam", "AdamW", "LBFGS", "SGD", "SparseAdam"} < set(names)
    assert "Optimizer" not in names


@pytest.mark.parametrize(
    ("code", "executor", "problem"),
    [
        (
            "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
            lambda: ProcessExecutor(1),
            "its process ended with exit code -9",
        ),
        ('raise ValueError("no such\\nlicence")\n', InlineExecutor, "ValueError: no such licence ("),
    ],
    ids=["killed", "raises"],
)
def test_a_subject_that_cannot_be_checked_is_a_problem_on_the_page(
    code: str, executor: Callable[[], Executor], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "field_subject.py").write_text(code, encoding="utf-8")
    task = FieldTask("subject", "none", DEFAULTS, "field_subject:make", "code")
    monkeypatch.setattr(measuring, "algorithm_tasks", lambda _names: [task])
    monkeypatch.syspath_prepend(tmp_path)
    report = measure(["none"], executor=executor())
    (subject,) = report.algorithms
    assert (subject.source, subject.records, subject.effects) == ("code", (), {})
    assert subject.problem.startswith(problem)
    assert "\n" not in subject.problem
    assert report.versions["torch"] == metadata.version("torch")


@pytest.mark.parametrize(
    ("status", "unproven", "mark"),
    [
        (Status.PASS, "", "✓"),
        (Status.PASS, "no fault", "○"),
        (Status.FAIL, "", "✗"),
        (Status.INCONCLUSIVE, "", "?"),
        (Status.NOT_APPLICABLE, "", "·"),
        (Status.ERROR, "", "!"),
    ],
)
def test_each_status_has_a_mark_that_the_legend_explains(status: Status, unproven: str, mark: str) -> None:
    record = CheckRecord("PPO", "it", "family", "high", CheckFinding(status), unproven=unproven)
    assert matrix([Checked("PPO", "", DEFAULTS, "", "", records=(record,), effects={})]) == (["PPO"], [("it", [mark])])
    assert mark in LEGEND


class WithoutDefects(SB3Adapter):
    """Hands over copies, and keeps the whole model and the state of all generators."""

    def get_parameters(self, model: BaseAlgorithm) -> Any:
        return copy.deepcopy(super().get_parameters(model))

    def save(self, model: BaseAlgorithm, folder: Path) -> None:  # noqa: ARG002
        model.policy.action_dist.distribution = None  # type: ignore[union-attr]  # of the last step; its tensors cannot be copied
        self.model = copy.deepcopy(model)
        self.generators = random.getstate(), np.random.get_state(), torch.get_rng_state()

    def load(self, folder: Path, fresh: BaseAlgorithm) -> BaseAlgorithm:  # noqa: ARG002
        own, of_numpy, of_torch = self.generators
        random.setstate(own)
        np.random.set_state(of_numpy)
        torch.set_rng_state(of_torch)
        return self.model


@pytest.mark.parametrize("check", MEASURED)
def test_a_defect_has_an_effect_that_a_library_without_it_lacks(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ON_POLICY_STEPS": 16, "EPISODES": 1, "SEEDS": (0, 1)}.items():
        monkeypatch.setattr(effects, name, value)

    def ppo(seed: int = 0) -> PPO:
        return PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=4, n_epochs=1, seed=seed, device="cpu")

    found = effect_of(check, ppo)
    assert found is not None
    assert (found.steps, len(found.returns), len(found.returns_with)) == (16, 2, 2)
    assert all(1.0 <= each <= 500.0 for each in (*found.returns, *found.returns_with))  # CartPole's
    assert all(0 < each < 10 for each in found.distance)
    assert check != "resume_is_exact" or found.first_difference == (1, 1)
    monkeypatch.setattr(effects, "ADAPTER", WithoutDefects())
    found = effect_of(check, ppo)
    assert found is not None
    assert (found.distance, found.first_difference) == ((0.0, 0.0), (None, None))
    assert found.returns == found.returns_with


FOLDER = next(Path(each) for each in scripts_of_the_report.__path__)
SCRIPTS = {path.stem: path for path in sorted(FOLDER.glob("*.py"))}
ARRAY = r"\[[\d. e+-]+\]"


def differing(output: str) -> bool:
    """Whether two arrays are shown, of three numbers each, that are not the same."""
    found = re.fullmatch(rf"({ARRAY}) ({ARRAY})", output)
    return found is not None and found[1] != found[2]


SHOWS: dict[str, Callable[[str], object]] = {
    "arguments_are_left_alone": lambda output: re.fullmatch(r"\{'net_arch': \[8\], '\w+': .+\}", output),
    "artefact_needs_no_unpickling": lambda output: int(output.removesuffix(" fields of the JSON file are pickles")) > 0,
    "artefact_runs_nothing_when_read": lambda output: output == "this ran while the file was read",
    "environment_can_be_copied": lambda output: output == "None",
    "learning_rate_zero_freezes": lambda output: output.startswith("moved: [") and "True" in output,
    "nan_observation_is_reported": lambda output: output == "finite: False",
    "one_sample_minibatch": lambda output: output == "finite: False",
    "pieces_equal_whole": lambda output: output == "same parameters: False",
    "resume_is_exact": lambda output: output == "same parameters: False",
    "set_parameters_copies": lambda output: output.startswith("unchanged: [") and "False" in output,
    "statistics_follow_the_policy": differing,
    "truncation_is_not_termination": lambda output: output == "the episode counts as going on: False",
    "unknown_settings_are_refused": lambda output: output.startswith("MlpExtractor(") and "Linear" not in output,
}
"""What each script has to print, by the claim of its finding."""


CONTROLS = {
    "nan_observation_is_reported": ('float("nan")', "1.0"),
    "one_sample_minibatch": ('"batch_size": 64', '"batch_size": 65'),
    "pieces_equal_whole": ("LinearSchedule(1e-3, 1e-4, 1)", "1e-3"),
    "resume_is_exact": ('PPO.load("half.zip", env=half.get_env())', "half"),
    "truncation_is_not_termination": (", handle_timeout_termination=False", ""),
    "set_parameters_copies": ("source.get_parameters()", "__import__('copy').deepcopy(source.get_parameters())"),
}
"""What to replace in a script, so that nothing is wrong: then it must print the opposite."""


def test_every_script_is_named_after_a_rule_with_an_explanation() -> None:
    assert set(SCRIPTS) == set(EXPLANATIONS) == set(SHOWS)
    assert set(EXPLANATIONS) <= set(RULES)
    names = {each.name for each in (*ALGORITHMS, *optimizer_tasks())}
    assert BY_DESIGN
    assert all(name in names and check in EXPLANATIONS for name, check in BY_DESIGN)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_shows_what_its_finding_claims(name: str) -> None:
    output = _shown(name).output
    assert SHOWS[name](output), output


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTROLS)
def test_a_script_without_its_cause_shows_the_opposite(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SCRIPTS[name].read_text(encoding="utf-8")
    cause, harmless = CONTROLS[name]
    assert text.count(cause) == 1
    (tmp_path / f"{name}.py").write_text(text.replace(cause, harmless), encoding="utf-8")
    monkeypatch.setattr(measuring, "_script", lambda check: tmp_path / f"{check}.py")
    output = _shown(name).output
    assert "True" in output
    assert "False" not in output


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("import sys\nprint(' 1\\n2')\nprint('x', file=sys.stderr)", "1\n2"),
        ("raise ValueError('three')", "ValueError: three"),
        ("import time\ntime.sleep(60)", "(did not end within 1 seconds)"),
    ],
)
def test_the_output_of_a_script(code: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "it.py").write_text(f"{code}\n", encoding="utf-8")
    monkeypatch.setattr(measuring, "_script", lambda check: tmp_path / f"{check}.py")
    monkeypatch.setattr(measuring, "SECONDS", 1.0 if "sleep" in code else 60.0)
    shown = _shown("it")
    assert (shown.code, shown.output) == (code, output)
