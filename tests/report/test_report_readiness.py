"""A document's conclusion is drawn again, and only from rules that hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.report.records import FILES, NULL, measured, simple
from verification.errors import CatalogueError
from verification.readiness import load_checklists
from verification.report.book import Book, Checklist, Item, NamedTest
from verification.report.interface import Record
from verification.report.readiness import results

GOOD = measured(simple(1), healthy=2, faulty=0)
CONTRADICTED = measured(simple(2), healthy=2, faulty=2)
REGRESSED = measured(simple(3), healthy=0, faulty=0)
MISSING = Record(simple(4), None)
STALE = replace(measured(simple(5), healthy=2, faulty=0), misfits=("toy changed since",))


def conclude(*claims: str, met: bool = True, tests: str = "", outcomes: tuple[str, ...] = ()) -> tuple[str, str, str]:
    """The two answers to one criterion, and the conclusion from it alone."""
    item = Item("criterion", "yes", met, ("002:374",), claims, tests)
    checklist = Checklist("READY-1", "Readiness", "ready", ("002:372",), "ready to ship", (item,))
    named = tuple(NamedTest("002", "tests/a.py", f"test_{n}", outcome) for n, outcome in enumerate(outcomes))
    records = (GOOD, CONTRADICTED, REGRESSED, MISSING, STALE)
    (result,) = results(Book(records, files=FILES, checklists=(checklist,), tests=named or None))
    (line,) = result.lines
    return line.answer, line.in_core, result.conclusion


def test_it_is_ready_only_if_every_rule_holds() -> None:
    assert conclude("TOY-01") == (
        "stands",
        "holds",
        "What the document describes: ready to ship (1 of 1 criteria). This core: ready to ship (1 of 1 criteria).",
    )


@pytest.mark.parametrize(
    ("claims", "answer", "in_core"),
    [
        (("TOY-01", "TOY-02"), "falls: TOY-02", "holds"),
        (("TOY-03",), "stands", "falls: TOY-03"),
        (("TOY-01", "TOY-04"), "cannot be told, no evidence: TOY-04", "cannot be told, no evidence: TOY-04"),
        (("TOY-05",), "cannot be told, no evidence: TOY-05", "cannot be told, no evidence: TOY-05"),
        (("NOT-THERE",), "cannot be told, no evidence: NOT-THERE", "cannot be told, no evidence: NOT-THERE"),
        (("TOY-02", "TOY-04"), "falls: TOY-02", "cannot be told, no evidence: TOY-04"),
    ],
)
def test_what_falls_and_what_cannot_be_told_is_named(claims: tuple[str, ...], answer: str, in_core: str) -> None:
    found = conclude(*claims)
    assert found[:2] == (answer, in_core)
    assert ("What the document describes: not ready" in found[2]) is (answer != "stands")
    assert ("This core: not ready" in found[2]) is (in_core != "holds")
    told = found[2].split("This core: ")
    assert ["cannot be told here" in part for part in told] == ["told" in answer, "told" in in_core]


def test_a_criterion_that_the_document_calls_unmet_never_makes_it_ready() -> None:
    answer, in_core, conclusion = conclude("TOY-01", met=False)
    assert (answer, in_core) == ("stands", "holds")
    assert conclusion.startswith("What the document describes: not ready to ship (0 of 1 criteria). This core: ready")


@pytest.mark.parametrize(
    ("outcomes", "in_core"),
    [
        (("passed", "passed"), "holds"),
        (("passed", "failed"), "falls: 1 of 2 named tests pass"),
        (("passed", "skipped"), "falls: 1 of 2 named tests pass"),
        ((), "cannot be told, no outcome of the tests that document 002 names"),
    ],
)
def test_named_tests_answer_for_this_core_alone(outcomes: tuple[str, ...], in_core: str) -> None:
    assert conclude(tests="002", outcomes=outcomes)[:2] == ("not measured", in_core)


def test_what_cannot_be_run_is_a_criterion_that_is_not_met() -> None:
    assert conclude()[2] == (
        "What the document describes: not ready to ship (0 of 1 criteria, 1 cannot be told here). "
        "This core: not ready to ship (0 of 1 criteria, 1 cannot be told here)."
    )


def test_one_criterion_that_cannot_be_run_is_enough_not_to_be_ready() -> None:
    items = tuple(Item("criterion", "yes", True, ("002:374",), claims) for claims in ((GOOD.claim.id,), ()))
    checklist = Checklist("READY-1", "Readiness", "ready", ("002:372",), "ready", items)
    (result,) = results(Book((GOOD,), files=FILES, checklists=(checklist,)))
    assert result.conclusion.endswith("This core: not ready (1 of 2 criteria, 1 cannot be told here).")


def test_other_claims_answer_for_the_core_where_they_are_named() -> None:
    item = Item("criterion", "yes", True, ("002:374",), (REGRESSED.claim.id,), core_claims=(GOOD.claim.id,))
    checklist = Checklist("READY-1", "Readiness", "ready", ("002:372",), "ready", (item,))
    (result,) = results(Book((GOOD, REGRESSED), files=FILES, checklists=(checklist,)))
    assert (result.lines[0].answer, result.lines[0].in_core) == ("stands", "holds")


def test_a_null_fault_is_no_hole() -> None:
    null = measured(NULL, healthy=2, faulty=2)
    item = Item("criterion", "yes", True, ("002:374",), ("NULL-1",))
    checklist = Checklist("READY-1", "Readiness", "ready", ("002:372",), "ready", (item,))
    (result,) = results(Book((null,), files=FILES, checklists=(checklist,)))
    assert result.lines[0].answer == "stands"


RULES = """
[[checklist]]
id = "READY-1"
title = "Readiness"
documented = "ready"
cites = ["002:372-392"]
word = "ready"

[[checklist.item]]
item = "criterion"
documented = "yes"
met = true
cites = ["002:374"]
claims = ["BUG-01"]
"""


def test_rules_are_read(tmp_path: Path) -> None:
    (tmp_path / "readiness.toml").write_text(RULES, encoding="utf-8")
    (checklist,) = load_checklists(tmp_path)
    assert checklist.items == (Item("criterion", "yes", True, ("002:374",), ("BUG-01",)),)
    assert load_checklists(tmp_path / "none") == ()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("met = true\n", "", "checklist.0.item.0.met"),
        ('["002:374"]', '["002:9999"]', "has the lines 1 to"),
        ('claims = ["BUG-01"]', 'claim = ["BUG-01"]', "checklist.0.item.0.claim"),
        ('word = "ready"', "word = ", "cannot be read"),
    ],
)
def test_a_broken_rule_is_told_by_its_place(tmp_path: Path, old: str, new: str, told: str) -> None:
    (tmp_path / "readiness.toml").write_text(RULES.replace(old, new), encoding="utf-8")
    with pytest.raises(CatalogueError, match=r"readiness\.toml") as raised:
        load_checklists(tmp_path)
    assert told in str(raised.value)
