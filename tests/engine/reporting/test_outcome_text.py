"""The lines that a run prints: few, the worst first, and no advice to commit a regression."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from rlverify.records.problems import Problem
from rlverify.reporting.formats import json_of_run, junit_of_run
from rlverify.reporting.outcome import (
    LONGEST_VALUE,
    MOST_LINES,
    FallenClaim,
    Outcome,
    SymptomChange,
    block,
    lines_of,
    summary,
)
from rlverify.reporting.sarif import sarif_of_run
from tests.engine.reporting.records import figure, measured, simple

UPDATE = "run `rlverify audit --update`"


def fallen(number: int, **changes: Any) -> FallenClaim:
    found = FallenClaim(
        claim=simple(1, id=f"TOY-{number}"),
        kind="healthy",
        headline="REGRESSED (expected CONFIRMED)",
        changes=(SymptomChange("count", "320", str(number)),),
        reason="",
        suspects=("toy/count.py", "toy/other.py"),
        suspect_line=12,
        edit=(),
        changed=("toy/count.py",),
        changed_parts=("toy.count:count",),
        declared_in="audit/catalogue/toy.toml",
        line=7,
        command=f"rlverify reproduce TOY-{number}",
    )
    return replace(found, **changes)


def outcome(*found: FallenClaim, problems: tuple[Problem, ...] = (), **changes: Any) -> Outcome:
    """An outcome in which these claims fell, and one is as expected."""
    records = (*(measured(each.claim, healthy=0, faulty=0) for each in found), measured(simple(2), healthy=2, faulty=0))
    fell = tuple(Problem(each.claim.id, 1, each.headline, each.kind) for each in found)
    seconds = {record.claim.id: 0.5 for record in records}
    return Outcome(records, (*fell, *problems), found, seconds=seconds, **changes)


def test_a_block_names_symptom_suspect_and_command() -> None:
    assert block(fallen(3)) == [
        "TOY-3  claim 1  REGRESSED (expected CONFIRMED)",
        "  count: expected 320, observed 3",
        "  first suspect: toy/count.py:12 (changed)",
        "  reproduce: rlverify reproduce TOY-3",
    ]
    assert "  first suspect: toy/count.py" in block(fallen(3, changed=()))
    assert not any("suspect" in line for line in block(fallen(3, suspects=())))


def test_a_block_quotes_the_edit_at_its_suspect_and_another_block_does_not_repeat_it() -> None:
    edit = ("- count += 1", "+ count += 2")
    assert block(fallen(3, edit=edit))[2:5] == [
        "  first suspect: toy/count.py:12 (changed)",
        "    - count += 1",
        "    + count += 2",
    ]
    lines = lines_of(outcome(fallen(3, edit=edit), fallen(4, edit=edit), fallen(5, edit=("- gone",))))
    assert [line for line in lines if line.startswith("    ")] == ["    - count += 1", "    + count += 2", "    - gone"]
    assert sum("first suspect" in line for line in lines) == 3


@pytest.mark.parametrize(("number", "quoted"), [(4, [0, 1, 2, 3]), (5, [0, 1, 2])])
def test_a_long_edit_is_cut(number: int, quoted: list[int]) -> None:
    lines = block(fallen(3, edit=tuple(f"+ line {n}" for n in range(number))))[3:-1]
    more = ["    and 2 more lines"] if number == 5 else []
    assert lines == [*(f"    + line {n}" for n in quoted), *more]


def test_claims_that_crash_alike_share_a_block_whatever_the_run() -> None:
    error = "ZeroDivisionError: division by zero (toy/count.py:9)"
    runs = [f"healthy, seed 0: {error}", f"seed 2: {error}", f"seed 13: {error}"]
    claims = [fallen(n, changes=(), reason=reason) for n, reason in enumerate(runs)]
    said = lines_of(outcome(*claims, fallen(4, changes=(), reason=error.replace("9", "10"))))
    assert said[3].startswith("TOY-0  ")
    assert "  for the same reason: TOY-1, TOY-2" in said
    assert any(line.startswith("TOY-4  ") for line in said)


def test_the_head_names_what_changed_and_how_many_claims_executed_it() -> None:
    parts = [("toy:a", "toy:b", "toy"), ("toy:b", "toy"), ("toy:b",), ("file toy.yaml", "toy:b")]
    claims = [fallen(n, changed_parts=names) for n, names in enumerate(parts)]
    words = "changed code that fallen claims executed: "
    assert lines_of(outcome(*claims))[1] == f"{words}toy:b (by 4), toy (by 2), file toy.yaml (by 1), and 1 more"
    assert lines_of(outcome(*claims[1:3]))[1:3] == [f"{words}toy:b (by 2), toy (by 1)", ""]
    assert lines_of(outcome(fallen(1, changed_parts=())))[1] == ""


def test_figures_of_which_only_values_differ_share_a_block() -> None:
    """Whatever those values are: they are downstream of what the other claims show."""
    moved = [
        fallen(
            n,
            claim=replace(figure(15.0, 25.0).claim, id=f"FIG-{n}"),
            kind="values",
            changes=(),
            reason=f"seed {n} gives 1",
        )
        for n in range(3)
    ]
    lines = lines_of(outcome(fallen(7), *moved))
    assert [line.split()[0] for line in lines if line.startswith(("FIG", "TOY"))] == ["TOY-7", "FIG-0"]
    assert "  for the same reason: FIG-1, FIG-2" in lines
    others = [replace(each, kind="verdict") for each in moved]
    assert sum(line.startswith("FIG") for line in lines_of(outcome(*others))) == 3


def test_a_block_has_two_symptoms_and_says_how_many_more_there_are() -> None:
    many = tuple(SymptomChange(f"symptom {n}", "a", "b" * 500) for n in range(4))
    lines = block(fallen(1, changes=many))
    assert lines[1].startswith("  symptom 0: expected a, observed bbb")
    assert len(lines[1]) < LONGEST_VALUE + 50
    assert lines[3] == "  and 2 more symptoms"
    assert block(fallen(1, changes=many[:3]))[3].startswith("  symptom 2: ")  # a line that hides one line saves none


def test_claims_that_fell_for_one_reason_share_a_block() -> None:
    same = (SymptomChange("count", "320", "0"),)
    lines = lines_of(outcome(fallen(1, changes=same), fallen(2), fallen(3, changes=same)))
    assert lines[0].startswith("3 claims fell: the code does something else than")
    assert "  for the same reason: TOY-3" in lines
    assert [line.split()[0] for line in lines if line.startswith("TOY-")] == ["TOY-1", "TOY-2"]


@pytest.mark.parametrize("number", [1, 9, 10, 11, 12, 40, 300])
def test_there_are_never_more_than_sixty_lines_and_no_claim_is_lost(number: int) -> None:
    problems = tuple(Problem(f"page-{n}.md", 1, "is not what the evidence gives") for n in range(30))
    found = outcome(*(fallen(n) for n in range(number)), problems=problems, notes=("a note",), selection="measured all")
    lines = lines_of(found, "run.json")
    assert len(lines) <= MOST_LINES
    shown = sum(line.startswith("TOY-") for line in lines)
    more = [line for line in lines if line.startswith("and ") and line.endswith("fell; see run.json")]
    assert shown + sum(int(line.split()[1]) for line in more) == number
    assert shown >= min(number, 7)
    assert "and 19 more problems; see --json FILE" in lines
    assert lines[-3:] == ["a note", "measured all", summary(found)]


def test_results_that_are_out_of_date_are_one_line_without_advice_after_a_regression() -> None:
    stale = tuple(Problem(f"OLD-{n}", 1, "has no committed evidence", "stale", UPDATE) for n in range(9))
    quiet, loud = lines_of(outcome(problems=stale)), lines_of(outcome(fallen(1), problems=stale))
    assert quiet == [
        "9 committed results are out of date (OLD-0, OLD-1, OLD-2, OLD-3, OLD-4, OLD-5, and 3 more): has no "
        f"committed evidence; {UPDATE}",
        "1 of 1 claims as expected; the committed evidence or reports are out of date",
    ]
    assert any(line.endswith("has no committed evidence") for line in loud)
    assert "--update" not in "\n".join(loud)
    assert lines_of(outcome(problems=stale[:1]))[0] == f"OLD-0: has no committed evidence; {UPDATE}"


def test_stale_faults_are_one_line() -> None:
    pins = tuple(Problem(f"OLD-{n}", 1, f"STALE, fault f-{n // 8} is stale", "pin") for n in range(9))
    line = lines_of(outcome(problems=pins))[0]
    ids = "OLD-0, OLD-1, OLD-2, OLD-3, OLD-4, OLD-5, and 3 more"
    assert line == f"9 claims have stale faults ({ids}): STALE, fault f-0 is stale; STALE, fault f-1 is stale"
    assert lines_of(outcome(problems=pins[:1]))[0] == "OLD-0: STALE, fault f-0 is stale"


def test_the_advice_to_pin_a_fault_again_is_never_given_after_a_regression() -> None:
    pins = tuple(Problem(f"OLD-{n}", 1, "STALE", "pin", "then set pins=1") for n in range(2))
    for found in (pins, pins[:1]):
        assert lines_of(outcome(problems=found))[0].endswith("; then set pins=1")
        assert not any("set pins" in line for line in lines_of(outcome(fallen(1), problems=found)))


def test_the_advice_is_about_the_fault_that_is_told() -> None:
    gone = Problem("OLD-1", 1, "STALE, its target is gone", "pin")
    other = Problem("OLD-2", 1, "STALE, its target has changed", "pin", "then set pins=1")
    assert lines_of(outcome(problems=(gone, other)))[0].endswith(
        "its target is gone; STALE, its target has changed; then set pins=1"
    )
    assert lines_of(outcome(problems=(other, gone)))[0].endswith(
        "has changed; then set pins=1; STALE, its target is gone"
    )


def test_no_line_is_empty_after_the_blocks() -> None:
    """A fallen claim of which only values differ brings advice, which a regression takes away."""
    values = (Problem("TOY-1", 1, "differs", "values", "run it"),)
    found = outcome(fallen(1), fallen(2, changes=()), problems=values, notes=("a note",))
    lines = lines_of(found)
    assert lines[lines.index("a note") - 1] == ""
    assert lines[lines.index("a note") - 2] != ""


def test_other_values_alone_may_be_right() -> None:
    remedy = f"if that is right, {UPDATE}"
    changed = fallen(1, kind="values", headline="CONFIRMED, with other values than committed")
    found = outcome(changed)
    problems = (Problem("TOY-1", 1, "differs", "values", remedy),)
    lines = lines_of(replace(found, problems=problems))
    assert lines[0] == "1 claim fell: the verdicts are as expected, but values differ from the committed evidence"
    assert remedy in lines
    assert "  count: committed 320, observed 1" in lines


def test_the_last_line_says_what_the_exit_code_means() -> None:
    harness = Problem("TOY-02", 2, "ERROR")
    assert summary(outcome()) == "1 of 1 claims as expected; nothing to report"
    noted = replace(outcome(), notes=("note: the gate will fail: TOY-01 has no title",))
    assert summary(noted) == "1 of 1 claims as expected; see the notes"
    assert summary(outcome(problems=(harness,))).endswith("; the harness failed")
    assert summary(outcome(fallen(1), problems=(harness,))) == "1 of 2 claims as expected; 1 claim fell"
    stale = replace(measured(simple(3), healthy=2, faulty=0), misfits=("seeds changed",))
    found = outcome(fallen(1))
    assert summary(replace(found, records=(*found.records, stale))) == (
        "1 of 3 claims as expected; 1 claim fell, 1 could not be judged"
    )


def test_a_claim_that_fell_is_not_as_expected_even_if_its_verdict_is() -> None:
    found = outcome(fallen(2, claim=simple(1, id="TOY-2"), kind="values"))
    holds = measured(simple(1, id="TOY-2"), healthy=2, faulty=0)
    assert holds.as_expected
    found = replace(found, records=(holds, found.records[1]))
    assert summary(found) == "1 of 2 claims as expected; 1 claim fell"
    assert [each["as_expected"] for each in json.loads(json_of_run(found))["claims"]] == [False, True]


def test_a_claim_with_a_stale_fault_is_no_failure_in_junit() -> None:
    """So the failures are the claims that fell, and no others."""
    root = ElementTree.fromstring(junit_of_run(outcome(fallen(1), problems=(Problem("TOY-02", 1, "STALE", "pin"),))))
    assert (root.get("failures"), root.get("errors")) == ("1", "1")


def test_junit_counts_what_fell_as_failures_and_trouble_of_the_harness_as_errors() -> None:
    trouble = (
        Problem("TOY-02", 2, "ERROR, healthy, seed 0: boom"),
        Problem("claims.md", 1, "is not what the committed evidence gives", remedy="run `rlverify report`"),
    )
    found = outcome(fallen(1), problems=trouble)
    record = figure(10.0, 20.0)
    seconds = {**found.seconds, record.claim.id: 0.0}
    root = ElementTree.fromstring(junit_of_run(replace(found, records=(*found.records, record), seconds=seconds)))
    assert [root.attrib[name] for name in ("tests", "failures", "errors", "skipped", "time")] == [
        "4", "2", "1", "1", "1.000",
    ]  # fmt: skip
    error = next(root.iter("error"))
    assert error.attrib["message"] == "ERROR, healthy, seed 0: boom"
    outside = [case.attrib["name"] for case in root.iter("testcase") if case.attrib["classname"] == "committed files"]
    assert outside == ["claims.md"]
    assert not any(
        ElementTree.fromstring(junit_of_run(outcome())).iter(
            "failure",
        )
    )


def test_junit_has_the_time_of_each_claim() -> None:
    found = replace(outcome(fallen(1), fallen(3)), seconds={"TOY-1": 0.25, "TOY-3": 61.5, "TOY-02": 0.0625})
    root = ElementTree.fromstring(junit_of_run(found))
    times = {case.attrib["name"].split()[0]: case.attrib["time"] for case in root.iter("testcase")}
    assert times == {"TOY-1": "0.250", "TOY-3": "61.500", "TOY-02": "0.062"}
    assert root.attrib["time"] == "61.812"  # 61.8125, rounded to the even digit


def test_sarif_falls_back_on_the_line_of_the_catalogue() -> None:
    """Also if the first suspect is outside the project, where code scanning shows nothing."""
    found = outcome(
        fallen(1, suspects=()),
        fallen(2, suspects=("/usr/lib/toy.py",)),
        fallen(3),
        fallen(4, suspects=(), declared_in="/toy/catalogue.toml"),
    )
    results = json.loads(sarif_of_run(found))["runs"][0]["results"]
    places = [each["locations"][0]["physicalLocation"] for each in results]
    assert [(each["artifactLocation"]["uri"], each["region"]["startLine"]) for each in places] == [
        ("audit/catalogue/toy.toml", 7),
        ("audit/catalogue/toy.toml", 7),
        ("toy/count.py", 12),
        ("file:///toy/catalogue.toml", 7),
    ]
