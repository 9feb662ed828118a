"""What random mutations of the core are tried, and what their outcomes amount to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.meta.mutation_operators import compiles
from tests.meta.random_mutations import ROOT, Trial, draw, forget_function, summary

SOURCE = """LIMIT = 1


def count(items):
    return len(items) + 1


def other(items):
    return items == [2]
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A core of one module."""
    (tmp_path / "rlcore").mkdir()
    (tmp_path / "rlcore" / "a.py").write_text(SOURCE)
    return tmp_path


def test_a_seed_always_draws_the_same_mutations_and_another_seed_others(repository: Path) -> None:
    assert draw(0, 10, repository) == draw(0, 10, repository) != draw(1, 10, repository)


def test_mutations_of_every_kind_are_drawn_everywhere_and_all_of_them_are_python(repository: Path) -> None:
    drawn = draw(0, 60, repository)
    assert {each.mutation.kind for each in drawn} == {"arithmetic", "comparison", "constant", "return", "statement"}
    assert {each.mutation.line for each in drawn} == {1, 5, 9}
    assert {each.path for each in drawn} == {Path("rlcore/a.py")}
    assert all(compiles(each.mutation.apply(SOURCE.encode())) for each in drawn)


def test_mutations_of_one_function_leave_the_others_alone() -> None:
    lines = (ROOT / "rlcore/functional/clipping.py").read_text(encoding="utf-8").splitlines()
    first, after = (lines.index(each) + 1 for each in lines if each.startswith("def "))
    drawn = draw(0, 20, only="rlcore.functional.clipping:clipped_surrogate")
    assert {each.path for each in drawn} == {Path("rlcore/functional/clipping.py")}
    assert all(first < each.mutation.line < after for each in drawn)


def test_a_forgotten_function_is_in_no_record_and_all_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "digests.json"
    groups = {"a": [{"functions": "f g", "claims": "C-1"}, {"functions": "g"}], "b": [{"functions": "g"}]}
    path.write_text(json.dumps({"executed": groups, "files": {}}))
    forget_function(path, "a:g")
    left = {"a": [{"functions": "f", "claims": "C-1"}, {"functions": ""}], "b": [{"functions": "g"}]}
    assert json.loads(path.read_text()) == {"executed": left, "files": {}}


def measured(name: str, *, is_selected: bool, same: bool, verdict: str = "CONFIRMED") -> dict[str, Any]:
    return {"id": name, "is_selected": is_selected, "same_evidence": same, "was": "CONFIRMED", "verdict": verdict}


def trial(*found: dict[str, Any], expected: int) -> Trial:
    return Trial("a.py line 1", False, claims=9, selected=3, expected=expected, measured=found)


def test_only_a_claim_that_is_not_selected_and_changes_is_a_counterexample() -> None:
    quiet, changed = measured("A", is_selected=False, same=True), measured("B", is_selected=True, same=False)
    assert trial(quiet, changed, expected=1).counterexamples == []
    (said,) = trial(quiet, measured("C", is_selected=False, same=False), expected=2).counterexamples
    assert said == "a.py line 1: C is not selected, and its evidence changes (CONFIRMED -> CONFIRMED)"


def test_a_claim_that_is_not_selected_and_kills_the_process_is_a_counterexample() -> None:
    (said,) = trial(measured("A", is_selected=False, same=True), expected=2).counterexamples
    assert said == "a.py line 1: only 1 of 2 claims that are not selected could be measured"


def test_the_summary_counts_mutations_claims_and_counterexamples() -> None:
    trials = [
        trial(
            measured("A", is_selected=False, same=False),
            measured("B", is_selected=True, same=False),
            measured("C", is_selected=True, same=False, verdict="ERROR"),
            expected=1,
        ),
        Trial("b", True, claims=9, selected=9),
        Trial("c", True, stopped="NameError"),
    ]
    assert summary(trials).splitlines() == [
        "mutations: 3, of which 2 are outside of functions",
        "stopped by the import of the project: 1",
        "selecting all claims: 1",
        "selected claims: median 6, largest 9",
        "unselected claims measured: 1, other evidence: 1",
        "selected claims measured: 2, other evidence: 2, other verdict: 1",
        "counterexamples: 1",
    ]
