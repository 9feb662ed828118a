"""What was measured, in words: of a record, and of what a document got wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rlverify.records.claims import Claim, FixGrade, Verdict
from rlverify.records.measured import SymptomEvidence, VariantEvidence
from rlverify.records.runs import Variant
from rlverify.reporting.figure_phrasing import origin_and_claimed
from rlverify.reporting.record import Record

SHOWN_SYMPTOMS: Final = 3
EMPTY: Final = "(empty)"

FIX_WORDS: Final = {
    FixGrade.PARTIAL: "fixes only a part",
    FixGrade.NO_EFFECT: "does not restore what is broken without it",
    FixGrade.HARMFUL: "breaks what held without it",
}


def outcome(record: Record) -> str:
    """The verdict as a word."""
    return record.verdict.value if record.verdict else "NO EVIDENCE"


def outcome_in_words(record: Record) -> str:
    """The verdict as a word; a CONFIRMED that contradicts the document is marked as such."""
    against = record.claim.against_document and record.verdict is Verdict.CONFIRMED
    return f"{outcome(record)}, contradicts the document" if against else outcome(record)


def grade(record: Record) -> str:
    """The grade of the documented fix as a word, or a dash."""
    return record.fix_grade.value if record.fix_grade else "-"


def difference(record: Record) -> str:
    """What measurement does not support, in a sentence or two; empty where it supports the claim."""
    if not record.is_unsupported or record.evidence is None:
        return ""
    if record.claim.figure is not None:
        return f"Measured: {interval(record)}; {origin_and_claimed(record.claim.figure)}."
    if record.fix_grade in FIX_WORDS:
        broken = _violated(record, "documented_fix", new=record.fix_grade is FixGrade.HARMFUL)
        told = f"The applied fix {FIX_WORDS[record.fix_grade]}{f': {broken}' if broken else ''}."
        return f"The defect is real. {told}" if record.verdict is Verdict.CONFIRMED else told
    if record.verdict is Verdict.NOT_REPRODUCED:
        return "The planted bug had no observable effect."
    if record.verdict is Verdict.CONFIRMED and record.claim.fault is None:
        return f"Observed, and it contradicts the document: {_values(_symptoms(record, 'healthy'))}."
    if record.verdict is Verdict.CONFIRMED:
        return f"With what is described applied: {_violated(record, 'faulty')}."
    return f"Measured: {_unexpected(record)}."


def symptom(record: Record) -> str:
    """What was observed that should not be: the difference, or else what a confirmed fault violates; can be empty."""
    found = difference(record)
    if found or record.verdict is not Verdict.CONFIRMED:
        return found
    broken = _violated(record, "faulty")
    return f"With the fault: {broken}." if broken else ""


def interval(record: Record) -> str:
    """Mean and 95 % interval of a figure, with its unit; empty where none was measured."""
    found = record.evidence.figure if record.evidence is not None else None
    if found is None or record.claim.figure is None:
        return ""
    return f"{found.mean:g} {record.claim.figure.unit} ({found.low:g} to {found.high:g})"


def statement(claim: Claim) -> str:
    """What is stated; a word before it says so where no document does."""
    return f"Implied, not stated: {claim.statement}" if claim.basis == "implied" else claim.statement


def _violated(record: Record, variant: Variant, *, new: bool = False) -> str:
    """The symptoms that are violated in a variant, with their values; only those that held with the fault, if new."""
    broken = _broken(record, variant)
    if new:
        before = {each.symptom for each in _broken(record, "faulty")}
        broken = [each for each in broken if each.symptom not in before]
    return _values(broken)


def _unexpected(record: Record) -> str:
    """What was observed on healthy code, where what should have been is what is stated."""
    return _joined([_beside_expected(each) for each in _broken(record, "healthy")])


def _broken(record: Record, variant: Variant) -> list[SymptomEvidence]:
    return [each for each in _symptoms(record, variant) if each.held_runs < each.runs]


def _symptoms(record: Record, variant: Variant) -> tuple[SymptomEvidence, ...]:
    found = record.evidence.variant(variant) if record.evidence is not None else None
    return () if found is None else found.symptoms


def _values(symptoms: Sequence[SymptomEvidence]) -> str:
    return _joined([_told(each) for each in symptoms])


def _joined(told: Sequence[str]) -> str:
    more = len(told[SHOWN_SYMPTOMS:])
    return "; ".join([*told[:SHOWN_SYMPTOMS], *([f"and {more} more"] if more else [])])


def _told(symptom: SymptomEvidence) -> str:
    held = symptom.held_runs == symptom.runs
    if symptom.before is None or symptom.after is None:
        return (
            f"{symptom.symptom}: {'as it should be' if held else 'violated, with values that differ between machines'}"
        )
    if held:
        return f"{symptom.symptom}: {symptom.after or EMPTY}"
    return f"{symptom.symptom}: {symptom.after or EMPTY} instead of {symptom.before or EMPTY}"


def _beside_expected(symptom: SymptomEvidence) -> str:
    if symptom.before is None or symptom.after is None:
        return f"{symptom.symptom}: not what the statement expects, by values that differ between machines"
    return f"{symptom.symptom}: {symptom.after or EMPTY} (the statement expects: {symptom.before or EMPTY})"


def symptom_outcome(name: str, variant: VariantEvidence) -> tuple[str, str]:
    """What became of a symptom in a variant: the values where they repeat (else empty), and how often it held."""
    found = next((each for each in variant.symptoms if each.symptom == name), None)
    if found is None:
        return "", "not observed"
    word = "violated" if found.held_runs == 0 else "holds"
    count = found.runs if found.held_runs == 0 else found.held_runs
    has_values = found.before is not None and found.after is not None
    values = f"expected {found.before or EMPTY}; observed {found.after or EMPTY}" if has_values else ""
    return values, f"{word} in {count}/{found.runs}"
