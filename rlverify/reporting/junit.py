"""The report for what reads test results: one suite a document, one case a claim.

Of a run, each case has its time. A suite for what is no claim follows (evidence, reports and the kill matrix), and one
for each subject of the project's suites.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from rlverify.records.problems import HARNESS_FAILED, Problem, with_advice
from rlverify.reporting.outcome import Case, Outcome, block
from rlverify.verdicts.verdict import ClaimStatus, Record, status_of

# What XML 1.0 has no way to write, escaped or not.
FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
ELEMENTS: Final = {ClaimStatus.FAILED: "failure", ClaimStatus.ERROR: "error", ClaimStatus.SET_ASIDE: "skipped"}


def junit_document(cases: Sequence[Case]) -> str:
    """The whole file: a suite for each run of cases that name one, with the counts that readers of it expect."""
    root = Element("testsuites", {"name": "rlverify", **_counts(cases)})
    for name, found in groupby(cases, key=lambda case: case.suite):
        group = list(found)
        suite = SubElement(root, "testsuite", {"name": name, **_counts(group)})
        for case in group:
            _add(suite, case)
    indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _counts(cases: Iterable[Case]) -> dict[str, str]:
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
