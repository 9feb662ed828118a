"""The table of verdicts, and the grades of documented fixes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from rlverify.evidence.evidence_files import is_committable
from rlverify.evidence.summarising import measured_figure
from rlverify.records.claims import FixGrade, Verdict
from rlverify.records.measured import Evidence, SymptomEvidence, Variant, VariantEvidence
from rlverify.verdicts.verdict import grade_fix, judge, outcome_under_fault

RUNS = 4


def _variant(name: Variant, held: int, **more: object) -> VariantEvidence:
    settings: dict[str, object] = {"runs": RUNS, "reached": None if name == "healthy" else True, "symptoms": (), **more}
    return VariantEvidence(name, held_runs=held, **settings)  # type: ignore[arg-type]


def _evidence(*variants: VariantEvidence) -> Evidence:
    return Evidence("TOY-01", tuple(range(RUNS)), variants)


@pytest.mark.parametrize(
    ("healthy", "faulty", "verdict"),
    [
        (4, 0, Verdict.CONFIRMED),
        (4, 4, Verdict.NOT_REPRODUCED),
        (4, 2, Verdict.UNDECIDED),
        (3, 0, Verdict.UNDECIDED),
        (0, 0, Verdict.REGRESSED),
        (0, 4, Verdict.REGRESSED),
        (0, 2, Verdict.REGRESSED),
    ],
)
def test_a_claim_with_a_fault(healthy: int, faulty: int, verdict: Verdict) -> None:
    assert judge(_evidence(_variant("healthy", healthy), _variant("faulty", faulty))) is verdict


@pytest.mark.parametrize(("healthy", "verdict"), [(4, Verdict.CONFIRMED), (0, Verdict.REFUTED), (1, Verdict.UNDECIDED)])
def test_a_claim_without_a_fault(healthy: int, verdict: Verdict) -> None:
    assert judge(_evidence(_variant("healthy", healthy))) is verdict


TROUBLES: dict[Verdict, dict[str, Any]] = {
    Verdict.ERROR: {"errors": ("seed 0: boom",)},
    Verdict.STALE: {"stale": "changed"},
    Verdict.UNREACHED: {"reached": False},
}


@pytest.mark.parametrize("verdict", TROUBLES)
@pytest.mark.parametrize("name", ["faulty", "documented_fix"])
def test_trouble_in_any_variant_is_never_a_pass(verdict: Verdict, name: Variant) -> None:
    sound = [_variant("healthy", 4), _variant("faulty", 0), _variant("documented_fix", 4)]
    troubled = [_variant(name, each.held_runs, **TROUBLES[verdict]) if each.variant == name else each for each in sound]
    assert judge(_evidence(*sound)) is Verdict.CONFIRMED
    assert judge(_evidence(*troubled)) is verdict
    assert grade_fix(_evidence(*troubled)) is None


def test_the_worst_trouble_is_told_first() -> None:
    order = list(TROUBLES)
    for first, second in pairwise(order):
        both = _variant("faulty", 0, **TROUBLES[first], **TROUBLES[second])
        assert judge(_evidence(_variant("healthy", 4), both)) is first
    assert judge(_evidence(_variant("healthy", 4), _variant("faulty", 0, reached=False))) is Verdict.UNREACHED


@pytest.mark.parametrize("trouble", TROUBLES)
def test_violated_healthy_code_is_regressed_whatever_became_of_the_fault(trouble: Verdict) -> None:
    broken, sound = _variant("healthy", 0), _variant("documented_fix", 4)
    troubled = _evidence(broken, _variant("faulty", 0, runs=0, **TROUBLES[trouble]), sound)
    assert judge(troubled) is Verdict.REGRESSED
    assert grade_fix(troubled) is None
    assert is_committable(troubled) == (trouble is Verdict.UNREACHED)


def test_one_run_of_healthy_code_is_enough_to_be_regressed() -> None:
    assert judge(_evidence(_variant("healthy", 0, runs=1), _variant("faulty", 0, runs=1))) is Verdict.REGRESSED


def test_healthy_code_of_which_a_run_crashed_is_an_error() -> None:
    crashed = _variant("healthy", 0, runs=3, errors=("seed 3: boom",))
    assert judge(_evidence(crashed, _variant("faulty", 0))) is Verdict.ERROR


def test_no_runs_are_an_error_and_not_a_pass() -> None:
    assert judge(_evidence()) is Verdict.ERROR
    assert judge(_evidence(_variant("healthy", 0, runs=0))) is Verdict.ERROR
    assert judge(_evidence(_variant("faulty", 0))) is Verdict.ERROR
    assert judge(_evidence(_variant("healthy", 0, runs=0), _variant("faulty", 0))) is Verdict.ERROR
    stale = _variant("faulty", 0, runs=0, stale="changed")
    assert judge(_evidence(_variant("healthy", 4), stale)) is Verdict.STALE


def test_a_figure_without_runs_is_an_error_and_not_a_pass() -> None:
    figure = measured_figure([19.0, 20.0, 21.0, 20.0], (15.0, 25.0))
    assert judge(replace(_evidence(), figure=figure)) is Verdict.CONFIRMED
    assert judge(replace(_evidence(), figure=measured_figure([], (15.0, 25.0)))) is Verdict.ERROR
    assert judge(replace(_evidence(), figure=replace(figure, values=()))) is Verdict.ERROR
    assert judge(replace(_evidence(), figure=replace(figure, errors=("seed 3: boom",)))) is Verdict.ERROR


@pytest.mark.parametrize(
    ("faulty", "verdict"),
    [
        ({"mine": 0, "also mine": 0, "another's": 4}, Verdict.CONFIRMED),
        ({"mine": 0, "also mine": 0, "another's": 0}, Verdict.UNDECIDED),
        ({"mine": 0, "also mine": 0, "another's": 3}, Verdict.UNDECIDED),
        ({"mine": 0, "also mine": 4, "another's": 4}, Verdict.UNDECIDED),
        ({"mine": 0, "also mine": 1, "another's": 4}, Verdict.UNDECIDED),
        ({"mine": 0, "another's": 4}, Verdict.UNDECIDED),
        ({"mine": 4, "also mine": 4, "another's": 0}, Verdict.NOT_REPRODUCED),
        ({"mine": 4, "also mine": 4, "another's": 4}, Verdict.NOT_REPRODUCED),
    ],
)
def test_a_claim_that_says_what_its_fault_shows_is_judged_by_exactly_that(
    faulty: dict[str, int], verdict: Verdict
) -> None:
    healthy = _variant("healthy", RUNS, symptoms=_symptoms(dict.fromkeys(faulty, RUNS)))
    planted = _variant("faulty", min(faulty.values()), symptoms=_symptoms(faulty))
    assert judge(replace(_evidence(healthy, planted), shows=("mine", "also mine"))) is verdict


@pytest.mark.parametrize(("mine", "outcome"), [(0, "violated"), (2, "undecided"), (4, "held")])
def test_the_outcome_under_a_fault_is_that_of_the_symptoms_that_the_claim_names(mine: int, outcome: str) -> None:
    planted = _variant("faulty", mine, symptoms=_symptoms({"mine": mine, "another's": RUNS}))
    assert outcome_under_fault(planted, ("mine",)) == outcome


def _symptoms(held: dict[str, int]) -> tuple[SymptomEvidence, ...]:
    return tuple(SymptomEvidence(symptom, count, RUNS, "", "") for symptom, count in held.items())


def _graded(faulty: dict[str, int], fixed: dict[str, int]) -> FixGrade | None:
    def variant(name: Variant, held: dict[str, int]) -> VariantEvidence:
        return _variant(name, min(held.values()), symptoms=_symptoms(held))

    healthy = variant("healthy", dict.fromkeys(faulty | fixed, RUNS))
    return grade_fix(_evidence(healthy, variant("faulty", faulty), variant("documented_fix", fixed)))


@pytest.mark.parametrize(
    ("faulty", "fixed", "grade"),
    [
        ({"a": 0, "b": 0}, {"a": 4, "b": 4}, FixGrade.CURED),
        ({"a": 0, "b": 0}, {"a": 4, "b": 0}, FixGrade.PARTIAL),
        ({"a": 0, "b": 0}, {"a": 2, "b": 0}, FixGrade.PARTIAL),
        ({"a": 0, "b": 4}, {"a": 0, "b": 4}, FixGrade.NO_EFFECT),
        ({"a": 0, "b": 4}, {"a": 4, "b": 0}, FixGrade.HARMFUL),
        ({"a": 0, "b": 4}, {"a": 4, "b": 3}, FixGrade.HARMFUL),
        ({"a": 4, "b": 4}, {"a": 4, "b": 4}, FixGrade.NO_EFFECT),
        ({"a": 4, "b": 4}, {"a": 0, "b": 4}, FixGrade.HARMFUL),
        ({"a": 0}, {"a": 4, "b": 4}, FixGrade.CURED),
        ({"a": 0, "b": 0}, {"a": 4}, FixGrade.PARTIAL),
        ({"a": 0}, {"a": 3}, FixGrade.PARTIAL),
        ({"a": 3, "b": 0}, {"a": 2, "b": 0}, FixGrade.NO_EFFECT),
        ({"a": 0}, {"a": 4, "b": 0}, FixGrade.PARTIAL),
        ({"a": 0}, {"a": 0, "b": 4}, FixGrade.PARTIAL),
        ({"a": 0, "b": 0}, {"a": 0}, FixGrade.NO_EFFECT),
    ],
)
def test_what_a_documented_fix_does(faulty: dict[str, int], fixed: dict[str, int], grade: FixGrade) -> None:
    assert _graded(faulty, fixed) is grade


def test_a_symptom_that_the_fix_hides_is_not_cured() -> None:
    assert _graded({"a": 0, "b": 4}, {"a": 4}) is FixGrade.HARMFUL


def test_without_a_documented_fix_there_is_no_grade() -> None:
    assert grade_fix(_evidence(_variant("healthy", 4), _variant("faulty", 0))) is None
