"""A document's checklist as rules: every criterion is a rule over claims, and the result is how many hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rlverify.records.claims import Verdict
from rlverify.reporting.checklists import Checklist, ChecklistItem
from rlverify.reporting.report_data import ReportData
from rlverify.verdicts.verdict import Record, decide_variant

HOLDS: Final = "holds"
FOUND: Final = "found"
NOT_FOUND: Final = "not found"
NOT_RUN: Final = "not measured"
UNTOLD: Final = "cannot be told"

Rule = Callable[[Record], bool]


@dataclass(frozen=True)
class CriterionResult:
    """A criterion and what became of it, each a word and the claims that it falls with or hangs on.

    :param described: of a criterion that the document calls met, whether it holds: no claim contradicts a document; of
        one that it calls unmet, whether a problem that it names was found
    :param in_core: whether it holds here: nothing that the claims look at is violated on the code as it is
    """

    item: ChecklistItem
    described: str
    in_core: str


@dataclass(frozen=True)
class ChecklistResult:
    """A checklist with its answers, and what became of how many, in words."""

    checklist: Checklist
    lines: tuple[CriterionResult, ...]
    conclusion: str


def results(data: ReportData) -> list[ChecklistResult]:
    """Every checklist, answered."""
    return [_result(data, checklist) for checklist in data.checklists]


def _result(data: ReportData, checklist: Checklist) -> ChecklistResult:
    lines = tuple(CriterionResult(item, _described(data, item), _in_core(data, item)) for item in checklist.items)
    return ChecklistResult(checklist, lines, f"{_conclusion_of_document(lines)} {_conclusion_of_core(lines)}")


def _described(data: ReportData, item: ChecklistItem) -> str:
    return _answer(data, item.claims, _stands) if item.met else _problem(data, item.claims)


def _answer(data: ReportData, claims: Sequence[str], rule: Rule) -> str:
    if not claims:
        return NOT_RUN
    records = {claim_id: data.record(claim_id) for claim_id in claims}
    holes = [claim_id for claim_id, record in records.items() if record is None or not record.has_verdict]
    fallen = [claim_id for claim_id, record in records.items() if record and claim_id not in holes and not rule(record)]
    if fallen:
        return f"falls: {', '.join(fallen)}"
    return f"{UNTOLD}, no verdict: {', '.join(holes)}" if holes else HOLDS


def _in_core(data: ReportData, item: ChecklistItem) -> str:
    """As by the claims; where the item has tests instead, by their outcome on the code as it is."""
    if not item.tests:
        return _answer(data, item.core_claims or item.claims, _holds_in_core)
    named = [test for test in data.tests or () if test.document == item.tests]
    passed = sum(test.outcome == "passed" for test in named)
    if not named:
        return f"{UNTOLD}, no outcome of the tests that document {item.tests} names"
    return HOLDS if passed == len(named) else f"falls: {passed} of {len(named)} named tests pass"


def _stands(record: Record) -> bool:
    return not record.contradicts_document


def _problem(data: ReportData, claims: Sequence[str]) -> str:
    """Whether a problem that a document names was found, whatever a fix of it does."""
    if not claims:
        return NOT_RUN
    verdicts = {claim_id: record.verdict for claim_id in claims if (record := data.record(claim_id)) is not None}
    found = [claim_id for claim_id in claims if verdicts.get(claim_id) is Verdict.CONFIRMED]
    absent = (Verdict.REFUTED, Verdict.NOT_REPRODUCED)
    untold = [claim_id for claim_id in claims if claim_id not in found and verdicts.get(claim_id) not in absent]
    if found:
        return f"{FOUND}: {', '.join(found)}"
    return f"{UNTOLD}, no verdict: {', '.join(untold)}" if untold else NOT_FOUND


def _holds_in_core(record: Record) -> bool:
    healthy = record.evidence.variant("healthy") if record.evidence is not None else None
    return _stands(record) if healthy is None else decide_variant(healthy).outcome == "held"


def _conclusion_of_document(lines: Sequence[CriterionResult]) -> str:
    met = [line.described for line in lines if line.item.met]
    named = [line.described for line in lines if not line.item.met]
    found = sum(answer.startswith(FOUND) for answer in named)
    parts = [f"{met.count(HOLDS)} of {len(met)} criteria that it calls met hold"] if met else []
    parts += [f"of {len(named)} that it calls unmet the problem was found in {found}"] if named else []
    return f"As the document describes it, {'; '.join(parts)}{_cannot_be_told([*met, *named])}."


def _conclusion_of_core(lines: Sequence[CriterionResult]) -> str:
    answers = [line.in_core for line in lines]
    return f"In this core, {answers.count(HOLDS)} of {len(answers)} criteria hold{_cannot_be_told(answers)}."


def _cannot_be_told(answers: Sequence[str]) -> str:
    untold = sum(NOT_RUN in answer or UNTOLD in answer for answer in answers)
    return f"; {untold} cannot be told" if untold else ""
