"""The single texts of committed evidence and of one run, by the name of the option: JSON, JUnit, a step's summary."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from typing import Any, Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from rlverify.evidence.files import canonical_json
from rlverify.records.problems import HARNESS_FAILED, SCHEMA_VERSION, Problem, Weakening, outcome_of, with_advice
from rlverify.reporting.outcome import Case, Outcome, block, lines_of, summary
from rlverify.reporting.phrasing import cell, difference, outcome_in_words, told
from rlverify.reporting.sarif import sarif_of_run
from rlverify.verdicts.verdict import ClaimStatus, Record, status_of

HEADING: Final = "| claim | measured | what it says | proof |\n|---|---|---|---|\n"
ORDER: Final = tuple(ClaimStatus)
NONE_FELL: Final[Mapping[str, str]] = {}


def table_of(records: Sequence[Record], fallen: Mapping[str, str] = NONE_FELL) -> str:
    """Return one table, worst first."""
    statuses = {each.claim.id: ClaimStatus.FAILED if each.claim.id in fallen else status_of(each) for each in records}
    ordered = sorted(records, key=lambda each: (ORDER.index(statuses[each.claim.id]), not each.contradicts_document))
    head = f"## rlverify\n\n{_counts(records, statuses)}\n\n{HEADING}"
    rows = [_row(record, statuses[record.claim.id], fallen) for record in ordered]
    return head + "".join(rows)


def _counts(records: Sequence[Record], statuses: Mapping[str, ClaimStatus]) -> str:
    found = Counter(statuses.values())
    against = sum(record.contradicts_document for record in records)
    told_counts = ", ".join(f"{found[each]} {each.value}" for each in ORDER if found[each]) or "nothing"
    claims = "1 claim" if len(records) == 1 else f"{len(records)} claims"
    return f"{claims}: {told_counts}. {against} contradict a document."


def _row(record: Record, status: ClaimStatus, fallen: Mapping[str, str]) -> str:
    claim = record.claim
    measured = outcome_in_words(record) if status is ClaimStatus.PASSED else fallen.get(claim.id) or told(record)
    words = difference(record) or claim.title
    return f"| {claim.id} | {cell(measured)} | {cell(words)} | `rlverify reproduce {claim.id}` |\n"


TITLES = {0: "as expected", 1: "failed", 2: "could not be measured"}


def summary_of_run(outcome: Outcome) -> str:
    """What happened as preformatted text, and the table of all claims folded in below it."""
    failed = {each.subject: each.sentence for each in outcome.problems if each.kind == "other" and each.exit_code == 1}
    fallen = {each.claim.id: each.headline for each in outcome.fallen}
    table = table_of(outcome.records, {**failed, **fallen})
    lines = lines_of(replace(outcome, weakened=()))
    return page_of(outcome.exit_code, lines, "All claims", table, table_of_weakened(outcome.weakened))


def page_of(exit_code: int, lines: Sequence[str], title: str, table: str, between: str = "") -> str:
    """Return lines as preformatted text, what is ``between``, and a table that is folded in."""
    text = "\n".join(line.replace("```", "'''") for line in lines)
    head = f"# rlverify: {TITLES[exit_code]}\n\n```text\n{text}\n```\n\n"
    return f"{head}{between}<details><summary>{title}</summary>\n\n{table}\n</details>\n"


def table_of_weakened(weakened: Sequence[Weakening]) -> str:
    """All of them as a section of a Markdown page; empty if nothing is weakened."""
    rows = [f"| {' | '.join(map(cell, (each.kind, each.subject, each.before, each.after)))} |\n" for each in weakened]
    head = "## What this change weakens, or may weaken\n\n| what | where | before | now |\n|---|---|---|---|\n"
    return f"{head}{''.join(rows)}\n" if rows else ""


# What XML 1.0 has no way to write, escaped or not.
FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
ELEMENTS: Final = {ClaimStatus.FAILED: "failure", ClaimStatus.ERROR: "error", ClaimStatus.SET_ASIDE: "skipped"}


def junit_document(cases: Sequence[Case]) -> str:
    """The whole file: a suite for each run of cases that name one, with the counts that readers of it expect."""
    root = Element("testsuites", {"name": "rlverify", **_numbers(cases)})
    for name, found in groupby(cases, key=lambda case: case.suite):
        group = list(found)
        suite = SubElement(root, "testsuite", {"name": name, **_numbers(group)})
        for case in group:
            _add(suite, case)
    indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _numbers(cases: Iterable[Case]) -> dict[str, str]:
    cases = list(cases)
    found = Counter(case.status for case in cases)
    times = [case.seconds for case in cases if case.seconds is not None]
    counts = {
        "tests": len(cases),
        "failures": found[ClaimStatus.FAILED],
        "errors": found[ClaimStatus.ERROR],
        "skipped": found[ClaimStatus.SET_ASIDE],
    }
    return {name: str(count) for name, count in counts.items()} | ({"time": f"{sum(times):.3f}"} if times else {})


def _add(suite: Element, case: Case) -> None:
    element = SubElement(suite, "testcase", classname=case.suite, name=_writable(case.name))
    if case.seconds is not None:
        element.set("time", f"{case.seconds:.3f}")
    if name := ELEMENTS.get(case.status):
        SubElement(element, name, message=_writable(case.message)).text = _writable(case.text)
    elif case.text:
        SubElement(element, "system-out").text = _writable(case.text)


def _writable(text: str) -> str:
    return FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


COMMITTED: Final = "committed files"
EVIDENCE: Final = "results are up to date"


def junit_of_run(outcome: Outcome) -> str:
    """The file of one run: a failure for each claim that fell, an error for each that could not be measured."""
    return junit_document([*_run_cases(outcome), *_other_cases(outcome), *outcome.checks])


def _run_cases(outcome: Outcome) -> Iterator[Case]:
    fallen = {each.claim.id: each for each in outcome.fallen}
    problems = {each.subject: each for each in with_advice(outcome.problems) if each.kind in ("other", "pin")}
    for record in outcome.records:
        claim = record.claim
        case = Case(claim.document, f"{claim.id} {claim.title}", _status(record), seconds=outcome.seconds[claim.id])
        if fell := fallen.get(claim.id):
            yield replace(case, status=ClaimStatus.FAILED, message=fell.headline, text="\n".join(block(fell)))
        elif problem := problems.get(claim.id):
            yield replace(case, status=_status_of_problem(problem), message=problem.sentence, text=str(problem))
        else:
            yield case


def _other_cases(outcome: Outcome) -> Iterator[Case]:
    """What is no claim, and all stale evidence in one case."""
    claims = {record.claim.id for record in outcome.records}
    problems = with_advice(outcome.problems)
    if stale := [problem for problem in problems if problem.kind == "stale"]:
        message = f"{len(stale)} committed results are out of date"
        yield Case(COMMITTED, EVIDENCE, ClaimStatus.FAILED, message, "\n".join(map(str, stale)), 0.0)
    for problem in problems:
        if problem.kind == "other" and problem.subject not in claims:
            yield Case(COMMITTED, problem.subject, _status_of_problem(problem), problem.sentence, str(problem), 0.0)


def _status(record: Record) -> ClaimStatus:
    """Of a claim without a problem of its own: a figure with undecided evidence is set aside."""
    status = status_of(record)
    return status if status is ClaimStatus.SET_ASIDE else ClaimStatus.PASSED


def _status_of_problem(problem: Problem) -> ClaimStatus:
    """A claim with a stale fault did not fall: it could not be measured."""
    return ClaimStatus.ERROR if problem.exit_code == HARNESS_FAILED or problem.kind == "pin" else ClaimStatus.FAILED


def json_of_records(outcome: Outcome) -> str:
    """One object for each claim: the claim, its evidence, verdict and grade."""
    claims = [as_object(record) for record in outcome.records]
    return canonical_json({"schema_version": SCHEMA_VERSION, "claims": claims})


def json_of_run(outcome: Outcome) -> str:
    """The outcome of one run: exit code, fallen claims, problems, and the verdict and time of each claim."""
    fell = {each.claim.id for each in outcome.fallen}
    content = {
        "schema_version": SCHEMA_VERSION,
        **outcome_of(outcome.problems),
        "summary": summary(outcome),
        "fallen": [{**asdict(each), "claim": each.claim.id, "title": each.claim.title} for each in outcome.fallen],
        "notes": list(outcome.notes),
        "weakened": [asdict(each) for each in outcome.weakened],
        "selection": outcome.selection or None,
        "claims": [
            {
                "id": record.claim.id,
                "verdict": record.verdict,
                "expected_verdict": record.claim.expected_verdict,
                "fix_grade": record.fix_grade,
                "expected_fix_grade": record.claim.expected_fix_grade,
                "as_expected": record.as_expected and record.claim.id not in fell,
                "seconds": round(outcome.seconds[record.claim.id], 3),
            }
            for record in outcome.records
        ],
    }
    return canonical_json(content)


def as_object(record: Record) -> dict[str, Any]:
    """One record as JSON objects and lists; evidence is null where there is none."""
    evidence = asdict(record.evidence) if record.evidence is not None else None
    return {
        "claim": asdict(record.claim),
        "evidence": evidence,
        "misfits": list(record.misfits),
        "verdict": record.verdict,
        "fix_grade": record.fix_grade,
        "as_expected": record.as_expected,
        "contradicts_document": record.contradicts_document,
    }


FORMATS: Final[Mapping[str, Callable[[Outcome], str]]] = {
    "json": json_of_records,
    "junit": junit_of_run,
    "step-summary": summary_of_run,
}
"""Of committed evidence, which `rlverify report` writes."""
RUN_FORMATS: Final[Mapping[str, Callable[[Outcome], str]]] = {
    "junit": junit_of_run,
    "sarif": sarif_of_run,
    "summary": summary_of_run,
    "json": json_of_run,
}
