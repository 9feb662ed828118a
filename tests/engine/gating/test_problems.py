"""What is wrong with a record, and the exit code of all problems together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rlverify.gating.problem_rules import compared, notes_of, problems_of, problems_of_all, reason
from rlverify.project.planting import PIN_ADVICE
from rlverify.records.claims import FixGrade, Verdict
from rlverify.records.measured import Evidence, SymptomEvidence, Variant, VariantEvidence
from rlverify.records.problems import Problem, ProblemKind, exit_code_of, outcome_of, with_advice
from rlverify.verdicts.verdict import Record
from tests.engine.reporting.records import CLAIM, MISFIT, figure, measured, simple

GOOD = measured(simple(1), healthy=2, faulty=0)
FELL, STALE, HARNESS = (
    Problem("A-1", 1, "REFUTED, expected CONFIRMED", "verdict"),
    Problem("A-2", 1, "has no committed evidence", "stale", "run `rlverify audit --update`"),
    Problem("A-3", 2, "ERROR"),
)


def evidence_of(record: Record) -> Evidence:
    assert record.evidence is not None
    return record.evidence


def with_variant(name: Variant, **changes: Any) -> Record:
    """The good record after changing one of its variants."""
    variants = [replace(each, **changes) if each.variant == name else each for each in evidence_of(GOOD).variants]
    return replace(GOOD, evidence=replace(evidence_of(GOOD), variants=tuple(variants)))


@pytest.mark.parametrize(
    ("problems", "exit_code"),
    [
        ([], 0),
        ([STALE], 1),
        ([FELL], 1),
        ([HARNESS], 2),
        ([STALE, HARNESS], 2),
        ([FELL, HARNESS], 1),
        ([HARNESS, STALE, replace(FELL, kind="values")], 1),
    ],
)
def test_a_fallen_claim_outranks_the_harness_and_that_what_is_out_of_date(
    problems: list[Problem], exit_code: int
) -> None:
    assert exit_code_of(problems) == exit_code


@pytest.mark.parametrize(("kind", "kept"), [("healthy", False), ("verdict", False), ("grade", False), ("values", True)])
def test_after_a_regression_nothing_advises_to_commit_it(kind: ProblemKind, kept: bool) -> None:
    problems = [replace(FELL, kind=kind), STALE]
    assert (with_advice(problems)[1] == STALE) is kept
    assert ("--update" in str(outcome_of(problems))) is kept


TROUBLES: list[tuple[Record, Verdict, ProblemKind]] = [
    (with_variant("healthy", runs=1, errors=("seed 1: boom",)), Verdict.ERROR, "healthy"),
    (with_variant("faulty", runs=1, errors=("seed 1: boom",)), Verdict.ERROR, "verdict"),
    (with_variant("healthy", held_runs=1), Verdict.UNDECIDED, "healthy"),
    (with_variant("faulty", held_runs=1), Verdict.UNDECIDED, "verdict"),
    (with_variant("faulty", reached=False), Verdict.UNREACHED, "verdict"),
]


@pytest.mark.parametrize(("record", "verdict", "kind"), TROUBLES)
def test_a_claim_that_cannot_be_measured_any_more_fell_and_one_that_never_could_is_trouble_of_the_harness(
    record: Record, verdict: Verdict, kind: ProblemKind
) -> None:
    why = reason(evidence_of(record), verdict)
    (fell,) = problems_of(record, evidence_of(GOOD))
    assert fell == Problem("TOY-01", 1, f"{verdict.value}, expected CONFIRMED{why}", kind)
    assert problems_of_all([record], {"TOY-01": evidence_of(GOOD)}) == [fell]
    assert compared(record, evidence_of(GOOD)) == []  # its verdict says it already
    for committed in (None, evidence_of(measured(simple(1), healthy=2, faulty=2))):
        (trouble,) = problems_of(record, committed)
        assert trouble == Problem("TOY-01", 2, f"{verdict.value}{why}")
    assert why.startswith(", ")


BROKEN = tuple(SymptomEvidence(name, held, 2, None, None) for name, held in (("count", 1), ("mean", 2), ("total", 0)))
SHOWS = replace(evidence_of(with_variant("faulty", symptoms=BROKEN, held_runs=0)), shows=("total", "size"))


@pytest.mark.parametrize(
    ("evidence", "verdict", "why"),
    [
        (GOOD, Verdict.CONFIRMED, ""),
        (with_variant("faulty", errors=("seed 0: boom", "seed 1: bang")), Verdict.ERROR, ", faulty, seed 0: boom"),
        (with_variant("faulty", errors=("seed 0: boom",)), Verdict.REGRESSED, ""),
        (with_variant("faulty", reached=False), Verdict.ERROR, ""),
        (
            with_variant("faulty", reached=False),
            Verdict.REGRESSED,
            ", faulty: the planted fault was never executed, so the probe proves nothing",
        ),
        (
            with_variant("faulty", reached=False, hint="plant it in `toy:fast`"),
            Verdict.UNREACHED,
            ", faulty: production code does not execute the planted fault: plant it in `toy:fast`",
        ),
        # one of two runs: 1 - (1 - p)^2 is 2.5 % at p = 0.013
        (
            with_variant("healthy", held_runs=1),
            Verdict.UNDECIDED,
            ", healthy held in 1 of 2 runs (95 % interval 0.01 to 0.99)",
        ),
        (with_variant("healthy", held_runs=1), Verdict.UNREACHED, ""),
    ],
)
def test_the_reason_of_a_verdict_is_told(evidence: Record, verdict: Verdict, why: str) -> None:
    assert reason(evidence_of(evidence), verdict) == why


def test_the_reason_names_the_symptoms_that_a_fault_breaks_and_is_to_break() -> None:
    why = ", faulty broke 'count' (1 of 2), 'total' (2 of 2) and was to break 'total', 'size'"
    assert reason(SHOWS, Verdict.UNDECIDED) == why
    assert reason(SHOWS, Verdict.REGRESSED) == ""
    healthy, faulty = SHOWS.variants
    unsteady = replace(SHOWS, variants=(replace(healthy, held_runs=1), faulty))
    assert reason(unsteady, Verdict.UNDECIDED).startswith(", healthy held in 1 of 2 runs")


def test_the_reason_of_a_figure_is_its_first_crash() -> None:
    evidence = evidence_of(figure(-2.0, 3.0))
    assert evidence.figure is not None
    crashed = replace(evidence, figure=replace(evidence.figure, errors=("seed 3: boom", "seed 4: bang")))
    assert reason(crashed, Verdict.ERROR) == ", seed 3: boom"
    assert reason(evidence, Verdict.REFUTED) == ""


@pytest.mark.parametrize("committed", [None, evidence_of(GOOD)])
def test_a_stale_pin_is_out_of_date(committed: Evidence | None) -> None:
    (problem,) = problems_of(with_variant("faulty", runs=0, stale="pins something else"), committed)
    assert problem == Problem("TOY-01", 1, "STALE, pins something else", "pin")


def test_the_advice_on_a_stale_pin_is_a_remedy() -> None:
    stale = f"a changed (pinned 1, now 2); {PIN_ADVICE}a`"
    (problem,) = problems_of(with_variant("faulty", runs=0, stale=stale), None)
    assert (problem.sentence, problem.remedy) == ("STALE, a changed (pinned 1, now 2)", f"{PIN_ADVICE}a`")


def test_violated_healthy_code_is_named_as_such_and_its_fix_is_not_graded() -> None:
    claim = replace(CLAIM, expected_fix_grade=FixGrade.CURED)
    regressed = measured(claim, healthy=0, faulty=0, documented_fix=0)
    assert problems_of(regressed) == [Problem("TOY-01", 1, "REGRESSED, expected CONFIRMED", "healthy")]
    healthy, *planted = evidence_of(regressed).variants
    unreached = replace(evidence_of(regressed), variants=(healthy, *(replace(each, reached=False) for each in planted)))
    (problem,) = problems_of(replace(regressed, evidence=unreached))
    assert problem.sentence.startswith("REGRESSED, expected CONFIRMED, faulty: the planted fault was never executed")
    refuted = measured(simple(4, fault=None), healthy=0)
    assert [each.kind for each in problems_of(refuted)] == ["healthy"]
    nothing_found = measured(simple(1), healthy=2, faulty=2)
    assert [each.kind for each in problems_of(nothing_found)] == ["verdict"]
    graded = measured(claim, healthy=2, faulty=0, documented_fix=0)
    assert problems_of(graded) == [Problem("TOY-01", 1, "fix NO EFFECT, expected CURED", "grade")]
    assert problems_of(replace(graded, claim=replace(claim, expected_fix_grade=None))) == [
        Problem("TOY-01", 1, "fix NO EFFECT, expected no grade", "grade")
    ]


def test_other_values_make_a_claim_fall_and_other_code_alone_does_not() -> None:
    committed = evidence_of(GOOD)
    other_code = replace(GOOD, changed=("toy:restore",))
    assert problems_of(other_code, committed) == compared(other_code, committed) == []
    healthy, faulty = committed.variants
    other = replace(faulty, symptoms=tuple(replace(each, after="7") for each in faulty.symptoms))
    (values,) = compared(replace(other_code, evidence=replace(committed, variants=(healthy, other))), committed)
    assert (values.subject, values.exit_code, values.kind) == ("TOY-01", 1, "values")
    assert values.sentence.startswith("differs from the committed evidence: faulty: 'count | all' observed 7")
    assert values.remedy == "if that is right, run `rlverify audit --update`"
    assert compared(measured(simple(1), healthy=0, faulty=0), committed) == []  # which has fallen by its verdict


def test_evidence_for_another_claim_is_stale_and_none_at_all_too() -> None:
    update, full = "run `rlverify audit --update`", "run `rlverify audit --level full --update`"
    (stale,) = problems_of(replace(GOOD, misfits=(MISFIT, "another probe")))
    assert stale == Problem("TOY-01", 1, f"STALE, {MISFIT}; another probe", "stale", update)
    (missing,) = compared(GOOD, None)
    assert missing == Problem("TOY-01", 1, "has no committed evidence", "stale", update)
    assert not stale.fell
    assert problems_of(Record(simple(1), None)) == [Problem("TOY-01", 1, "has no evidence", "stale", update)]
    assert problems_of(Record(figure(-2.0, 3.0).claim, None)) == [
        Problem("TOY-09", 1, "has no evidence", "stale", full)
    ]


def test_evidence_of_a_figure_that_does_not_fit_is_a_problem() -> None:
    stale = replace(figure(-2.0, 3.0), misfits=(MISFIT,))
    full = "run `rlverify audit --level full --update`"
    assert problems_of(stale) == [Problem("TOY-09", 1, f"STALE, {MISFIT}", "stale", full)]
    assert notes_of([stale]) == []


@pytest.mark.parametrize(
    ("interval", "claimed", "tolerance", "changes"),
    [
        ((17.0, 23.0), (15.0, 25.0), 2.0, False),
        ((17.0, 23.0), (15.0, 25.0), 2.1, True),
        ((-2.0, 3.0), (15.0, 25.0), 11.9, False),
        ((-2.0, 3.0), (15.0, 25.0), 12.0, True),
        ((-2.0, 3.0), (15.0, 25.0), 100.0, True),  # moved by it, the interval is apart on the other side
        ((10.0, 20.0), (15.0, 25.0), 7.0, False),  # undecided as it is
    ],
)
def test_a_tolerance_that_lets_the_verdict_change_is_a_problem(
    interval: tuple[float, float], claimed: tuple[float, float], tolerance: float, changes: bool
) -> None:
    record = figure(*interval)
    assert record.claim.figure is not None
    assert record.claim.figure.claimed == claimed
    claim = replace(record.claim, figure=replace(record.claim.figure, tolerance=tolerance))
    told = [each for each in problems_of(replace(record, claim=claim)) if "lets the verdict change" in each.sentence]
    assert [each.exit_code for each in told] == [1] * changes


def undecided(number: int) -> Record:
    """Of 15 to 25 % that are claimed, the interval has a part only."""
    record = figure(10.0, 20.0)
    return replace(record, claim=replace(record.claim, id=f"FIG-{number}"))


def test_two_undecided_figures_are_a_note_and_more_a_problem() -> None:
    claim = with_variant("healthy", held_runs=1)  # which is no figure, and undecided
    for number, names in ((0, None), (1, "FIG-0"), (2, "FIG-0, FIG-1")):
        few = [claim, *map(undecided, range(number))]
        assert notes_of(few) == [f"{names}: UNDECIDED, which is allowed for at most 2 figures"] * (names is not None)
        assert problems_of_all(few) == problems_of(claim)
    expected = [replace(each, claim=replace(each.claim, expected_verdict=Verdict.UNDECIDED)) for each in few]
    assert notes_of(expected) == []
    other = replace(GOOD, conditions=(undecided(7),))
    assert (notes_of([other]), problems_of_all([other])) == ([], [])
    assert notes_of([replace(figure(30.0, 40.0), conditions=(undecided(8),))]) == []
    many = [*map(undecided, range(3))]
    sentence = "3 figures are UNDECIDED, of which at most 2 may be; give them runs"
    assert (notes_of(many), problems_of_all(many)) == ([], [Problem("FIG-0, FIG-1, FIG-2", 2, sentence)])


@pytest.mark.parametrize(("tolerance", "agrees"), [(2.5, True), (1.5, False), (0.0, False)])
def test_the_tolerance_of_a_figure_decides_where_intervals_have_nothing_in_common(
    tolerance: float, agrees: bool
) -> None:
    """Means of 17 and 19."""
    was, now = figure(16.5, 17.5), figure(18.5, 19.5)
    assert now.claim.figure is not None
    claim = replace(
        now.claim, figure=replace(now.claim.figure, tolerance=tolerance), expected_verdict=Verdict.CONFIRMED
    )
    assert (compared(replace(now, claim=claim), evidence_of(was)) == []) is agrees


@pytest.mark.parametrize("repeats", [True, False])
def test_single_runs_of_a_figure_are_compared_where_they_repeat_alone(repeats: bool) -> None:
    """The intervals agree."""
    was, now = figure(16.5, 17.5), figure(16.0, 18.0)
    assert now.claim.figure is not None
    claim = replace(now.claim, figure=replace(now.claim.figure, repeats=repeats), expected_verdict=Verdict.CONFIRMED)
    told = [each.sentence.partition(";")[0] for each in compared(replace(now, claim=claim), evidence_of(was))]
    assert told == ["differs from the committed evidence: seed 0 gives 16, committed 16.5"] * repeats


def test_code_that_was_violated_and_now_is_in_some_runs_has_not_regressed() -> None:
    claim = replace(simple(4, fault=None), expected_verdict=Verdict.REFUTED)
    was, now = measured(claim, healthy=0), measured(claim, healthy=1)
    (problem,) = problems_of(now, evidence_of(was))
    assert problem.sentence.startswith("UNDECIDED, expected REFUTED, healthy held in 1 of 2 runs")
    assert problem.kind == "verdict"


def test_a_variant_without_runs_is_no_evidence() -> None:
    empty = VariantEvidence("healthy", 0, 0, None, (), ("seed 0: boom",))
    record = replace(GOOD, evidence=replace(evidence_of(GOOD), variants=(empty,)))
    assert problems_of(record, evidence_of(GOOD))[0].kind == "healthy"
