"""Derives from records what is wrong with them, and what is worth a note."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlverify.evidence.evidence_files import compare
from rlverify.evidence.summarising import span_in_words
from rlverify.project.planting import PIN_ADVICE
from rlverify.records.claims import Claim, Verdict
from rlverify.records.measured import Evidence
from rlverify.records.problems import CLAIM_FELL, HARNESS_FAILED, Problem, ProblemKind, few
from rlverify.verdicts.statistics import place_of
from rlverify.verdicts.verdict import NOT_MEASURED, Record, decide_variant, healthy_outcome, judge

REMEDY = "run `rlverify audit --update`"
REMEDY_OF_FIGURES = "run `rlverify audit --level full --update`"

UNDECIDED_FIGURES = 2
"""How many figures may stay undecided, whatever the number of runs; more say that the experiments are too weak."""


NOTHING_COMMITTED: Mapping[str, Evidence] = {}


def problems_of_all(records: Sequence[Record], committed: Mapping[str, Evidence] = NOTHING_COMMITTED) -> list[Problem]:
    """Where fresh or committed records are not what the catalogue expects, each of them and taken together."""
    problems = [each for record in records for each in problems_of(record, committed.get(record.claim.id))]
    undecided = _undecided_figures(records)
    if len(undecided) > UNDECIDED_FIGURES:
        sentence = (
            f"{len(undecided)} figures are UNDECIDED, of which at most {UNDECIDED_FIGURES} may be; give them runs"
        )
        problems.append(Problem(", ".join(undecided), HARNESS_FAILED, sentence))
    return problems


def notes_of(records: Sequence[Record]) -> list[str]:
    """What is to be told of figures that makes no audit fail, a line each."""
    undecided = _undecided_figures(records)
    allowed = 0 < len(undecided) <= UNDECIDED_FIGURES
    words = f"{', '.join(undecided)}: UNDECIDED, which is allowed for at most {UNDECIDED_FIGURES} figures"
    return [words] if allowed else []


def _undecided_figures(records: Sequence[Record]) -> list[str]:
    """Under a condition, UNDECIDED may be what is expected."""
    return [
        each.claim.id
        for each in records
        if each.claim.figure is not None
        and each.measured_verdict is Verdict.UNDECIDED
        and each.claim.expected_verdict is not Verdict.UNDECIDED
    ]


def problems_of(record: Record, committed: Evidence | None = None) -> list[Problem]:
    """Where a record is not what the catalogue expects; each of its conditions is a record of its own.

    A figure whose interval does not decide is not a problem: some may stay undecided (see `notes_of` and
    `problems_of_all`).
    """
    claim, verdict, grade = record.claim, record.measured_verdict, record.measured_fix_grade
    if record.evidence is None or verdict is None:
        return [Problem(claim.id, CLAIM_FELL, "has no evidence", "stale", remedy_of(claim))]
    if record.misfits:
        sentence = f"{verdict.value}, {'; '.join(record.misfits)}"
        return [Problem(claim.id, CLAIM_FELL, sentence, "stale", remedy_of(claim))]
    if claim.figure is not None and verdict is Verdict.UNDECIDED:
        return []
    if verdict in NOT_MEASURED:
        return [_not_measured(claim, record.evidence, verdict, committed)]
    problems = _of_tolerance(claim, record.evidence)
    if verdict is not claim.expected_verdict:
        kind: ProblemKind = "healthy" if healthy_outcome(record.evidence) == "violated" else "verdict"
        sentence = f"{verdict.value}, expected {claim.expected_verdict.value}{reason(record.evidence, verdict)}"
        problems.append(Problem(claim.id, CLAIM_FELL, sentence, kind))
    if grade is not claim.expected_fix_grade and verdict is not Verdict.REGRESSED:
        told, expected = (each.value if each else "no grade" for each in (grade, claim.expected_fix_grade))
        problems.append(Problem(claim.id, CLAIM_FELL, f"fix {told}, expected {expected}", "grade"))
    return problems


def _of_tolerance(claim: Claim, evidence: Evidence) -> list[Problem]:
    """Where a repeated measurement may differ by so much that the verdict would be another one."""
    figure, measured = claim.figure, evidence.figure
    if figure is None or measured is None:
        return []
    moved = measured.low - figure.tolerance, measured.high + figure.tolerance
    if place_of(moved, figure.claimed) == place_of((measured.low, measured.high), figure.claimed):
        return []
    span = span_in_words(measured.low, measured.high)
    sentence = f"its tolerance of {figure.tolerance:g} lets the verdict change: the interval is {span}"
    return [Problem(claim.id, CLAIM_FELL, f"{sentence}; choose a smaller tolerance")]


def remedy_of(claim: Claim) -> str:
    """The command that measures a claim again and replaces its evidence."""
    return REMEDY if claim.figure is None else REMEDY_OF_FIGURES


def _not_measured(claim: Claim, evidence: Evidence, verdict: Verdict, committed: Evidence | None) -> Problem:
    """Of a claim that came to no verdict: it fell if its committed evidence is as expected."""
    sentence = f"{verdict.value}{reason(evidence, verdict)}"
    if verdict is Verdict.STALE:
        told, _, pin = sentence.partition(f"; {PIN_ADVICE}")
        return Problem(claim.id, CLAIM_FELL, told, "pin", f"{PIN_ADVICE}{pin}" if pin else "")
    if committed is None or judge(committed) is not claim.expected_verdict:
        return Problem(claim.id, HARNESS_FAILED, sentence)
    kind: ProblemKind = "healthy" if evidence.figure is None and _healthy_fell(evidence, committed) else "verdict"
    expected = f"{verdict.value}, expected {claim.expected_verdict.value}"
    return Problem(claim.id, CLAIM_FELL, f"{expected}{reason(evidence, verdict)}", kind)


def _healthy_fell(evidence: Evidence, committed: Evidence) -> bool:
    """Whether the code without a fault crashes, or no longer holds where it held."""
    healthy = evidence.variant("healthy")
    if healthy is None or healthy.errors:
        return True
    return healthy_outcome(committed) != "violated" and healthy_outcome(evidence) != "held"


def compared(record: Record, committed: Evidence | None) -> list[Problem]:
    """Where fresh evidence is not what is committed; nothing of a claim that fell by its verdict or its grade."""
    claim, fresh = record.claim, record.evidence
    if fresh is None or any(problem.fell for problem in problems_of(record, committed)):
        return []
    if committed is None:
        return [Problem(claim.id, CLAIM_FELL, "has no committed evidence", "stale", remedy_of(claim))]
    figure = claim.figure
    values = (
        compare(committed, fresh, figure.tolerance, repeats=figure.repeats) if figure else compare(committed, fresh)
    )
    if not values:
        return []
    sentence = f"differs from the committed evidence: {few(values, between='; ')}"
    return [Problem(claim.id, CLAIM_FELL, sentence, "values", f"if that is right, {remedy_of(claim)}")]


def reason(evidence: Evidence, verdict: Verdict) -> str:
    """Why a claim came to this verdict, as the end of a sentence; empty where the verdict says it all."""
    if evidence.figure is not None and evidence.figure.errors:
        return f", {evidence.figure.errors[0]}"
    for variant in evidence.variants:
        if verdict is Verdict.ERROR and variant.errors:
            return f", {variant.variant}, {variant.errors[0]}"
        if verdict is Verdict.STALE and variant.stale is not None:
            return f", {variant.stale}"
        if verdict in (Verdict.UNREACHED, Verdict.REGRESSED) and variant.reached is False:
            if variant.hint is not None:
                return f", {variant.variant}: production code does not execute the planted fault: {variant.hint}"
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
