"""Suites in `rlverify check` and `rlverify gate`: alone in a project, and next to the claims of a catalogue."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rlverify.cli.app import run
from tests.engine.checkouts import commit, git
from tests.engine.in_process import measured_here
from tests.engine.project_folders import write_settings, write_toy_tests

Command = Callable[..., tuple[int, str, str]]

SUITE = """\
import torch

from rlverify.checks import Adapter, Suite, checks, faults


class Learner:
    def __init__(self):
        self.net = torch.nn.Linear(2, 1)
        self.average = 0.0

    def learn(self, steps):
        self.average = 0.9 * self.average + 0.1


class Saving(Adapter):
    def save(self, model, folder):
        torch.save((model.net.state_dict(), model.average), folder / "state.pt")

    def load(self, folder, fresh):
        state, average = torch.load(folder / "state.pt", weights_only=True)
        fresh.net.load_state_dict(state)
        fresh.average = SAVED
        return fresh


suite = Suite("learner", lambda seed: Learner(), adapter=Saving())
suite.add(checks.save_load(state=["average"]))
suite.claim("L-01", "The average survives load()", check="save_load", fault=faults.forget("average"))
"""


def write_suite(folder: Path, number: int, saved: str = "average") -> str:
    """A suite in a module of its own; the name of the suite."""
    code = SUITE.replace("SAVED", saved).replace("NUMBER", str(number))
    (folder / f"suite_{number}.py").write_text(code, encoding="utf-8")
    return f"suite_{number}:suite"


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command in the folder, all in this process: exit code, output, errors."""
    monkeypatch.delattr(os, "fork")

    def started(*arguments: str) -> tuple[int, str, str]:
        code = run(["--project", str(tmp_path), *measured_here(arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return started


def write_alone(folder: Path, value: str) -> None:
    (folder / "pyproject.toml").write_text(f"[tool.rlverify]\nsuites = {value}\n", encoding="utf-8")


def test_check_runs_a_suite_and_chooses_of_its_checks(command: Command, tmp_path: Path) -> None:
    name = write_suite(tmp_path, 1)
    code, output, _ = command("check", name, "--json", "-")
    assert code == 0
    (subject,) = json.loads(output)["subjects"]
    assert [each["check"] for each in subject["checks"]] == ["save_load", "L-01"]
    code, output, _ = command("check", name, "--check", "L-01", "--json", "-")
    assert [each["check"] for each in json.loads(output)["subjects"][0]["checks"]] == ["L-01"]


def test_a_check_that_the_suite_does_not_have_is_refused(command: Command, tmp_path: Path) -> None:
    code, _, errors = command("check", write_suite(tmp_path, 2), "--check", "L-02")
    assert code == 2
    assert "no check is named 'L-02'" in errors
    assert "L-01" in errors


def test_sarif_has_the_rules_of_the_suite(command: Command, tmp_path: Path) -> None:
    code, _, _ = command("check", write_suite(tmp_path, 3, "0.0"), "--sarif", str(tmp_path / "found.sarif"))
    (ran,) = json.loads((tmp_path / "found.sarif").read_text())["runs"]
    assert code == 1
    assert [each["id"] for each in ran["tool"]["driver"]["rules"]] == ["save_load", "L-01"]


@pytest.mark.parametrize(("number", "saved", "code"), [(4, "average", 0), (5, "0.0", 1)])
def test_the_gate_of_a_project_with_suites_alone(
    number: int, saved: str, code: int, command: Command, tmp_path: Path
) -> None:
    write_alone(tmp_path, f'["{write_suite(tmp_path, number, saved)}"]')
    found, output, _ = command("gate")
    assert found == code
    assert "2 checks: " in output


@pytest.mark.parametrize(
    ("number", "saved", "head", "row"),
    [
        (11, "average", "# rlverify: as expected", "| learner | L-01 | pass: proven by 1 fault |"),
        (12, "0.0", "# rlverify: failed", "| learner | L-01 | fail: average differs after the load |"),
    ],
)
def test_the_summary_of_suites_alone_has_every_check(
    number: int, saved: str, head: str, row: str, command: Command, tmp_path: Path
) -> None:
    write_alone(tmp_path, f'["{write_suite(tmp_path, number, saved)}"]')
    (tmp_path / "step.md").write_text("# another step\n")
    command("gate", "--summary", str(tmp_path / "step.md"))
    another, first, *lines = (tmp_path / "step.md").read_text().splitlines()
    assert (another, first) == ("# another step", head)
    assert row in lines


def test_a_mistake_in_a_suite_is_found_before_anything_is_measured(command: Command, tmp_path: Path) -> None:
    toy_with_suite(tmp_path, 13, "average")
    (tmp_path / "suite_13.py").write_text("raise KeyError('mistake')\n")
    code, output, errors = command("gate")
    assert (code, output) == (2, "")
    assert "importing suite_13 raises KeyError: 'mistake'" in errors
    assert not (tmp_path / ".rlverify").exists()


@pytest.mark.parametrize("value", ['"suite"', "[]", "[1]", '[""]'])
def test_suites_that_are_no_list_of_texts_are_refused(value: str, command: Command, tmp_path: Path) -> None:
    write_alone(tmp_path, value)
    code, _, errors = command("gate")
    assert code == 2
    assert "suites" in errors
    assert "must be a list of texts" in errors


def test_a_suite_that_is_not_there_is_refused(command: Command, tmp_path: Path) -> None:
    write_alone(tmp_path, '["suite_0:suite"]')
    code, _, errors = command("gate")
    assert code == 2
    assert "there is no module 'suite_0'" in errors


def toy_with_suite(folder: Path, number: int, saved: str) -> None:
    """The toy project with a suite, measured, in a Git repository."""
    name = write_suite(folder, number, saved)
    write_toy_tests(write_settings(folder, "toyproject", suites=[name]))
    git(folder, "init", "--quiet")
    commit(folder, "toy")


def test_the_gate_has_what_falls_in_a_suite_next_to_what_falls_in_the_catalogue(
    command: Command, tmp_path: Path
) -> None:
    toy_with_suite(tmp_path, 6, "0.0")
    code, output, errors = command("gate")
    assert code != 0
    assert (
        "learner: save_load: fail: average differs after the load; expected: average is the same after a save"
        in output + errors
    )
    assert "`rlverify check suite_6:suite --check save_load` repeats it" in output + errors


def test_junit_has_every_check_of_a_suite_under_its_name(command: Command, tmp_path: Path) -> None:
    toy_with_suite(tmp_path, 9, "0.0")
    command("gate", "--junit", str(tmp_path / "junit.xml"))
    suites = ElementTree.parse(tmp_path / "junit.xml").findall("testsuite")
    (learner,) = (each for each in suites if each.get("name") == "learner")
    cases = {case.get("name"): [each.tag for each in case] for case in learner}
    assert cases == {"save_load": ["failure"], "L-01": ["failure"]}
    others = [case.get("name") for each in suites if each is not learner for case in each]
    assert not any("save_load" in str(name) for name in others)


def test_junit_has_the_checks_of_a_suite_that_passed(command: Command, tmp_path: Path) -> None:
    toy_with_suite(tmp_path, 10, "average")
    command("gate", "--junit", str(tmp_path / "junit.xml"))
    suites = ElementTree.parse(tmp_path / "junit.xml").findall("testsuite")
    (learner,) = (each for each in suites if each.get("name") == "learner")
    assert [case.get("name") for case in learner] == ["save_load", "L-01"]
    assert learner.get("failures") == "0"


def test_a_gate_of_some_claims_runs_no_suite(command: Command, tmp_path: Path) -> None:
    toy_with_suite(tmp_path, 7, "0.0")
    _, output, errors = command("gate", "TOY-01")
    assert "learner" not in output + errors
