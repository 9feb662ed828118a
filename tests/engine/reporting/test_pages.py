"""The pages of this project, and those that every project has, of toy claims."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from rlverify.records.claims import Basis, ClaimKind, DocumentGives, Verdict
from rlverify.records.measured import SymptomEvidence, VariantEvidence
from rlverify.reporting.phrasing import cell, difference, prose
from rlverify.reporting.rendering import render_all
from rlverify.verdicts.verdict import Record
from tests.engine.reporting.records import CLAIM, data, data_of, figure, measured, simple

PAGES = (
    "action-plan.md",
    "all-claims.md",
    "bug-report.md",
    "contradictions.md",
    "findings.md",
    "fix-summary.md",
    "index.md",
    "integration-analysis.md",
    "potential-problems.md",
    "ppo-verification.md",
    "wrong-statements.md",
)
OF_DOCUMENTS = (
    "bug-report.md",
    "fix-summary.md",
    "integration-analysis.md",
    "potential-problems.md",
    "ppo-verification.md",
)


LOST = "count | all: 0, expected 320"


def page(name: str, *found: Record) -> str:
    return render_all(data_of(found))[name]


@pytest.mark.parametrize("name", PAGES)
def test_the_whole_page(name: str, snapshot: SnapshotAssertion) -> None:
    assert render_all(data())[name] == snapshot


def test_the_pages_are_these_and_the_plots() -> None:
    assert set(render_all(data())) == {*PAGES, "plots/four-variances.svg"}


@pytest.mark.parametrize("name", OF_DOCUMENTS)
def test_a_page_without_claims_is_a_hole_that_says_so(name: str) -> None:
    assert "**Missing: the catalogue holds no claim of document 00" in render_all(data_of())[name]


def test_the_index_of_nothing_can_be_read() -> None:
    text = render_all(data_of())["index.md"]
    assert "- Bugs: 0 distinct faults do harm if they are planted. `rlcore` has none of them" in text
    assert text.count("\nNone.\n") == 2


def test_distinct_faults_that_do_harm_are_counted_by_severity_and_by_who_states_them() -> None:
    stated = measured(simple(2, assessed="critical"), healthy=2, faulty=0)
    again = measured(simple(3, assessed="low", fault=stated.claim.fault), healthy=2, faulty=0)
    harmless = measured(simple(5, assessed="none"), healthy=2, faulty=0)
    found = measured(simple(4, kind="finding", assessed="critical"), healthy=2, faulty=0)
    reported = measured(simple(6, kind="finding", assessed="critical", basis="reported"), healthy=2, faulty=0)
    index = render_all(data_of((reported, stated, again, harmless, found)))["index.md"]
    assert "- Bugs: 3 distinct faults do harm if they are planted: 3 critical. Documents state 1 of them" in index
    assert "cannot be checked, so their confidence is low." in index
    assert "Critical too, but only reported: [TOY-06](" in index
    assert re.findall(r"^\d\. \*\*\[(TOY-\d+)\]", index, re.MULTILINE) == ["TOY-02", "TOY-04", "TOY-06"]
    assert "confidence low. Reported by the original project, and not checkable here." in index


def test_the_index_says_at_which_settings_a_headline_was_measured_and_which_bugs_changed_a_training_run() -> None:
    bug = measured(simple(2, settings="alpha = 1."), healthy=2, faulty=0)
    other = measured(simple(3), healthy=2, faulty=0)
    effects = {bug.claim.id: "- x: -33 %, more than chance", other.claim.id: "- x: -3 %, no more than chance"}
    index = render_all(data_of((bug, other), facts={"remarks": effects}))["index.md"]
    assert index.count("](bug-report.md#toy-02): alpha = 1.\n") == 1
    assert "only [TOY-02](bug-report.md#toy-02) changed episodes by more than chance)" in index


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"basis": "code"}, "For 1 of the 1 statements the verdict is direct"),
        ({"basis": "code"}, "0 were tried under several conditions, and for 0 more an argument"),
        ({"basis": "code", "invariant": "none matters"}, "under several conditions, and for 1 more an argument"),
        ({"basis": "code", "seeds": (0,)}, "and 1 had one seed"),
        ({"basis": "reconstruction"}, "1 are not stated in the form that was tested"),
        ({"basis": "code", "scale": "toy"}, "1 were measured only on a small synthetic problem"),
    ],
)
def test_the_index_says_how_many_statements_are_certain_and_why_the_others_are_not(
    changes: dict[str, Any], told: str
) -> None:
    assert told in page("index.md", measured(simple(2, **changes), healthy=2, faulty=0))


def test_a_claim_without_a_verdict_has_stood_up_to_nothing() -> None:
    undecided = figure(10.0, 20.0)
    assert undecided.verdict is Verdict.UNDECIDED
    text = render_all(data_of((undecided,)))["index.md"]
    assert "| All statements | 1 | 0 | 0 | 0 | 0 | 1 |" in text
    assert f"**1 without a verdict**: {undecided.claim.id} (UNDECIDED)." in text


def test_statements_and_findings_are_counted_apart_and_each_once() -> None:
    said = measured(simple(1, document="004_toy"), healthy=2, faulty=2)
    ours = measured(simple(8, id="FND-1", kind="finding", document="findings"), healthy=2, faulty=0)
    beside = measured(
        simple(9, id="FND-2", kind="finding", document="004_toy", against_document=True), healthy=2, faulty=0
    )
    texts = render_all(data_of((said, ours, beside, figure(17.0, 23.0))))
    index = texts["all-claims.md"]
    assert "| [PPO verification](ppo-verification.md) | 1 | 0 | 1 | 0 | 0 |" in index
    assert "| [Fix summary](fix-summary.md) | 1 | 1 | 0 | 0 | 0 |" in index
    assert "| All statements | 2 | 1 | 1 | 0 | 0 |" in index
    assert "| Findings of our own | 2 | 1 | 1 | 0 | 0 |" in index
    assert "\n\n4 claims: " in index
    assert "Measurement contradicts 1 of 2 statements, and 1 findings of ours contradict" in texts["index.md"]
    assert "These 2 have 2 causes." in texts["index.md"]
    table = index.partition("## Every claim")[2]
    sources = dict(re.findall(r"^\| \[([A-Z0-9-]+)\][^|]*\| (\w+) \|", table, re.MULTILINE))
    assert sources == {"TOY-01": "004", "FND-1": "ours", "FND-2": "ours", "TOY-09": "003"}
    assert (
        "\n2 findings; 1 contradict a document. On the pages of the documents: [FND-2](ppo-verification.md#fnd-2)."
        in (texts["findings.md"])
    )
    assert "- Measurement supports 0 of 2 statements and findings, and contradicts 2." in texts["ppo-verification.md"]


def test_lines_that_are_not_tested_are_on_the_page_of_their_document_with_the_reason() -> None:
    texts = render_all(data())
    section = texts["integration-analysis.md"].partition("## Lines that are not tested")[2]
    assert "Lines: 20. Tested: 11; testable, but not tested: 5; not testable: 4; not cited: 0." in section
    assert re.findall(r"^- \[(.*?)\].*: (.*)$", section, re.MULTILINE) == [("001:20-24", "effort | speed")]
    in_full = render_all(replace(data(), in_full=True))["integration-analysis.md"]
    assert re.search(r"^- \[001:1-3\].*: title \| date$", in_full.partition("\nNot testable:\n")[2], re.MULTILINE)
    assert "counts" not in texts["bug-report.md"]


def test_what_is_stale_names_what_measures_it_anew() -> None:
    stale = replace(figure(-2.0, 3.0), misfits=("code changed",))
    assert "**1 stale**" in page("index.md", stale)
    assert "Run `.venv/bin/rlverify audit --level full --update`." in page("index.md", stale).partition("## Missing")[2]
    assert "Run `.venv/bin/rlverify audit --update`." in page(
        "index.md", replace(measured(simple(2), healthy=2, faulty=0), misfits=("code changed",))
    )


@pytest.mark.parametrize(
    ("against", "kind", "faulty", "contradicts"),
    [(False, "finding", 0, False), (True, "finding", 0, True), (True, "finding", 2, False), (False, "defect", 2, True)],
)
def test_a_finding_speaks_against_a_document_where_its_claim_says_so(
    against: bool, kind: ClaimKind, faulty: int, contradicts: bool
) -> None:
    record = measured(simple(8, kind=kind, against_document=against), healthy=2, faulty=faulty)
    assert record.contradicts_document is contradicts
    row = {True: "| 1 | 0 | 1 | 0 | 0 |", False: "| 1 | 1 | 0 | 0 | 0 |"}[contradicts]
    title = "Findings of our own" if kind == "finding" else "All statements"
    assert f"| {title} {row}" in page("index.md", record)
    assert bool(difference(record)) is contradicts


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "Measured here."),
        ({"section": "004_toy, problem 3"}, "Read in document 004."),
        ({"basis": "reported"}, "Reported by the original project, and not checkable here."),
    ],
)
def test_a_finding_says_where_it_comes_from(changes: dict[str, Any], told: str) -> None:
    finding = measured(
        simple(8, kind="finding", document="findings", **{"section": "", **changes}), healthy=2, faulty=0
    )
    text = page("findings.md", finding)
    assert f" {told} [002:280-282]" in text
    assert "document findings" not in text


def test_values_that_differ_between_machines_are_not_told() -> None:
    silent = VariantEvidence("healthy", 2, 0, None, (SymptomEvidence("ema", 0, 2, None, None),))
    found = measured(simple(4, fault=None), healthy=0)
    assert found.evidence is not None
    odd = replace(found, evidence=replace(found.evidence, variants=(silent,)))
    assert difference(odd) == "Measured: ema: not as expected."
    assert "| ema | as stated | **not as expected** |" in page("bug-report.md", odd)


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (
            measured(CLAIM, healthy=2, faulty=0, documented_fix=0),
            f"The fix leaves the symptom: {LOST}.",
        ),
        (measured(simple(2), healthy=2, faulty=2), "The planted bug had no observable effect."),
        (measured(simple(4, fault=None), healthy=0), f"Measured: {LOST}."),
        (
            measured(simple(4, fault=None, against_document=True), healthy=2),
            "Observed, and it contradicts the document.",
        ),
        (
            measured(simple(4, kind="assurance", fault=None, observed="It stops."), healthy=0),
            f"Measured: {LOST}.",  # not what the catalogue expects, so its sentence is not true
        ),
        (
            measured(
                simple(4, kind="assurance", fault=None, observed="It stops.", expected_verdict=Verdict.REFUTED),
                healthy=0,
            ),
            "It stops.",
        ),
        (figure(-2.0, 3.0), "Measured: 0.5 % (-2 to 3), less than stated; said: 15 to 25 %."),
        (figure(26.0, 28.0), "Measured: 27 % (26 to 28), more than stated; said: 15 to 25 %."),
        (figure(17.0, 23.0), ""),
        (measured(simple(2), healthy=2, faulty=0), ""),
        (measured(simple(2), healthy=0, faulty=0), ""),
    ],
)
def test_what_speaks_against_a_document_is_told_with_its_values(found: Record, told: str) -> None:
    assert difference(found) == told


OURS = "criterion, ours: 15 to 25 %"


@pytest.mark.parametrize(
    ("gives", "basis", "criterion", "statement"),
    [
        ("interval", "formula", "said: 15 to 25 %", "Restoring"),
        ("statement", None, OURS, "Restoring"),
        ("statement", "implied", OURS, "Implied, not stated in this form: Restoring"),
    ],
)
def test_a_criterion_of_ours_is_not_put_into_a_document_s_mouth(
    gives: DocumentGives, basis: Basis | None, criterion: str, statement: str
) -> None:
    found = figure(-2.0, 3.0)
    assert found.claim.figure is not None
    claim = replace(found.claim, basis=basis, figure=replace(found.claim.figure, document_gives=gives))
    text = page("wrong-statements.md", replace(found, claim=claim))
    assert f"Measured: 0.5 % (-2 to 3), less than stated; {criterion}." in text
    home = render_all(data_of((replace(found, claim=claim),), in_full=True))["fix-summary.md"]
    assert f"| efficiency lost | {criterion.partition(':')[0]} | measured," in home
    assert f"- Claim (figure): {statement} forgets the" in home


@pytest.mark.parametrize(
    ("effect", "shown"),
    [(1.4e9, "1,400,000,000 (the runs hardly differ) |"), (690.0, "690 |"), (-3.6, "-3.6 |"), (None, "none: all runs")],
)
def test_an_effect_size_is_shown_as_a_number(effect: float | None, shown: str) -> None:
    found = figure(-2.0, 3.0)
    assert found.evidence is not None
    assert found.evidence.figure is not None
    evidence = replace(found.evidence, figure=replace(found.evidence.figure, effect_size=effect))
    pages = render_all(data_of((replace(found, evidence=evidence),), in_full=True))
    assert f"| {shown}" in pages["fix-summary.md"]


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("lr of A, set to 1", "lr of B, set to 1"), ["lr of A, / B, set to 1"]),
        (("first update", "first update after a change"), ["first update / update after a change"]),
        (("steps in A", "steps in B", "steps in C", "steps in D"), ["steps in A / B / C / and 1 more"]),
        (("count", "mean"), ["count", "mean"]),
        (("count after a load", "mean after a load", "steps after a load"), ["count", "mean", "steps"]),
        (("a load", "b load"), ["a load", "b load"]),
    ],
)
def test_symptoms_with_the_same_values_share_a_row_if_they_begin_alike(names: tuple[str, ...], told: list[str]) -> None:
    variants = tuple(
        VariantEvidence(name, 2, held, None, tuple(SymptomEvidence(each, held, 2, "1", after) for each in names))
        for name, held, after in (("healthy", 2, "1"), ("faulty", 0, "0"))
    )
    record = measured(simple(2), healthy=2, faulty=0)
    assert record.evidence is not None
    text = page("bug-report.md", replace(record, evidence=replace(record.evidence, variants=variants)))  # type: ignore[arg-type]
    assert re.findall(r"^\| (.*?) \| 1 \| \*\*0\*\* \|$", text, re.MULTILINE) == told
    assert ("| value after a load | healthy |" in text) == ("mean after a load" in names)


def test_a_symptom_that_is_as_expected_everywhere_is_shown_in_full_only() -> None:
    record = measured(simple(2), healthy=2, faulty=0)
    assert "| ema |" not in page("bug-report.md", record)
    assert "| ema | as expected | as expected |" in render_all(data_of((record,), in_full=True))["bug-report.md"]


def test_a_harmful_fix_is_told_by_what_it_breaks_anew() -> None:
    record = measured(CLAIM, healthy=2, faulty=0, documented_fix=0)
    assert record.evidence is not None
    healthy, faulty, fixed = record.evidence.variants
    held, violated = faulty.symptoms[1], replace(fixed.symptoms[1], held_runs=0, before="1", after="nan")
    variants = (
        healthy,
        replace(faulty, symptoms=(faulty.symptoms[0], held)),
        replace(fixed, symptoms=(fixed.symptoms[0], violated)),
    )
    worse = replace(record, evidence=replace(record.evidence, variants=variants))
    assert difference(worse).endswith("breaks something else: ema: nan, expected 1.")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", "a\\|b"),
        ("a\\|b", "a\\\\\\|b"),
        ("a\nb", "a<br>b"),
        ("<class 'x'>", "&lt;class 'x'>"),
        ("&lt;", "&amp;lt;"),
        ("", "(empty)"),
        ("2 * 3 * 4", "2 \\* 3 \\* 4"),
        ("__init__ of vf_coef", "\\_\\_init\\_\\_ of vf_coef"),
        ("`a*b` * c", "`a*b` \\* c"),
        ("`a|b`", "`a\\|b`"),
    ],
)
def test_a_text_is_shown_as_it_is_written_inside_its_cell(text: str, shown: str) -> None:
    assert cell(text) == shown


def test_a_text_outside_a_table_keeps_its_bars() -> None:
    assert prose("a|b <c>") == "a|b &lt;c>"
