"""A document's conclusion, drawn again: every criterion is a rule over claims, and nothing else is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from verification.report.book import Book, Checklist, Item
from verification.report.interface import Record
from verification.verdict import decide_variant

HOLDS: Final = "holds"
STANDS: Final = "stands"
NOT_RUN: Final = "not measured"
UNTOLD: Final = "cannot be told"

Rule = Callable[[Record], bool]


@dataclass(frozen=True)
class Line:
    """A criterion and what became of it, each a word and the claims that it falls with or hangs on.

    :param answer: whether what the document says of it stands: each claim was measured, and none contradicts a document
    :param in_core: whether it holds here: nothing that the claims look at is violated on the code as it is
    """

    item: Item
    answer: str
    in_core: str


@dataclass(frozen=True)
class Result:
    """A checklist with its answers, and what follows from them in a sentence."""

    checklist: Checklist
    lines: tuple[Line, ...]
    conclusion: str


def results(book: Book) -> list[Result]:
    """Every checklist of the book, answered."""
    return [_result(book, checklist) for checklist in book.checklists]


def _result(book: Book, checklist: Checklist) -> Result:
    lines = tuple(
        Line(item, _answer(book, item.claims, STANDS, _stands), _in_core(book, item)) for item in checklist.items
    )
    said = [line.answer if line.item.met else f"said to be unmet, which {line.answer}" for line in lines]
    documented = _conclusion("What the document describes", checklist.word, STANDS, said)
    core = _conclusion("This core", checklist.word, HOLDS, [line.in_core for line in lines])
    return Result(checklist, lines, f"{documented} {core}")


def _answer(book: Book, claims: Sequence[str], good: str, rule: Rule) -> str:
    if not claims:
        return NOT_RUN
    records = {claim_id: book.record(claim_id) for claim_id in claims}
    holes = [claim_id for claim_id, record in records.items() if record is None or not record.has_verdict]
    fallen = [claim_id for claim_id, record in records.items() if record and claim_id not in holes and not rule(record)]
    if fallen:
        return f"falls: {', '.join(fallen)}"
    return f"{UNTOLD}, no evidence: {', '.join(holes)}" if holes else good


def _in_core(book: Book, item: Item) -> str:
    """As by the claims; where the item has tests instead, by their outcome on the code as it is."""
    if not item.tests:
        return _answer(book, item.core_claims or item.claims, HOLDS, _holds_in_core)
    named = [test for test in book.tests or () if test.document == item.tests]
    passed = sum(test.outcome == "passed" for test in named)
    if not named:
        return f"{UNTOLD}, no outcome of the tests that document {item.tests} names"
    return HOLDS if passed == len(named) else f"falls: {passed} of {len(named)} named tests pass"


def _stands(record: Record) -> bool:
    return not record.contradicts_document


def _holds_in_core(record: Record) -> bool:
    healthy = record.evidence.variant("healthy") if record.evidence is not None else None
    return _stands(record) if healthy is None else decide_variant(healthy).outcome == "held"


def _conclusion(subject: str, word: str, good: str, answers: Sequence[str]) -> str:
    met, untold = answers.count(good), sum(NOT_RUN in answer or UNTOLD in answer for answer in answers)
    more = f", {untold} cannot be told here" if untold else ""
    return f"{subject}: {word if met == len(answers) else f'not {word}'} ({met} of {len(answers)} criteria{more})."
