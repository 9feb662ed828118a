"""Ranks what the audit found: real bugs and wrong statements by severity and confidence, and the action plan.

The rules are the constants and functions of this module; the pages state them next to what follows from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from rlverify.records.claims import Severity, Verdict
from rlverify.verdicts.verdict import CONFIDENCES, Record

Phase: TypeAlias = Literal["now", "next", "later"]

SEVERITIES: Final[tuple[Severity, ...]] = ("critical", "high", "medium", "low", "none")
PHASES: Final[dict[Phase, str]] = {
    "now": "critical severity, measured here",
    "next": "high severity with high confidence",
    "later": "other high severity, medium severity, and what only the original project reported",
}
"""What belongs into each phase of the plan; `phase` applies it."""


SEVERITY_RULE: Final[dict[Severity, str]] = {
    "critical": "code in a file is executed, or the plain training run learns less by more than chance",
    "high": "the plain training run stops, or its weights come out differently without an error",
    "medium": "the plain training run shows nothing, but a value is wrong or lost without an error",
    "low": "the plain training run shows nothing, and all that goes wrong ends in an error",
}
"""The severity of a bug, by what its probe and the plain training run measured; `severity_by_rule` applies it."""

STATUSES: Final = (
    "supported",
    "contradicts a document",
    "not supported, not held against a document",
    "depends on the conditions",
    "no verdict",
)


@dataclass(frozen=True)
class Cause:
    """One reason for which several statements fail; they count as one.

    :param text: the reason, in one sentence
    """

    id: str
    text: str


@dataclass(frozen=True)
class Finding:
    """Claims that fail for one reason and count once; the most severe comes first.

    :param cause: their common reason, or None where there is a single claim
    """

    records: tuple[Record, ...]
    cause: Cause | None = None

    @property
    def first(self) -> Record:
        """The claim that ranks highest."""
        return self.records[0]


def status_of_statement(record: Record) -> str:
    """Which of `STATUSES` a claim has, its fix included; code of ours that regressed says nothing about it.

    What measurement does not support stays so, whatever conditions make of its fix.
    """
    if record.is_unsupported:
        return STATUSES[1] if record.contradicts_document else STATUSES[2]
    if record.is_open or record.verdict is Verdict.REGRESSED:
        return STATUSES[4]
    return STATUSES[3] if record.depends or record.fix_depends else STATUSES[0]


def severity_by_rule(record: Record, effect: str, of_bugs: Mapping[str, Severity | None]) -> Severity:
    """The severity of a bug, or of what a document states and measurement contradicts.

    A fix that fails has the severity of its bug. Other code that is wrong is medium, words and numbers are low.

    :param effect: what the bug does to the plain training run, in the words of ``effects.toml``
    :param of_bugs: the severity of bugs, by their ids
    """
    evidence = record.evidence
    variants = () if evidence is None else evidence.variants
    wrong = [each for variant in variants for each in variant.symptoms if each.held_runs < each.runs]
    observed = [each.after or "" for each in wrong]
    if any(text.startswith("executed") for text in observed) or record.claim.cause == "unpickling-runs-code":
        return "critical"
    if record.is_bug:
        if effect.endswith(", more than chance"):
            return "critical"
        if effect.startswith(("every run stops", "episode length", "weights differ")):
            return "high"
        return "low" if all("Error" in text for text in observed) else "medium"
    if record.fix_fails:
        return of_bugs.get(record.claim.part_of) or "medium"
    return "medium" if record.claim.basis == "code" else "low"


def ranked(records: Iterable[Record]) -> list[Record]:
    """By severity, then by confidence; what another project reported comes last, before it what is not assessed."""
    return sorted(records, key=_rank)


def findings(records: Iterable[Record], causes: Sequence[Cause] = ()) -> list[Finding]:
    """Records by rank. Those of one cause are one finding, and so are bugs that plant one fault."""
    found = ranked(records)
    cause_of = {each.claim.fault: each.claim.cause for each in found if each.is_bug and each.claim.cause}
    texts = {cause.id: cause for cause in causes}
    groups: dict[str, list[Record]] = {}
    for each in found:
        claim = each.claim
        key = cause_of.get(claim.fault, claim.fault) if each.is_bug else claim.cause
        groups.setdefault(key or f" {claim.id}", []).append(each)
    return [Finding(tuple(group), texts.get(key)) for key, group in groups.items()]


def faults(records: Iterable[Record], causes: Sequence[Cause] = ()) -> list[Finding]:
    """The bugs that are proven real, by rank."""
    return findings((record for record in records if record.is_bug), causes)


def wrong_statements(records: Iterable[Record], causes: Sequence[Cause] = ()) -> list[Finding]:
    """What documents state and measurement contradicts, by rank."""
    return findings((record for record in records if record.contradicts_document), causes)


def phase(record: Record) -> Phase | None:
    """When to act, by the rule in `PHASES`; None where there is nothing to do."""
    severity = record.claim.assessed
    if not record.claim.action or not (record.is_bug or record.contradicts_document):
        return None
    if severity == "critical" and record.claim.basis != "reported":
        return "now"
    if severity == "high" and record.confidence == "high":
        return "next"
    return "later" if severity in ("critical", "high", "medium") else None


def plan(records: Iterable[Record], causes: Sequence[Cause] = ()) -> dict[Phase, list[Finding]]:
    """The findings of each phase, by rank."""
    found: dict[Phase, list[Finding]] = {name: [] for name in PHASES}
    for each in findings((record for record in records if phase(record) is not None), causes):
        when = phase(each.first)
        if when is not None:
            found[when].append(each)
    return found


def _rank(record: Record) -> tuple[bool, int, int]:
    severity = record.claim.assessed
    place = SEVERITIES.index(severity) if severity is not None else len(SEVERITIES)
    return record.claim.basis == "reported", place, CONFIDENCES.index(record.confidence)
