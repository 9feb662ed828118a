"""What was measured, in words: of a record, and of what a document got wrong."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Final

from rlverify.records.claims import Claim, Figure, FixGrade, Verdict
from rlverify.records.measured import FigureEvidence, SymptomEvidence, Variant
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


EMPTY: Final = "(empty)"
REINJECTED: Final = re.compile(r" re-injected( \([^)]*\))?")
SENTENCE_END: Final = re.compile(r"(?<=[.!?]) (?=[A-Z])")

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
    "reported": "Another project reported the bug, and whether it had it cannot be checked here.",
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


def sentence(record: Record) -> str:
    """What a person sees who tries what the claim is about, or else what it states."""
    claim = record.claim
    if not record.is_bug and (found := difference(record)):
        return found
    is_seen = record.as_expected and record.verdict is Verdict.CONFIRMED
    seen = (claim.observed or SENTENCE_END.split(REINJECTED.sub("", claim.if_true))[0]) if is_seen else ""
    return seen or claim.statement


def difference(record: Record) -> str:
    """What measurement does not support, in a sentence or two; empty where it supports the claim."""
    if not record.is_unsupported or record.evidence is None:
        return ""
    if record.claim.figure is not None:
        return f"Measured: {interval(record)}{_more_or_less(record)}; {origin_and_claimed(record.claim.figure)}."
    told = record.claim.fix_observed if record.is_bug else record.claim.observed
    if told and record.as_expected:
        return told
    if record.fix_grade in FIX_WORDS:
        return f"The fix {FIX_WORDS[record.fix_grade]}{_first_value(record, 'documented_fix')}."
    if record.verdict is Verdict.NOT_REPRODUCED:
        return "The planted bug had no observable effect."
    if record.verdict is Verdict.CONFIRMED and record.claim.fault is None:
        return f"Observed{', and it contradicts the document' * record.contradicts_document}."
    if record.verdict is Verdict.CONFIRMED:
        return f"With what is described{_first_value(record, 'faulty')}."
    return f"Measured{_first_value(record, 'healthy')}."


def _first_value(record: Record, variant: Variant) -> str:
    """The first symptom of a variant that is not as expected; of a harmful fix, one that it adds."""
    is_harm = variant == "documented_fix" and record.fix_grade is FixGrade.HARMFUL
    before = {each.symptom for each in _broken(record, "faulty")} if is_harm else set()
    found = [each for each in _broken(record, variant) if each.symptom not in before]
    if not found:
        return ""
    expected = f", expected {found[0].before or EMPTY}" if found[0].before is not None else ""
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return f": {found[0].symptom}: {value(found[0])}{expected}{more}"


def value(symptom: SymptomEvidence) -> str:
    """What was observed of a symptom, and how often where not every run is alike."""
    held = symptom.held_runs == symptom.runs
    told = ("as expected" if held else "not as expected") if symptom.after is None else symptom.after or EMPTY
    return (
        told if held or not symptom.held_runs else f"{told} (as expected in {symptom.held_runs} of {symptom.runs} runs)"
    )


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


def _broken(record: Record, variant: Variant) -> list[SymptomEvidence]:
    found = record.evidence.variant(variant) if record.evidence is not None else None
    return [] if found is None else [each for each in found.symptoms if each.held_runs < each.runs]


def prose(text: str) -> str:
    """A text that Markdown shows as it is written; what stands between backticks is code."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if number % 2 else _escaped(part) for number, part in enumerate(parts))


def _escaped(text: str) -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace("\\", "\\\\").replace("*", "\\*")
    return re.sub(r"(?<!\w)_+|_+(?!\w)", lambda found: found[0].replace("_", "\\_"), escaped)


def cell(text: str) -> str:
    """A text that Markdown shows as it is written, inside its table cell."""
    return "<br>".join(prose(text).replace("|", "\\|").splitlines()) or "(empty)"
