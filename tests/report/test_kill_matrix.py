"""The whole report of a toy matrix, as text."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from rlverify.project.content import open_project
from rlverify.records.matrix import FaultPlan, FaultResult, Matrix, NamedSuite, WeakTest, WeakTestResult
from rlverify.reporting.kill_matrix_page import false_alarm_rate, kill_matrix, kill_rate
from tests.report.records import CLAIM

OURS = open_project(Path(__file__).parents[2]).templates
CLAIMS = [replace(CLAIM, id="TOY-1", title="A state is forgotten")]
A, B, C = (f"tests/t.py::test_{name}" for name in "abc")
BUG = FaultPlan("forgets", "defect", ("TOY-1",), "state", (A, B), (A, B, C))
DIFF = "--- toy.State.restore, healthy\n+++ half-forgets\n@@ -1 +1 @@\n-    return all\n+    return half"
KILLED = FaultResult(BUG, "killed", True, (A,))
SURVIVED = FaultResult(replace(BUG, fault="half-forgets", kind="fix"), "survived", True, diff=DIFF)
UNREACHED = FaultResult(FaultPlan("unseen", "named", (), "scale", (), (C,)), "unreached", False)
NULL = FaultResult(FaultPlan("null-state", "null", ("NULL-1",), "state", (), (A, B)), "survived", True)
NEVER = FaultResult(FaultPlan("no-maximum", "never a bug", ("BUG-06",), "scale", (), (C,)), "survived", True, diff=DIFF)
ALARM = FaultResult(FaultPlan("null-scale", "null", ("NULL-2",), "scale", (), (C,)), "killed", True, (C,))
HISTORY = (
    WeakTestResult(
        WeakTest("w/equal.py::test_equal", "forgets", "002, Bug #1", "sees | nothing"), "passed", "passed", True
    ),
    WeakTestResult(WeakTest("w/early.py::test_early", "forgets", "002", "too early"), "passed", "passed", False),
    WeakTestResult(WeakTest("w/skip.py::test_skip", "forgets", "002", "never runs"), "skipped", "skipped", False),
    WeakTestResult(
        WeakTest("w/script.py", "unseen", "002", "no test"), "nothing collected", "nothing collected", False
    ),
    WeakTestResult(WeakTest("w/good.py::test_good", "forgets", "002", "none"), "passed", "failed", True),
)
MATRIX = Matrix(
    "core",
    (KILLED, SURVIVED, UNREACHED, NULL, NEVER, ALARM),
    {A: "passed", B: "passed", C: "passed"},
    (NamedSuite("002", "tests/t.py", (A, B)),),
    HISTORY,
)
GOOD = replace(MATRIX, rows=(replace(KILLED, killers=(A, B)), NULL, NEVER), history=HISTORY[:1])


@pytest.mark.parametrize("matrix", [MATRIX, GOOD], ids=["trouble", "as-expected"])
def test_the_whole_report(matrix: Matrix, snapshot: SnapshotAssertion) -> None:
    assert kill_matrix(matrix, CLAIMS) == snapshot


def test_rates_stand_side_by_side() -> None:
    assert (str(kill_rate(MATRIX)), str(false_alarm_rate(MATRIX))) == ("33.3 %", "33.3 %")
    assert (kill_rate(MATRIX).noticed, kill_rate(MATRIX).of) == (1, 3)
    assert str(kill_rate(replace(MATRIX, rows=()))) == "-"


def test_a_fault_in_two_roles_is_two_rows_and_one_fault() -> None:
    again = FaultResult(replace(BUG, kind="fix", claims=("TOY-2",)), "killed", True, (A,))
    both = replace(GOOD, rows=(*GOOD.rows, again))
    rate = kill_rate(both)
    assert (rate.of, rate.faults, rate.noticed) == (2, 1, 2)
    text = kill_matrix(both, CLAIMS)
    assert "| kill rate: what must be detected | 2 | 1 | 2 | 100.0 % |" in text
    assert "Counted in two rows, as the bug of one claim and the documented fix of another: `forgets`." in text
    assert "Counted in two rows" not in kill_matrix(GOOD, CLAIMS)
    assert "what must not (1 null faults, 1 bugs that never were) | 2 | 2 | 0 | 0.0 % |" in text


def test_survivors_come_before_all_that_is_as_it_should_be() -> None:
    text = kill_matrix(MATRIX, CLAIMS)
    order = ["### half-forgets", "### unseen", "## Checks that stayed silent", "## What must survive", "## Faults and"]
    assert [text.index(each) for each in order] == sorted(text.index(each) for each in order)
    assert "None: each of" not in text
    assert "None: what each of the 1 rows plants is detected." in kill_matrix(GOOD, CLAIMS)


def test_the_checks_of_a_survivor_are_not_listed_again_as_silent() -> None:
    lost = replace(MATRIX, rows=(replace(KILLED, fate="survived", killers=()),), history=())
    assert "## Checks that stayed silent" not in kill_matrix(lost, CLAIMS)


def test_a_survivor_is_shown_with_what_was_planted_and_who_should_have_noticed() -> None:
    section = kill_matrix(MATRIX, CLAIMS).partition("### half-forgets")[2].partition("### unseen")[0]
    assert f"```diff\n{DIFF}\n```" in section
    assert f"Expected to detect it: `{A}`, `{B}`." in section


@pytest.mark.parametrize("templates", [None, OURS], ids=["engine", "this repository"])
def test_weak_tests_are_listed_with_their_outcome(templates: Path | None) -> None:
    text = kill_matrix(MATRIX, CLAIMS, templates)
    table = text.partition("| weak test |")[2].partition("## Faults")[0].splitlines()[2:]
    rows = {line.split("`")[1]: line.split(" | ")[3] for line in table if line}
    assert rows == {
        "test_equal": "misses: it passes",
        "test_early": "misses: it passes without running the fault",
        "test_skip": "misses: it is skipped",
        "script.py": "misses: it is not even collected",
        "test_good": "detects it: it fails",
    }
    assert "4 of these 5 miss" in text
    assert "| no test | **none** |" in text


def test_this_repository_names_the_faults_that_no_test_of_its_own_detects() -> None:
    told = kill_matrix(MATRIX, CLAIMS, OURS, ".venv/bin/rlverify")
    assert re.search(r"\*\*[^*`\n]*`unseen`\*\*", told)
    assert "`unseen`**" not in kill_matrix(GOOD, CLAIMS, OURS)
    assert "tests/mutation/survivors.toml" in told
    assert told.startswith("<!-- Generated by `.venv/bin/rlverify matrix --update`")
    assert "1 of these 1 miss" in kill_matrix(GOOD, CLAIMS, OURS)
