"""What the claims of the HTML report are filtered by, and the words for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rlverify.records.claims import Scale, Verdict
from rlverify.reporting.phrasing import BASES, outcome
from rlverify.reporting.ranking import SEVERITIES, is_real_bug
from rlverify.reporting.record import Record
from rlverify.reporting.report_data import ReportData, spans

SCALES: Final[dict[Scale, str]] = {
    "tensor": "one component, on tensors or files",
    "toy": "a small synthetic problem",
    "training": "learn() in an environment",
}
OURS: Final = "ours"
NOT_ASSESSED: Final = "not assessed"
NOT_CLASSIFIED: Final = "not classified"


@dataclass(frozen=True)
class Facet:
    """One filter.

    :param name: of the control, and of the attribute of each claim
    :param values: for each claim by id, what it is found under
    :param choices: (value, how many claims have it), in the order in which they are offered
    """

    name: str
    title: str
    values: dict[str, tuple[str, ...]]
    choices: tuple[tuple[str, int], ...]


def slug(value: str) -> str:
    """A value without white space, as it is in an attribute that lists values."""
    return "-".join(value.split())


def facets(data: ReportData, claims: Sequence[Record]) -> list[Facet]:
    """The filters, with what the claims have to choose from."""
    verdicts = [*(each.value for each in Verdict), "NO EVIDENCE"]
    severities = [*SEVERITIES, NOT_ASSESSED]
    bases = [each or NOT_CLASSIFIED for each in BASES]
    documents = sorted({key for each in claims for key in _documents(data, each)} - {OURS})
    kinds = ["bug proven real", "statement wrong", "neither"]
    return [
        _facet(claims, "finding", "Finding", kinds, _kinds),
        _facet(claims, "verdict", "Verdict", verdicts, lambda each: (outcome(each),)),
        _facet(claims, "severity", "Severity", severities, lambda each: (each.claim.assessed or NOT_ASSESSED,)),
        _facet(claims, "document", "Document", [*documents, OURS], lambda each: _documents(data, each)),
        _facet(claims, "evidence", "Evidence class", bases, lambda each: (each.claim.basis or NOT_CLASSIFIED,)),
    ]


def _facet(
    claims: Sequence[Record], name: str, title: str, order: Sequence[str], of: Callable[[Record], tuple[str, ...]]
) -> Facet:
    values = {each.claim.id: of(each) for each in claims}
    counts = {choice: sum(choice in found for found in values.values()) for choice in order}
    return Facet(name, title, values, tuple((choice, count) for choice, count in counts.items() if count))


def _kinds(record: Record) -> tuple[str, ...]:
    kinds = {"bug proven real": is_real_bug(record), "statement wrong": record.contradicts_document}
    return tuple(kind for kind, holds in kinds.items() if holds) or ("neither",)


def _documents(data: ReportData, record: Record) -> tuple[str, ...]:
    """The source of a claim first, then every other document that it cites."""
    return tuple(dict.fromkeys((data.source(record.claim), *(spans(cite)[0] for cite in record.claim.cites))))
