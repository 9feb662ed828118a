"""Each check of each subject is a pytest test of its own: selected, distributed, skipped and expected to fail."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlverify.checks import parametrize_with_checks, subject
from rlverify.checks.engine.rule import RULES
from rlverify.checks.engine.rule_runs import UnknownRuleError
from tests.engine.checks.tiny_trainers import LearnStartsAgain, Tiny, TinyAdapter

ROOT = Path(__file__).parents[3]
FILE = """
import os
from rlverify.checks import Adapter, parametrize_with_checks, subject
from tests.engine.checks.tiny_trainers import ForgetsPlace, LearnStartsAgain, Tiny, TinyAdapter, Unseeded

def raises():
    raise ValueError("no model today")

class Learner(Adapter):
    def learn(self, model, steps):
        return model.learn(steps)

CHECKS = ["deterministic", "pieces_equal_whole", "targets_start_equal"]
own = {"adapter": TinyAdapter()}
del os.fork  # as on systems without it: ten times as fast

@parametrize_with_checks([
    subject(Tiny, name="clean", **own),
    subject(lambda: LearnStartsAgain(), name="bad", **own),
    subject(LearnStartsAgain, name="known", expected_failures={"pieces_equal_whole": "issue 7"}, **own),
    subject(Tiny, name="strict", expected_failures={"pieces_equal_whole": "issue 7"}, **own),
    subject(Unseeded, name="unseeded", **own),
    subject(Tiny, name="learner", adapter=Learner()),
    subject(raises, name="crash", expected_failures={"deterministic": "issue 8"}),
], checks=CHECKS)
def test_training(check):
    assert check().check in CHECKS
"""
EXPECTED = {
    "clean-deterministic": "PASSED",
    "clean-pieces_equal_whole": "PASSED",
    "clean-targets_start_equal": "PASSED",
    "bad-deterministic": "PASSED",
    "bad-pieces_equal_whole": "FAILED",
    "bad-targets_start_equal": "PASSED",
    "known-deterministic": "PASSED",
    "known-pieces_equal_whole": "XFAIL",
    "known-targets_start_equal": "PASSED",
    "strict-deterministic": "PASSED",
    "strict-pieces_equal_whole": "FAILED",
    "strict-targets_start_equal": "PASSED",
    "unseeded-deterministic": "FAILED",
    "unseeded-pieces_equal_whole": "SKIPPED",
    "unseeded-targets_start_equal": "PASSED",
    "learner-deterministic": "PASSED",
    "learner-pieces_equal_whole": "PASSED",
    "learner-targets_start_equal": "SKIPPED",
    "crash-deterministic": "FAILED",
    "crash-pieces_equal_whole": "FAILED",
    "crash-targets_start_equal": "FAILED",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "test_mine.py"
    path.write_text(FILE)
    return path


def run(file: Path, *options: str) -> str:
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-W", "error", "-p", "no:cacheprovider", "-v", "-rxs", *options, file],
        cwd=file.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "500", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
    )
    assert found.returncode in (0, 1), found.stdout + found.stderr
    return found.stdout


def outcomes(text: str) -> dict[str, str]:
    lines = re.findall(r"test_training\[(\S+)\] (PASSED|FAILED|SKIPPED|XFAIL|XPASS|ERROR)", text)
    workers = re.findall(r"(PASSED|FAILED|SKIPPED|XFAIL|XPASS|ERROR) \S*test_training\[(\S+)\]", text)
    return dict(lines) | {name: outcome for outcome, name in workers if "[gw" in text}


def test_every_outcome(file: Path) -> None:
    text = run(file)
    assert outcomes(text) == EXPECTED
    for part in (
        "(inconclusive: deterministic: fail, ",
        "(not applicable: the model has no target networks)",
        "(issue 7)",
        "bad: pieces_equal_whole: fail",
        "where: parameter Linear[0].weight",
        "pytest 'test_mine.py::test_training[bad-pieces_equal_whole]'",
        "strict: pieces_equal_whole: pass, proven by 1 fault, but a failure is expected",
        "expected failure: issue 7",
        "crash: deterministic: error",
        "seen: ValueError: no model today (",
    ):
        assert part in text
    assert "record_of(" not in text  # no traceback of ours
    assert "causes:" not in text


def test_an_option_lists_all_causes(file: Path) -> None:
    text = run(file, "--rlverify-all-causes", "-k", "bad and pieces_equal_whole")
    assert re.search(r"causes:\n +parameters\b", text.replace("\nE ", "\n"))


@pytest.mark.slow
def test_with_workers_and_a_selection(file: Path) -> None:
    found = outcomes(run(file, "-n", "2", "-k", "clean or known or pieces_equal_whole and bad"))
    assert found == {name: EXPECTED[name] for name in EXPECTED if name.startswith(("clean", "known", "bad-pieces"))}


def test_two_subjects_of_one_name_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"two subjects are named 'Tiny'; give each a name: subject\(\.\.\., name"):
        parametrize_with_checks([subject(Tiny), subject(LearnStartsAgain), subject(Tiny)])


@pytest.mark.parametrize("checks", [["unknown"], "unknown"])
def test_an_unknown_check_is_an_error_when_tests_are_collected(checks: list[str]) -> None:
    with pytest.raises(UnknownRuleError, match="no check is named 'unknown'"):
        parametrize_with_checks([subject(Tiny)], checks=checks)
    with pytest.raises(UnknownRuleError, match="no check is named 'unknown'"):
        parametrize_with_checks([subject(Tiny, expected_failures={"unknown": "a slip"})])


def ids(checks: object) -> list[str]:
    mark = parametrize_with_checks(
        [subject(Tiny, name="a", adapter=TinyAdapter()), subject(Tiny, name="b")],
        checks=checks,  # type: ignore[arg-type]
    )
    return [each.id for each in mark.args[1]]  # type: ignore[attr-defined]


def test_ids_are_those_of_subjects_and_checks() -> None:
    assert ids(iter(["deterministic", "settings_survive"])) == [
        "a-deterministic",
        "a-settings_survive",
        "b-deterministic",
        "b-settings_survive",
    ]
    assert ids(None) == [f"{name}-{rule}" for name in "ab" for rule in RULES]
    assert ids("deterministic") == ["a-deterministic", "b-deterministic"]


def test_the_tests_of_a_subject_share_what_they_rest_on(tmp_path: Path) -> None:
    noted = tmp_path / "made"

    def make() -> Tiny:
        with noted.open("a") as file:
            file.write(".")
        return Tiny()

    def models(*checks: str) -> list[int]:
        """How many models had been made after each test."""
        noted.write_text("")
        mark = parametrize_with_checks([subject(make, name="a", adapter=TinyAdapter())], checks=checks)
        return [each.values[0]() and len(noted.read_text()) for each in mark.args[1]]  # type: ignore[attr-defined]

    (alone,) = models("deterministic")
    before, after = models("pieces_equal_whole", "deterministic")
    assert after - before < alone - 1


@parametrize_with_checks([subject(Tiny, name="here", adapter=TinyAdapter())], checks=["deterministic"])
def test_the_check_returns_its_record(check) -> None:  # type: ignore[no-untyped-def]
    assert check().outcome == "pass, proven by 1 fault"


def test_a_factory_in_place_of_subjects_is_refused() -> None:
    with pytest.raises(TypeError, match=r"takes a list; write \[subject\(make\)\]"):
        parametrize_with_checks(lambda: None)  # type: ignore[arg-type]
