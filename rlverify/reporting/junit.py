"""The report for what reads test results: one suite a document, one case a claim.

Of a run, each case has its time. A suite for what is no claim follows (evidence, reports and the kill matrix), and one
for each subject of the project's suites.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rlverify.records.exit_codes import HARNESS_FAILED
from rlverify.records.problems import Problem, with_advice
from rlverify.reporting.claim_status import ClaimStatus, status_of, told
from rlverify.reporting.junit_xml import ELEMENTS, Case, document
from rlverify.reporting.outcome import Outcome
from rlverify.reporting.outcome_text import block
from rlverify.reporting.phrasing import difference, outcome, spread, statement
from rlverify.reporting.record import Record

COMMITTED: Final = "committed files"
EVIDENCE: Final = "results are up to date"


class JUnitReport:
    """JUnit's XML: a claim that is not as expected fails, one that could not be measured is an error."""

    def format(self, records: Sequence[Record]) -> str:
        """The whole file, with the counts that readers of it expect."""
        return document([_committed_case(record) for record in records])


def junit_of_run(outcome: Outcome) -> str:
    """The file of one run: a failure for each claim that fell, an error for each that could not be measured."""
    return document([*_run_cases(outcome), *_other_cases(outcome), *_check_cases(outcome)])


def _check_cases(outcome: Outcome) -> list[Case]:
    if not outcome.checks:
        return []
    from rlverify.reporting.check_run.check_formats import case_of  # imports NumPy, which other commands do without

    return [case_of(record) for record in outcome.checks]


def _committed_case(record: Record) -> Case:
    claim, status = record.claim, status_of(record)
    text = (
        f"{statement(claim)}\nrlverify reproduce {claim.id}"
        if status in ELEMENTS
        else difference(record) or _conditions(record)
    )
    return Case(claim.document, f"{claim.id} {claim.title}", status, told(record), text)


def _conditions(record: Record) -> str:
    found = spread(record)
    return f"{outcome(record)}: {found}" if found else ""


def _run_cases(outcome: Outcome) -> Iterator[Case]:
    fallen = {each.claim.id: each for each in outcome.fallen}
    problems = {each.subject: each for each in with_advice(outcome.problems) if each.kind in ("other", "pin")}
    for record in outcome.records:
        claim = record.claim
        case = Case(claim.document, f"{claim.id} {claim.title}", _status(record), seconds=outcome.seconds[claim.id])
        if fell := fallen.get(claim.id):
            yield _not_passed(case, ClaimStatus.FAILED, fell.headline, "\n".join(block(fell)))
        elif problem := problems.get(claim.id):
            yield _not_passed(case, _status_of_problem(problem), problem.sentence, str(problem))
        else:
            yield case


def _not_passed(case: Case, status: ClaimStatus, message: str, text: str) -> Case:
    return Case(case.suite, case.name, status, message, text, case.seconds)


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
    """Of a claim without a problem of its own: a figure with stale or undecided evidence is set aside."""
    status = status_of(record)
    return status if status is ClaimStatus.SET_ASIDE else ClaimStatus.PASSED


def _status_of_problem(problem: Problem) -> ClaimStatus:
    """A claim with a stale fault did not fall: it could not be measured."""
    return ClaimStatus.ERROR if problem.exit_code == HARNESS_FAILED or problem.kind == "pin" else ClaimStatus.FAILED
