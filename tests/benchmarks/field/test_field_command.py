"""`python -m benchmarks.field` as a user meets it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks.field.__main__ import main
from benchmarks.field.page import render_field_report
from benchmarks.field.records import read_field_report
from rlverify.checks.engine.check_records import Status
from rlverify.running.executors import InlineExecutor


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
    assert (adam.name, adam.factory, adam.problem) == ("Adam", "torch.optim:Adam", "")
    status = {each.check: each.status for each in adam.records}
    assert status["state_dict_continues"] is status["learning_rate_zero_freezes"] is Status.PASS
    assert status["load_state_dict_copies"] is Status.FAIL
    assert Status.ERROR not in status.values()
    assert {each.subject for each in adam.records} == {"Adam"}
    first = page.read_text(encoding="utf-8")
    assert "| `load_state_dict_copies` | ✗ |\n" in first
    page.unlink()
    run("report", "--output", str(tmp_path / "new"), monkeypatch=monkeypatch)
    assert page.read_text(encoding="utf-8") == first


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
    assert (tmp_path / "field-report.md").read_text(encoding="utf-8") == render_field_report(report)


def test_an_unknown_name_is_an_error_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run("run", "SGD", "PPO2", "--output", str(tmp_path), monkeypatch=monkeypatch)
    assert "invalid choice: 'PPO2'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
