"""A document's conclusion is drawn again, and only from rules that hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlverify.reporting.report_data import ReportData
from rlverify.verdicts.verdict import Record
from tests.engine.reporting.records import CLAIM, FILES, MISFIT, NULL, measured, simple
from verification.pages.documents import Checklist, ChecklistItem, DocumentFacts, NamedTest

OPEN = "cannot be told, undecided or not measured"
GOOD = measured(simple(1), healthy=2, faulty=0)
CONTRADICTED = measured(simple(2), healthy=2, faulty=2)
REGRESSED = measured(simple(3), healthy=0, faulty=0)
MISSING = Record(simple(4), None)
UNMENDED = measured(replace(CLAIM, id="TOY-06"), healthy=2, faulty=0, documented_fix=0)
REFUTED = measured(simple(7, fault=None), healthy=0)
STALE = replace(measured(simple(5), healthy=2, faulty=0), misfits=(MISFIT,))


def conclude(*claims: str, met: bool = True, tests: str = "", outcomes: tuple[str, ...] = ()) -> tuple[str, str, str]:
    """The two answers to one criterion, and the conclusion from it alone."""
    item = ChecklistItem("criterion", "yes", met, ("002:374",), claims, tests)
    checklist = Checklist("READY-1", "Readiness", "ready", ("002:372",), (item,))
    named = tuple(NamedTest("002", "tests/a.py", f"test_{n}", outcome) for n, outcome in enumerate(outcomes))
    records = (GOOD, CONTRADICTED, REGRESSED, MISSING, STALE, UNMENDED, REFUTED)
    (result,) = DocumentFacts((checklist,), named or None).results(ReportData(records, files=FILES))
    (line,) = result.lines
    return line.described, line.in_core, result.conclusion


def test_all_hold_only_if_every_one_does() -> None:
    assert conclude("TOY-01") == (
        "holds",
        "holds",
        "As the document describes it, 1 of 1 criteria that it calls met hold. In this core, 1 of 1 criteria hold.",
    )


@pytest.mark.parametrize(
    ("claims", "described", "in_core"),
    [
        (("TOY-01", "TOY-02"), "falls: TOY-02", "holds"),
        (("TOY-03",), "holds", "falls: TOY-03"),
        (("TOY-01", "TOY-04"), f"{OPEN}: TOY-04", f"{OPEN}: TOY-04"),
        (("TOY-05",), f"{OPEN}: TOY-05", f"{OPEN}: TOY-05"),
        (("NOT-THERE",), f"{OPEN}: NOT-THERE", f"{OPEN}: NOT-THERE"),
        (("TOY-02", "TOY-04"), "falls: TOY-02", f"{OPEN}: TOY-04"),
    ],
)
def test_what_falls_and_what_cannot_be_told_is_named(claims: tuple[str, ...], described: str, in_core: str) -> None:
    found = conclude(*claims)
    assert found[:2] == (described, in_core)
    told = found[2].split("In this core, ")
    assert ["1 of 1" in part for part in told] == [described == "holds", in_core == "holds"]
    assert ["cannot be told" in part for part in told] == ["told" in described, "told" in in_core]


@pytest.mark.parametrize(
    ("claims", "described"),
    [
        (("TOY-01",), "found: TOY-01"),
        (("TOY-06",), "found: TOY-06"),  # its fix is no good
        (("TOY-02", "TOY-07"), "not found"),
        (("TOY-01", "TOY-02"), "found: TOY-01"),
        (("TOY-03",), f"{OPEN}: TOY-03"),  # of a regression nothing is known
        (("TOY-04",), f"{OPEN}: TOY-04"),
        ((), "not measured"),
    ],
)
def test_of_a_criterion_that_the_document_calls_unmet_it_is_told_whether_the_problem_was_found(
    claims: tuple[str, ...], described: str
) -> None:
    assert conclude(*claims, met=False)[0] == described


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


def test_what_cannot_be_run_is_a_rule_that_does_not_hold() -> None:
    assert conclude()[2] == (
        "As the document describes it, 0 of 1 criteria that it calls met hold; 1 cannot be told. "
        "In this core, 0 of 1 criteria hold; 1 cannot be told."
    )


def test_the_numbers_are_those_of_the_columns() -> None:
    items = tuple(
        ChecklistItem("criterion", "yes", met, ("002:374",), claims)
        for met, claims in ((True, ("TOY-01",)), (True, ("TOY-03",)), (False, ("TOY-01",)), (True, ()))
    )
    checklist = Checklist("READY-1", "Readiness", "ready", ("002:372",), items)
    (result,) = DocumentFacts((checklist,)).results(ReportData((GOOD, REGRESSED), files=FILES))
    assert [line.described for line in result.lines] == ["holds", "holds", "found: TOY-01", "not measured"]
    assert [line.in_core for line in result.lines] == ["holds", "falls: TOY-03", "holds", "not measured"]
    assert result.conclusion == (
        "As the document describes it, 2 of 3 criteria that it calls met hold; "
        "of 1 that it calls unmet the problem was found in 1; 1 cannot be told. "
        "In this core, 2 of 4 criteria hold; 1 cannot be told."
    )


def test_no_word_of_the_report_s_own_says_that_anything_is_ready() -> None:
    assert "ready" not in conclude("TOY-01")[2]


def test_other_claims_answer_for_the_core_where_they_are_named() -> None:
    item = ChecklistItem("criterion", "yes", True, ("002:374",), (REGRESSED.claim.id,), core_claims=(GOOD.claim.id,))
    checklist = Checklist("READY-1", "Readiness", "ready", ("002:372",), (item,))
    (result,) = DocumentFacts((checklist,)).results(ReportData((GOOD, REGRESSED), files=FILES))
    assert (result.lines[0].described, result.lines[0].in_core) == ("holds", "holds")


def test_a_null_fault_is_no_hole() -> None:
    null = measured(NULL, healthy=2, faulty=2)
    item = ChecklistItem("criterion", "yes", True, ("002:374",), ("NULL-1",))
    checklist = Checklist("READY-1", "Readiness", "ready", ("002:372",), (item,))
    (result,) = DocumentFacts((checklist,)).results(ReportData((null,), files=FILES))
    assert result.lines[0].described == "holds"
