"""What was measured, in words: of a record, and of what a document got wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rlverify.records.claims import Claim, Figure, FixGrade, Verdict
from rlverify.records.measured import FigureEvidence, SymptomEvidence, Variant, VariantEvidence
from rlverify.verdicts.verdict import Record

LARGE: Final = 1000.0
"""An effect size from here on says that the runs hardly differ, and is given in full rather than as a power of ten."""


def claimed_in_words(figure: Figure) -> str:
    """The interval that decides."""
    low, high = figure.claimed
    if math.isinf(high):
        return f"more than {low:g} {figure.unit}"
    return f"less than {high:g} {figure.unit}" if math.isinf(low) else f"{low:g} to {high:g} {figure.unit}"


def origin(figure: Figure) -> str:
    """Say who claimed the interval of a figure."""
    return "said" if figure.document_gives == "interval" else "criterion, ours"


def origin_and_claimed(figure: Figure) -> str:
    """The interval that decides, and whose it is."""
    return f"{origin(figure)}: {claimed_in_words(figure)}"


def effect_in_words(effect: float | None) -> str:
    """An effect size, and what a large one says."""
    if effect is None:
        return "none: all runs are the same"
    return f"{effect:,.0f} (the runs hardly differ)" if abs(effect) >= LARGE else f"{effect:g}"


def measured_in_words(measured: FigureEvidence, unit: str) -> str:
    """The mean with its interval, the effect size and the number of runs."""
    size = measured.effect_size
    effect = "all runs alike" if size is None else f"effect size {effect_in_words(size)}"
    interval = f"95 % interval {measured.low:g} to {measured.high:g}"
    return f"{measured.mean:g} {unit} ({interval}), {effect}, {measured.runs} runs"


SHOWN_SYMPTOMS: Final = 3
EMPTY: Final = "(empty)"

FIX_WORDS: Final = {
    FixGrade.PARTIAL: "repairs only a part",
    FixGrade.NO_EFFECT: "leaves the symptom",
    FixGrade.HARMFUL: "breaks something else",
}


def outcome(record: Record) -> str:
    """The verdict as a word."""
    return record.verdict.value if record.verdict else "NO EVIDENCE"


def outcome_in_words(record: Record) -> str:
    """The verdict as a word; a CONFIRMED that contradicts the document is marked as such."""
    against = record.claim.against_document and record.verdict is Verdict.CONFIRMED and record.contradicts_document
    return f"{outcome(record)}, contradicts the document" if against else outcome(record)


def grade(record: Record) -> str:
    """The grade of the documented fix as a word, or a dash."""
    return record.fix_grade.value if record.fix_grade else "-"


def told(record: Record) -> str:
    """What was measured under the claim's own condition and what was expected, in one line."""
    record = replace(record, conditions=())
    line = f"{outcome(record)}, expected {record.claim.expected_verdict.value}"
    if record.claim.expected_fix_grade is not None:
        line += f"; fix {grade(record)}, expected {record.claim.expected_fix_grade.value}"
    return "; ".join([line, *record.misfits])


LIMITS: Final = {
    "reconstruction": "The document gives only a title; the bug that is re-injected is our reconstruction.",
    "implied": "The document does not state this, or not in the form that is tested.",
    "toy": "Measured on a small synthetic problem, not in training runs.",
    "tensor": "Measured on one component, without training.",
}


def limits(claim: Claim) -> list[str]:
    """What the verdict of a claim does not show, a sentence each."""
    found = [LIMITS[key] for key in (claim.basis, claim.scale) if key in LIMITS]
    if claim.hedge:
        found.append(f"The document says “{claim.hedge}”; a case in which it does not happen does not contradict it.")
    if claim.figure is None and len(claim.seeds) == 1:
        found.append("Measured with one seed.")
    return found


CURES: Final = {verdict: verdict.value for verdict in Verdict} | {
    Verdict.CONFIRMED: "cures",
    Verdict.REFUTED: "does not cure",
    Verdict.UNDECIDED: "undecided",
}
"""What the verdict under a condition says of a fix."""

GROUPS_OF_CONDITIONS: Final = (
    ("The claim", False, {verdict: verdict.value for verdict in Verdict}),
    ("The fix", True, CURES),
)
"""What conditions are about, whether they are about the fix, and the words for their verdicts."""


def spread(record: Record) -> str:
    """The verdicts, or what they say of the fix, under how many conditions; empty where they do not differ."""
    told = []
    if record.depends and record.measured_verdict is not None:
        told.append(_spread(record.measured_verdict.value, record, of_fix=False))
    if record.fix_depends and record.measured_fix_grade is not None:
        told.append(f"fix {_spread(record.measured_fix_grade.value, record, of_fix=True)}")
    return "; ".join(told)


def _spread(own: str, record: Record, *, of_fix: bool) -> str:
    others = record.of_conditions(of_fix=of_fix)
    counts = ", ".join(
        f"{CURES[verdict] if of_fix else verdict.value} under {others.count(verdict)}"
        for verdict in Verdict
        if verdict in others
    )
    opposite = record.has_opposite(of_fix=of_fix)
    told = "the opposite was measured" if opposite else "no opposite was measured; some runs do not decide"
    return f"{own} under the claim's own condition; of {len(others)} other conditions: {counts} ({told})"


def symptom(record: Record) -> str:
    """The first symptom of a defect that was re-injected, with its values; empty where it shows none."""
    broken = _broken(record, "faulty")
    return _told(broken[0]) if broken else ""


def difference(record: Record, most: int = SHOWN_SYMPTOMS) -> str:
    """What measurement does not support, in a sentence or two; empty where it supports the claim."""
    if not record.is_unsupported or record.evidence is None:
        return ""
    if record.claim.figure is not None:
        return f"Measured: {interval(record)}{_more_or_less(record)}; {origin_and_claimed(record.claim.figure)}."
    if record.fix_grade in FIX_WORDS:
        broken = _violated(record, "documented_fix", most, new=record.fix_grade is FixGrade.HARMFUL)
        told = f"The fix {FIX_WORDS[record.fix_grade]}{f': {broken}' if broken else ''}."
        return f"The defect is real. {told}" if record.verdict is Verdict.CONFIRMED else told
    if record.verdict is Verdict.NOT_REPRODUCED:
        return "The planted bug had no observable effect."
    if record.verdict is Verdict.CONFIRMED and record.claim.fault is None:
        contradiction = ", and it contradicts the document" if record.contradicts_document else ""
        return f"Observed{contradiction}: {_values(_symptoms(record, 'healthy'), most)}."
    if record.verdict is Verdict.CONFIRMED:
        return f"With what is described applied: {_violated(record, 'faulty', most)}."
    return f"Measured: {_joined([_beside_expected(each) for each in _broken(record, 'healthy')], most)}."


def interval(record: Record) -> str:
    """Mean and 95 % interval of a figure, with its unit; empty where none was measured."""
    found = record.evidence.figure if record.evidence is not None else None
    if found is None or record.claim.figure is None:
        return ""
    return f"{found.mean:g} {record.claim.figure.unit} ({found.low:g} to {found.high:g})"


def _more_or_less(record: Record) -> str:
    """On which side of what is claimed the whole interval is."""
    found, figure = record.evidence.figure if record.evidence is not None else None, record.claim.figure
    if found is None or figure is None:
        return ""
    low, high = figure.claimed
    if found.high < 0 < low or high < 0 < found.low:
        return ", the opposite"
    return ", more than stated" if found.low > high else ", less than stated" * (found.high < low)


def statement(claim: Claim) -> str:
    """What is stated; a word before it says so where no document does."""
    return f"Implied, not stated in this form: {claim.statement}" if claim.basis == "implied" else claim.statement


def _violated(record: Record, variant: Variant, most: int, *, new: bool = False) -> str:
    """The symptoms that are violated in a variant, with their values; only those that held with the fault, if new."""
    broken = _broken(record, variant)
    if new:
        before = {each.symptom for each in _broken(record, "faulty")}
        broken = [each for each in broken if each.symptom not in before]
    return _values(broken, most)


def _broken(record: Record, variant: Variant) -> list[SymptomEvidence]:
    return [each for each in _symptoms(record, variant) if each.held_runs < each.runs]


def _symptoms(record: Record, variant: Variant) -> tuple[SymptomEvidence, ...]:
    found = record.evidence.variant(variant) if record.evidence is not None else None
    return () if found is None else found.symptoms


def _values(symptoms: Sequence[SymptomEvidence], most: int) -> str:
    return _joined([_told(each) for each in symptoms], most)


def _joined(told: Sequence[str], most: int) -> str:
    more = len(told[most:])
    return "; ".join([*told[:most], *([f"and {more} more symptom{'s' * (more != 1)}"] if more else [])])


def _told(symptom: SymptomEvidence) -> str:
    held = symptom.held_runs == symptom.runs
    if symptom.before is None or symptom.after is None:
        return (
            f"{symptom.symptom}: {'as it should be' if held else 'violated, with values that differ between machines'}"
        )
    if held:
        return f"{symptom.symptom}: {symptom.after or EMPTY}"
    return f"{symptom.symptom}: {symptom.after or EMPTY}, expected {symptom.before or EMPTY}"


def _beside_expected(symptom: SymptomEvidence) -> str:
    if symptom.before is None or symptom.after is None:
        return f"{symptom.symptom}: not what is expected if true, with values that differ between machines"
    return f"{symptom.symptom}: {symptom.after or EMPTY} (expected if true: {symptom.before or EMPTY})"


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
