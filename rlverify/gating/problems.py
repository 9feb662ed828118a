"""Derives from records what is wrong with them, and what is worth a note."""

from __future__ import annotations

from collections.abc import Sequence

from rlverify.records.claims import Verdict
from rlverify.records.exit_codes import CLAIM_FELL, HARNESS_FAILED
from rlverify.records.measured import Evidence
from rlverify.records.problems import Problem
from rlverify.reporting.record import Record
from rlverify.verdicts.verdict import NOT_MEASURED, decide_variant

SHOWN_DIFFERENCES = 3
REMEDY = "run `rlverify audit --update`"
REMEDY_OF_FIGURES = "run `rlverify audit --level full --update`"

UNDECIDED_FIGURES = 2
"""How many figures may stay undecided, whatever the number of runs; more say that the experiments are too weak."""


def problems_of_all(records: Sequence[Record]) -> list[Problem]:
    """Where fresh or committed records are not what the catalogue expects, each of them and taken together."""
    problems = [problem for record in records for problem in problems_of(record)]
    undecided = _undecided_figures(records)
    if len(undecided) > UNDECIDED_FIGURES:
        sentence = (
            f"{len(undecided)} figures are UNDECIDED, of which at most {UNDECIDED_FIGURES} may be; give them runs"
        )
        problems.append(Problem(", ".join(undecided), HARNESS_FAILED, sentence))
    return problems


def notes_of(records: Sequence[Record]) -> list[str]:
    """What is to be told of figures that makes no audit fail, a line each."""
    stale = [record.claim.id for record in records if record.claim.figure is not None and record.misfits]
    undecided = _undecided_figures(records)
    notes = []
    if stale:
        notes.append(f"{', '.join(stale)}: STALE, measured of another experiment or other code; {REMEDY_OF_FIGURES}")
    if 0 < len(undecided) <= UNDECIDED_FIGURES:
        notes.append(f"{', '.join(undecided)}: UNDECIDED, as at most {UNDECIDED_FIGURES} figures may be")
    return notes


def _undecided_figures(records: Sequence[Record]) -> list[str]:
    return [each.claim.id for each in records if each.claim.figure is not None and each.verdict is Verdict.UNDECIDED]


def problems_of(record: Record) -> list[Problem]:
    """Where a record is not what the catalogue expects.

    Of a figure, stale evidence and an interval that decides nothing are none: measuring them all takes an hour, and
    some may stay undecided (see `notes_of` and `problems_of_all`).
    """
    claim, verdict, grade = record.claim, record.verdict, record.fix_grade
    if record.evidence is None or verdict is None:
        remedy = REMEDY if claim.figure is None else REMEDY_OF_FIGURES
        return [Problem(claim.id, CLAIM_FELL, f"has no evidence; {remedy}")]
    if claim.figure is not None and verdict in (Verdict.STALE, Verdict.UNDECIDED):
        return []
    if record.misfits:
        return [Problem(claim.id, CLAIM_FELL, f"{verdict.value}, {'; '.join(record.misfits)}; {REMEDY}")]
    if verdict in NOT_MEASURED:
        return [Problem(claim.id, HARNESS_FAILED, f"{verdict.value}{_reason(record.evidence, verdict)}")]
    problems = []
    if verdict is not claim.expected_verdict:
        problems.append(Problem(claim.id, CLAIM_FELL, f"{verdict.value}, expected {claim.expected_verdict.value}"))
    if grade is not claim.expected_fix_grade:
        told, expected = (each.value if each else "no grade" for each in (grade, claim.expected_fix_grade))
        problems.append(Problem(claim.id, CLAIM_FELL, f"fix {told}, expected {expected}"))
    return problems


def _reason(evidence: Evidence, verdict: Verdict) -> str:
    if evidence.figure is not None and evidence.figure.errors:
        return f", {evidence.figure.errors[0]}"
    for variant in evidence.variants:
        if verdict is Verdict.ERROR and variant.errors:
            return f", {variant.variant}, {variant.errors[0]}"
        if verdict is Verdict.STALE and variant.stale is not None:
            return f", {variant.stale}"
        if verdict is Verdict.UNREACHED and variant.reached is False:
            return f", {variant.variant}: the planted fault was never executed, so the probe proves nothing"
        if verdict is Verdict.UNDECIDED and variant.variant == "faulty" and evidence.shows:
            broken = [
                f"{each.symptom!r} ({each.runs - each.held_runs} of {each.runs})"
                for each in variant.symptoms
                if each.held_runs < each.runs
            ]
            return f", faulty broke {', '.join(broken)} and was to break {', '.join(map(repr, evidence.shows))}"
        if verdict is Verdict.UNDECIDED and 0 < variant.held_runs < variant.runs:
            low, high = decide_variant(variant).low, decide_variant(variant).high
            share = f"held in {variant.held_runs} of {variant.runs} runs"
            return f", {variant.variant} {share} (95 % interval {low:.2f} to {high:.2f})"
    return ""


def and_remedy(differences: Sequence[str]) -> str:
    """The first of the differences, how many more there are, and how to accept them."""
    shown = [*differences[:SHOWN_DIFFERENCES]]
    if len(differences) > len(shown):
        shown.append(f"and {len(differences) - len(shown)} more differences")
    return f"{'; '.join(shown)}; if that is right, {REMEDY}"
