"""Measuring: what is checked, and that the end of one worker or an error in it leaves the other results."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path

import pytest
import torch

from benchmarks.field import measuring
from benchmarks.field.algorithms import ALGORITHMS
from benchmarks.field.measuring import AWKWARD, DEFAULTS, FieldTask, algorithm_tasks, measure, optimizer_tasks
from rlverify.checks.engine.check_records import CheckFinding, CheckRecord, Status
from rlverify.running.executors import ProcessExecutor

KILLED = "import os, signal\n\nos.kill(os.getpid(), signal.SIGKILL)\n"
RAISES = 'raise ValueError("no such\\nlicence")\n'
PROBLEMS = {
    "killed": "its process ended with exit code -9",
    "raises": "ValueError: no such licence (",
    "empty": "AttributeError: module 'field_subject_empty' has no attribute 'make' (",
}


def tasks_of(folder: Path, **code: str) -> list[FieldTask]:
    """A task for each text of code, which is that of the module with its factory."""
    for name, text in code.items():
        (folder / f"field_subject_{name}.py").write_text(text, encoding="utf-8")
    return [FieldTask(name, "none", DEFAULTS, f"field_subject_{name}:make", f"code of {name}") for name in code]


def test_every_algorithm_is_checked_in_both_variants() -> None:
    tasks = algorithm_tasks()
    assert [(each.name, each.variant) for each in tasks] == [
        (each.name, variant) for each in ALGORITHMS for variant in (DEFAULTS, AWKWARD)
    ]
    assert len({each.factory for each in tasks}) == len(tasks) == 20
    for task in tasks:
        module, _, name = task.factory.partition(":")
        factory = getattr(import_module(module), name)
        assert task.source == inspect.getsource(factory).strip()


@pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")  # which is meant
def test_every_factory_makes_its_class_with_the_seed_that_it_is_given() -> None:
    for each in ALGORITHMS:
        for factory in (each.defaults, each.awkward):
            model = factory(3)
            assert (type(model).__name__, model.seed) == (each.name, 3)
            assert type(model).__module__.startswith(each.library.replace("-", "_"))


def test_every_optimizer_of_torch_is_checked_once() -> None:
    tasks = optimizer_tasks()
    names = [each.name for each in tasks]
    assert names == sorted(set(names))
    assert {"Adam", "AdamW", "LBFGS", "SGD", "SparseAdam"} < set(names)
    assert "Optimizer" not in names
    assert [each.factory for each in tasks] == [f"torch.optim:{name}" for name in names]
    assert all(issubclass(getattr(torch.optim, name), torch.optim.Optimizer) for name in names)


def test_names_choose_among_both_kinds() -> None:
    names = ["SGD", "PPO"]
    assert [(each.name, each.variant) for each in algorithm_tasks(names)] == [("PPO", DEFAULTS), ("PPO", AWKWARD)]
    assert [each.name for each in optimizer_tasks(names)] == ["SGD"]


def test_subjects_that_cannot_be_checked_are_problems_each_with_its_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = tasks_of(tmp_path, killed=KILLED, raises=RAISES, empty="")
    monkeypatch.setattr(measuring, "algorithm_tasks", lambda _names: tasks)
    monkeypatch.syspath_prepend(tmp_path)
    done: list[tuple[str, float]] = []
    report = measure(
        ["none"], executor=ProcessExecutor(1), on_done=lambda task, seconds: done.append((task.name, seconds))
    )
    assert {name for name, _ in done} == {*PROBLEMS}
    assert all(0 < seconds < 100 for _, seconds in done)
    assert [each.name for each in report.algorithms] == [*PROBLEMS]
    for subject in report.algorithms:
        assert (subject.variant, subject.factory) == (DEFAULTS, f"field_subject_{subject.name}:make")
        assert (subject.source, subject.records, subject.effects) == (f"code of {subject.name}", (), {})
        assert subject.problem.startswith(PROBLEMS[subject.name])
        assert "\n" not in subject.problem
    assert report.versions["torch"] == torch.__version__
    assert " ".join(report.versions) == "python stable-baselines3 sb3-contrib torch gymnasium numpy rlverify"
    assert report.constants == {
        "ROLLOUT": "{'n_steps': 64}",
        "OFF_POLICY": "{'learning_starts': 64, 'batch_size': 32, 'buffer_size': 4096}",
    }


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("import sys\nprint(' 1\\n2')\nprint('x', file=sys.stderr)", "1\n2"),
        ("raise ValueError('three')", "ValueError: three"),
        ("", "(nothing)"),
        ("import time\ntime.sleep(60)", "(did not end within 1 seconds)"),
        ("from pathlib import Path\nprint(list(Path().iterdir()))", "[]"),
    ],
)
def test_a_script_that_shows_a_finding_is_run_in_an_empty_folder(
    code: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "it.py").write_text(f"{code}\n", encoding="utf-8")
    monkeypatch.setattr(measuring, "_script", lambda check: tmp_path / f"{check}.py")
    monkeypatch.setattr(measuring, "SECONDS", 1.0 if "sleep" in code else 60.0)
    shown = measuring._shown("it")
    assert (shown.check, shown.code, shown.output) == ("it", code, output)


def test_an_effect_that_cannot_be_measured_loses_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = CheckRecord("PPO", "resume_is_exact", "resume", "high", CheckFinding(Status.FAIL))

    def diverges(_check: str, _make: object) -> None:
        raise ValueError("the parameters are NaN")

    monkeypatch.setattr(measuring, "check_algorithm", lambda *_, **__: [failed])
    monkeypatch.setattr(measuring, "effect_of", diverges)
    (task, _) = algorithm_tasks(["PPO"])
    subject = measuring._run(task)
    assert (subject.records, subject.effects) == ((failed,), {})
    assert subject.problem.startswith("the effect of resume_is_exact: ValueError: the parameters are NaN")
