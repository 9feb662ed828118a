"""The same records for programs: JSON, JUnit, and the summary of a step."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from syrupy.assertion import SnapshotAssertion

from rlverify.records.problems import Problem
from rlverify.reporting.formats import FORMATS, junit_of_run, summary_of_run, table_of
from rlverify.reporting.outcome import Outcome
from rlverify.verdicts.verdict import ClaimStatus, Record, status_of
from tests.engine.reporting.records import MISFIT, NULL, figure, measured, records, simple

STALE_FIGURE = replace(figure(-2.0, 3.0), misfits=("measured in 8 runs, the claim asks for 24",))


def of(found: Iterable[Record]) -> Outcome:
    """The outcome of a run that found nothing wrong with these records."""
    given = tuple(found)
    return Outcome(given, (), seconds={record.claim.id: 0.0 for record in given})


def test_every_format_ends_its_text_with_a_newline() -> None:
    assert set(FORMATS) == {"json", "junit", "step-summary"}
    assert all(each(of(records())).endswith("\n") and each(of([])).endswith("\n") for each in FORMATS.values())


def test_the_whole_table(snapshot: SnapshotAssertion) -> None:
    assert table_of([*records(), STALE_FIGURE]) == snapshot


def test_the_json_report_holds_what_the_records_hold() -> None:
    report = json.loads(FORMATS["json"](of(records())))
    content = report["claims"]
    assert report["schema_version"] == 1
    assert [each["claim"]["id"] for each in content] == [record.claim.id for record in records()]
    assert [each["verdict"] for each in content] == [
        "CONFIRMED", "CONFIRMED", None, "REFUTED", "CONFIRMED", "NOT REPRODUCED", "CONFIRMED", "NOT REPRODUCED",
        "STALE", "REGRESSED", "STALE",
    ]  # fmt: skip
    assert [each["as_expected"] for each in content] == [
        True, False, False, True, True, True, False, True, False, False, False,
    ]  # fmt: skip
    assert [each["contradicts_document"] for each in content] == [
        False, True, False, True, False, False, False, False, False, False, False,
    ]  # fmt: skip
    assert content[8]["fix_grade"] is None
    assert content[8]["misfits"] == [MISFIT, "the <symptoms> too"]
    assert content[1]["fix_grade"] == "NO EFFECT"
    assert content[1]["evidence"]["seeds"] == [0, 1]
    assert [each["variant"] for each in content[1]["evidence"]["variants"]] == ["healthy", "faulty", "documented_fix"]
    assert content[2]["evidence"] is None
    (shown,) = json.loads(FORMATS["json"](of([figure(17.0, 23.0)])))["claims"]
    assert shown["evidence"]["figure"].items() >= {"values": [17.0, 23.0] * 12, "low": 17.0, "high": 23.0}.items()


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (measured(simple(1), healthy=2, faulty=0), ClaimStatus.PASSED),
        (measured(simple(1), healthy=2, faulty=2), ClaimStatus.FAILED),
        (measured(simple(1), healthy=1, faulty=0), ClaimStatus.ERROR),
        (Record(simple(1), None), ClaimStatus.ERROR),
        (replace(measured(simple(1), healthy=2, faulty=0), misfits=("changed",)), ClaimStatus.ERROR),
        (figure(17.0, 23.0), ClaimStatus.PASSED),
        (figure(-2.0, 3.0), ClaimStatus.FAILED),
        (figure(10.0, 20.0), ClaimStatus.SET_ASIDE),
        (STALE_FIGURE, ClaimStatus.ERROR),
    ],
)
def test_what_a_record_counts_as(record: Record, expected: ClaimStatus) -> None:
    assert status_of(record) is expected


def test_junit_can_be_read_whatever_a_claim_says() -> None:
    odd = measured(simple(1, title="bell \x07, nul \x00, half \ud800", statement="<&>]]>"), healthy=2, faulty=2)
    text = junit_of_run(of([odd]))
    (case,) = ElementTree.fromstring(text.encode("utf-8")).iter("testcase")
    assert case.attrib["name"] == "TOY-01 bell \ufffd, nul \ufffd, half \ufffd"


def test_failures_come_first_in_a_step_summary_and_then_what_speaks_against_a_document() -> None:
    rows = [line.split("|")[1].strip() for line in table_of(records()).splitlines()[6:]]
    assert rows[:6] == ["TOY-03", "TOY-06", "NULL-4", "TOY-01", "NULL-2", "TOY-07"]
    assert rows[6] == "TOY-04"


def many(number: int) -> list[Record]:
    passed = [measured(simple(1, id=f"TOY-{n}", title="ü" * 200), healthy=2, faulty=0) for n in range(number)]
    return [*passed, measured(simple(2, id="WORST-1"), healthy=2, faulty=2)]


def test_a_claim_that_fell_by_its_values_counts_as_failed() -> None:
    found = [measured(simple(number), healthy=2, faulty=0) for number in (1, 2)]
    assert all(record.as_expected for record in found)
    _, _, head, _, _, _, *rows = table_of(found, {"TOY-02": "CONFIRMED, other values"}).splitlines()
    assert head == "2 claims: 1 failed, 1 passed. 0 contradict a document."
    assert rows[0].startswith("| TOY-02 | CONFIRMED, other values |")


def test_a_claim_that_fell_as_its_probe_crashed_counts_as_failed_as_in_junit() -> None:
    found = [Record(simple(1), None)]
    assert "\n1 claim: 1 failed. " in table_of(found, {"TOY-01": "ERROR (expected CONFIRMED)"})
    assert "\n1 claim: 1 error. " in table_of(found)


def test_a_claim_with_a_problem_of_its_own_counts_as_failed_as_in_junit() -> None:
    unwritten = Problem("TOY-01", 1, "names no test that detects its fault")
    found = Outcome((measured(simple(1), healthy=2, faulty=0),), (unwritten,), seconds={"TOY-01": 1.0})
    assert "\n1 claim: 1 failed. " in summary_of_run(found)
    assert "| TOY-01 | names no test that detects its fault |" in summary_of_run(found)
    assert 'failures="1"' in junit_of_run(found)


def test_a_null_fault_is_a_claim_too() -> None:
    assert "| NULL-1 |" in table_of([measured(NULL, healthy=2, faulty=2)])
