"""The whole report of a toy catalogue, as text."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion

from verification.model import Claim, Evidence, FixGrade, Kind, SymptomEvidence, Variant, VariantEvidence, Verdict
from verification.report.interface import Format, Record
from verification.report.json import JsonReport
from verification.report.markdown import MarkdownReport, cell

CLAIM = Claim(
    id="TOY-01",
    title="a | b <c>",
    kind="defect",
    area="state",
    document="002_toy",
    section="Bug 1",
    statement="Restoring forgets the count.",
    if_true="the count is 0 after restoring",
    documented_status="fixed",
    expected_verdict=Verdict.CONFIRMED,
    probe="restore",
    modules=("toy",),
    seeds=(0, 1),
    fault="forgets",
    documented_fix="remembers",
    fix_statement="The state is read.",
    expected_fix_grade=FixGrade.CURED,
    root_cause="the state is not read",
    severity="critical",
    killed_by=("tests/a.py::test_a", "tests/b.py::test_b"),
)
NULL = replace(
    CLAIM, id="NULL-1", title="null", kind="null", expected_verdict=Verdict.NOT_REPRODUCED, documented_fix=None,
    fix_statement="", expected_fix_grade=None,
)  # fmt: skip


def _variant(name: Variant, held: int) -> VariantEvidence:
    symptoms = (
        SymptomEvidence("count | all", held, 2, "320", "320" if held == 2 else "0"),
        SymptomEvidence("ema", 2, 2, None, None),
    )
    return VariantEvidence(name, 2, held, None if name == "healthy" else True, symptoms)


def _record(claim: Claim, **held: int) -> Record:
    variants = tuple(_variant(name, held[name]) for name in ("healthy", "faulty", "documented_fix") if name in held)
    return Record(claim, Evidence(claim.id, "abc", (("toy", "def"),), claim.seeds, variants))


def _simple(number: int, **changes: object) -> Claim:
    plain = {
        "title": f"claim {number}",
        "documented_fix": None,
        "fix_statement": "",
        "expected_fix_grade": None,
        **changes,
    }
    return replace(CLAIM, id=f"TOY-0{number}", **plain)  # type: ignore[arg-type]


@pytest.fixture
def records() -> list[Record]:
    refuted = _simple(4, kind="assurance", fault=None, expected_verdict=Verdict.REFUTED, killed_by=(), severity="")
    stale = _record(replace(CLAIM, id="TOY-06", title="claim 6"), healthy=2, faulty=0, documented_fix=2)
    return [
        _record(_simple(2), healthy=2, faulty=0),
        _record(CLAIM, healthy=2, faulty=0, documented_fix=0),
        Record(_simple(3), None),
        _record(refuted, healthy=0),
        _record(replace(CLAIM, id="TOY-05", title="claim 5"), healthy=2, faulty=0, documented_fix=2),
        _record(NULL, healthy=2, faulty=2),
        _record(replace(NULL, id="NULL-2"), healthy=2, faulty=0),
        _record(replace(NULL, id="NULL-3"), healthy=2, faulty=2),
        replace(stale, misfits=("toy changed since", "the <seeds> too")),
        _record(replace(CLAIM, id="TOY-07", title="claim 7"), healthy=0, faulty=0, documented_fix=0),
        replace(_record(replace(NULL, id="NULL-4"), healthy=2, faulty=2), misfits=("toy changed since",)),
    ]


def test_the_whole_report(records: list[Record], snapshot: SnapshotAssertion) -> None:
    assert MarkdownReport().format(records) == snapshot


def test_the_report_of_nothing_can_be_read() -> None:
    text = MarkdownReport().format([])
    assert "0 claims: 0 as expected" in text
    assert "False alarms: 0 of 0" in text


@pytest.mark.parametrize(
    ("against", "kind", "faulty", "contradicts"),
    [(False, "finding", 0, False), (True, "finding", 0, True), (True, "finding", 2, False), (False, "defect", 2, True)],
)
def test_a_finding_speaks_against_a_document_where_its_claim_says_so(
    against: bool, kind: Kind, faulty: int, contradicts: bool
) -> None:
    record = _record(_simple(8, kind=kind, against_document=against), healthy=2, faulty=faulty)
    assert record.contradicts_document is contradicts
    assert f"{int(contradicts)} where what a document" in MarkdownReport().format([record])


def test_a_finding_is_not_called_a_document_s() -> None:
    finding = _record(_simple(8, kind="finding", document="findings", section="seen elsewhere"), healthy=2, faulty=0)
    text = MarkdownReport().format([finding])
    assert "- Source: a finding of our own, seen elsewhere; the documents say: fixed" in text
    assert "document findings" not in text


def test_a_claim_that_contradicts_its_document_comes_first(records: list[Record]) -> None:
    text = MarkdownReport().format(records)
    headings = [line.split(":")[0] for line in text.splitlines() if line.startswith("## TOY")]
    assert headings == ["## TOY-01", "## TOY-04", "## TOY-02", "## TOY-03", "## TOY-05", "## TOY-06", "## TOY-07"]


def test_every_row_has_the_cells_of_its_heading(records: list[Record]) -> None:
    for block in MarkdownReport().format(records).split("\n\n"):
        rows = [line.replace("\\|", "") for line in block.splitlines() if line.startswith("|")]
        assert len({row.count("|") for row in rows}) <= 1, block


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", "a\\|b"),
        ("a\\|b", "a\\\\\\|b"),
        ("a\nb", "a<br>b"),
        ("<class 'x'>", "&lt;class 'x'>"),
        ("&lt;", "&amp;lt;"),
        ("", "(empty)"),
    ],
)
def test_a_text_stays_inside_its_cell(text: str, shown: str) -> None:
    assert cell(text) == shown


def test_the_json_report_holds_what_the_records_hold(records: list[Record]) -> None:
    formats: tuple[Format, ...] = (JsonReport(), MarkdownReport())
    content = json.loads(formats[0].format(records))
    assert [each["claim"]["id"] for each in content] == [record.claim.id for record in records]
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
    assert content[8]["misfits"] == ["toy changed since", "the <seeds> too"]
    assert content[1]["fix_grade"] == "NO EFFECT"
    assert content[1]["evidence"]["module_digests"] == {"toy": "def"}
    assert content[2]["evidence"] is None
