"""Evidence of figures: rounded outwards, judged by its numbers, compared with room for what machines do to sums."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlverify.evidence.evidence_files import compare, from_json, is_committable, misfits, to_json
from rlverify.evidence.files import sealed
from rlverify.evidence.summarising import measured_figure, rounded, rounded_values, summarise_figure
from rlverify.project.content import Project
from rlverify.records.claims import Claim, Verdict
from rlverify.records.errors import EvidenceError
from rlverify.records.measured import Evidence, FigureEvidence, PairedRun
from rlverify.verdicts.verdict import Record, judge

PATH = Path("FIG-GAIN.json")
VALUES = (16.0, 18.0, 19.0, 20.0, 20.0, 21.0, 22.0, 24.0)


@pytest.fixture
def claim(figureproject: Project) -> Claim:
    return figureproject.claim("FIG-GAIN")


def _runs(values: tuple[float, ...] = VALUES) -> list[PairedRun]:
    return [PairedRun("transfer", seed, (("gain", value), ("other", 0.0))) for seed, value in enumerate(values)]


def _evidence(claim: Claim, values: tuple[float, ...] = VALUES) -> Evidence:
    return summarise_figure(claim, _runs(values))


def _figure(evidence: Evidence) -> FigureEvidence:
    assert evidence.figure is not None
    return evidence.figure


def _claiming(claim: Claim, **fields: Any) -> Claim:
    assert claim.figure is not None
    return replace(claim, figure=replace(claim.figure, **fields))


def test_runs_become_a_mean_with_its_interval(claim: Claim) -> None:
    figure = _figure(_evidence(claim))
    assert (figure.runs, figure.mean, figure.errors, figure.claimed) == (8, 20.0, (), (15.0, 25.0))
    assert 18.0 < figure.low < 19.0
    assert 21.0 < figure.high < 22.0
    assert figure.effect_size == pytest.approx(20 / math.sqrt(42 / 7), rel=0.05)
    assert judge(_evidence(claim)) is Verdict.CONFIRMED


@pytest.mark.parametrize(
    ("shift", "verdict"),
    [(0, Verdict.CONFIRMED), (-20, Verdict.REFUTED), (20, Verdict.REFUTED), (4, Verdict.UNDECIDED)],
)
def test_the_interval_decides(claim: Claim, shift: float, verdict: Verdict) -> None:
    evidence = _evidence(claim, tuple(value + shift for value in VALUES))
    assert judge(evidence) is verdict
    assert Record(claim, evidence).contradicts_document is (verdict is Verdict.REFUTED)


def test_runs_of_other_seeds_do_not_count(claim: Claim) -> None:
    assert _evidence(claim, (*VALUES, 1e6)) == _evidence(claim)


def test_a_crashed_run_is_an_error_and_no_evidence(claim: Claim) -> None:
    runs = [*_runs()[:-1], PairedRun("transfer", 7, error="boom")]
    evidence = summarise_figure(claim, runs)
    assert (_figure(evidence).runs, _figure(evidence).errors) == (7, ("seed 7: boom",))
    assert judge(evidence) is Verdict.ERROR
    assert not is_committable(evidence)


def test_all_runs_crashed_is_an_error(claim: Claim) -> None:
    evidence = summarise_figure(claim, [PairedRun("transfer", seed, error="boom") for seed in range(8)])
    assert judge(evidence) is Verdict.ERROR


def test_a_quantity_that_is_not_measured_is_an_error(claim: Claim) -> None:
    evidence = summarise_figure(
        claim, [PairedRun("transfer", seed, (("gian", 1.0), ("other", 0.0))) for seed in range(8)]
    )
    assert _figure(evidence).errors[0] == "seed 0: gives no quantity 'gain', but 'gian', 'other'"
    assert judge(evidence) is Verdict.ERROR


def test_two_runs_are_the_fewest_that_have_an_interval() -> None:
    assert measured_figure([19.0, 21.0], (15.0, 25.0)) == FigureEvidence(
        (19.0, 21.0), 20.0, 19.0, 21.0, 14.0, (15.0, 25.0), ()
    )
    assert measured_figure([20.0], (15.0, 25.0)) == FigureEvidence(
        (), 0.0, 0.0, 0.0, None, (15.0, 25.0), ("too few runs for an interval",)
    )


@pytest.mark.parametrize(
    ("exact", "kept"),
    [
        ((20.049, 18.01, 22.09), (20.0, 18.0, 22.1)),
        ((0.02, 0.014996, 0.025004), (0.02, 0.0149, 0.0251)),
        ((-5.0, -123.4, 0.2), (-5.0, -124.0, 1.0)),
        ((1234.5, 1200.1, 1269.9), (1230.0, 1200.0, 1270.0)),
        ((1234.5, 1.0, 2.0), (1230.0, 0.0, 10.0)),
        ((1.0, -1.0, 1234.5), (0.0, -10.0, 1240.0)),
        ((10.0, 10.0 - 1e-12, 10.0 + 1e-12), (10.0, 10.0, 10.0)),
        ((1e-17, -3e-17, 4e-17), (0.0, 0.0, 0.0)),
        ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0)),
    ],
)
def test_the_interval_is_rounded_outwards(exact: tuple[float, float, float], kept: tuple[float, float, float]) -> None:
    assert rounded(*exact) == kept
    assert not any(math.copysign(1.0, each) < 0 for each in rounded(*exact) if each == 0)


def test_rounding_can_leave_undecided_but_not_decide(claim: Claim) -> None:
    """The exact interval lies within what is claimed by less than the digits that are kept."""
    evidence = _evidence(claim, (15.0001, 15.0002, 15.0003) * 3)
    assert judge(evidence) is Verdict.CONFIRMED
    barely = _claiming(claim, claimed=(15.011, 25.0))
    assert judge(summarise_figure(barely, _runs((15.019, 15.02, 15.021) * 3))) is Verdict.UNDECIDED


def test_what_equal_arms_leave_by_rounding_is_no_effect(claim: Claim) -> None:
    better = _claiming(claim, claimed=(0.0, math.inf))
    evidence = summarise_figure(better, _runs(tuple(seed * 1e-17 for seed in range(1, 9))))
    assert _figure(evidence).effect_size is None
    assert judge(evidence) is Verdict.REFUTED


@pytest.mark.parametrize("claimed", [(15.0, 25.0), (0.0, math.inf), (-math.inf, 30.0)])
def test_evidence_reads_back_as_it_was_written(claim: Claim, claimed: tuple[float, float]) -> None:
    evidence = _evidence(_claiming(claim, claimed=claimed))
    text = to_json(evidence)
    assert from_json(text, PATH) == evidence
    assert json.loads(text, parse_constant=pytest.fail)["verdict"] == "CONFIRMED"
    assert sorted(json.loads(text)) == ["claim_id", "digest", "figure", "schema_version", "verdict"]
    assert json.loads(text)["figure"]["values"] == [*VALUES]


Content = dict[str, Any]
EDITED = "was edited after it was measured"
BROKEN: dict[str, tuple[Callable[[Content], object], str]] = {
    "a verdict that does not follow": (
        lambda c: c.update(verdict="REFUTED"), EDITED),
    "another mean": (lambda c: c["figure"].update(mean=21.0), EDITED),
    "another lower end": (lambda c: c["figure"].update(low=18.0), EDITED),
    "another upper end": (lambda c: c["figure"].update(high=22.0), EDITED),
    "another effect": (
        lambda c: c["figure"].update(effect_size=9.0), EDITED),
    "no effect": (lambda c: c["figure"].update(effect_size=None), EDITED),
    "other values": (
        lambda c: c["figure"]["values"].__setitem__(0, 24.0), EDITED),
    "a value less": (lambda c: c["figure"]["values"].pop(), EDITED),
    "more digits than are kept": (
        lambda c: c["figure"]["values"].__setitem__(0, 16.00001), EDITED),
    "nothing claimed": (lambda c: c["figure"].update(claimed=[25, 15]), EDITED),
    "next to nothing claimed": (
        lambda c: c["figure"].update(claimed=[20, 20]), EDITED),
    "one run": (lambda c: c["figure"].update(values=[20.0]), EDITED),
    "no number": (lambda c: c["figure"].update(mean="inf"), EDITED),
    "another word": (lambda c: c["figure"].update(claimed=[0, "much"]), "figure.claimed.1: Input should be a valid"),
    "an unknown field": (lambda c: c["figure"].update(sd=1.0), EDITED),
    "variants": (lambda c: c.update(variants=[]), EDITED),
    "another claim": (lambda c: c.update(claim_id="FIG-SPIKE"), "is about FIG-SPIKE, not about FIG-GAIN"),
}  # fmt: skip


def _content(evidence: Evidence) -> Content:
    content: Content = json.loads(to_json(evidence))
    del content["digest"]
    return content


@pytest.mark.parametrize("case", BROKEN)
def test_numbers_that_cannot_be_are_refused(case: str, claim: Claim) -> None:
    """In a file whose digest fits its content."""
    change, reason = BROKEN[case]
    content = _content(_evidence(claim))
    change(content)
    with pytest.raises(EvidenceError) as caught:
        from_json(sealed(content), PATH)
    assert str(caught.value).startswith(f"evidence FIG-GAIN.json: {reason}")


def test_a_value_that_was_edited_is_refused(claim: Claim) -> None:
    text = to_json(_evidence(claim))
    with pytest.raises(
        EvidenceError,
        match=rf"^evidence {re.escape(str(PATH))}: was edited after .*; run `rlverify audit --level full --update`",
    ):
        from_json(text.replace("16.0", "17.0"), PATH)


@pytest.mark.parametrize(
    ("exact", "kept"),
    [
        ((1.234567, 20.0), (1.235, 20.0)),
        ((0.1234567, 0.5), (0.12346, 0.5)),
        ((-123.456789, 0.000123), (-123.46, 0.0)),
        ((123456.7, 1.0), (123460.0, 0.0)),
        ((0.0000012, 0.00000049), (0.000001, 0.0)),
        ((-1e-9, 1e-9), (0.0, 0.0)),
    ],
)
def test_values_keep_five_digits_of_the_largest(exact: tuple[float, ...], kept: tuple[float, ...]) -> None:
    assert rounded_values(exact) == kept
    assert rounded_values(kept) == kept
    assert not any(math.copysign(1.0, each) < 0 for each in rounded_values(exact) if each == 0)


def test_noise_in_the_last_bits_changes_no_byte(claim: Claim) -> None:
    noisy = tuple(value + 1e-9 * sign for value, sign in zip(VALUES, (1, -1) * 4, strict=True))
    assert to_json(_evidence(claim, noisy)) == to_json(_evidence(claim))


def _with(evidence: Evidence, **numbers: Any) -> Evidence:
    return replace(evidence, figure=replace(_figure(evidence), **numbers))


def test_a_fresh_measurement_agrees_where_the_intervals_meet(claim: Claim) -> None:
    evidence = _evidence(claim)
    beside = _with(evidence, low=_figure(evidence).high, mean=23.0, high=24.5)
    assert compare(evidence, beside) == compare(beside, evidence) == []
    apart = _with(beside, low=22.0)
    assert compare(evidence, apart) == [
        f"a mean of 23 (22 to 24.5) instead of 20 ({_figure(evidence).low:g} to {_figure(evidence).high:g})"
    ]
    assert compare(evidence, apart, tolerance=3.0) == []
    assert len(compare(evidence, apart, tolerance=2.9)) == 1
    near, other = (_with(evidence, mean=mean, low=mean - 0.1, high=mean + 0.1) for mean in (20.0, 20.5))
    assert compare(near, other) == ["a mean of 20.5 (20.4 to 20.6) instead of 20 (19.9 to 20.1)"]


def test_runs_are_compared_one_by_one_where_they_repeat_and_are_as_many(claim: Claim) -> None:
    evidence = _evidence(claim)
    other = _with(evidence, values=(16.5, *VALUES[1:-1], 24.2))  # which is within 1 % of 24
    assert compare(evidence, other) == []
    assert compare(evidence, other, repeats=True) == ["seed 0 gives 16.5, committed 16"]
    assert compare(evidence, other, tolerance=0.5, repeats=True) == []
    more = _with(evidence, values=(16.5, *VALUES))
    assert compare(evidence, more, repeats=True) == ["9 runs instead of 8"]
    apart = _with(other, low=22.0, mean=23.0, high=24.5)
    assert [each.partition(" ")[0] for each in compare(evidence, apart, repeats=True)] == ["a", "seed"]


def test_every_other_difference_is_told_whatever_the_tolerance(claim: Claim) -> None:
    evidence = _evidence(claim)
    undecided = _with(evidence, high=25.5)
    assert compare(evidence, undecided, tolerance=9) == ["UNDECIDED instead of CONFIRMED"]
    assert compare(evidence, _with(evidence, values=(*VALUES, 20.0)), tolerance=9) == ["9 runs instead of 8"]
    other = _with(evidence, claimed=(10.0, 25.0))
    assert compare(evidence, other, tolerance=9) == ["10 to 25 is claimed instead of 15 to 25"]


def test_evidence_fits_its_claim_or_says_why_not(claim: Claim, toyproject: Project) -> None:
    evidence = _evidence(claim)
    assert misfits(evidence, claim) == []
    other = _claiming(claim, runs=9, claimed=(10.0, 25.0))
    assert misfits(evidence, other) == [
        "measured in 8 runs, the claim asks for 9",
        "measured against 15 to 25, the claim says 10 to 25",
    ]
    for criterion in ({"quantity": "spike"}, {"tolerance": 0.5}, {"repeats": False}):
        (told,) = misfits(evidence, _claiming(claim, **criterion))
        assert told == "judged by another criterion: the claim now names another experiment, quantity or tolerance"
    assert misfits(evidence, _claiming(claim, unit="percent")) == []
    assert misfits(evidence, toyproject.claim("TOY-01")) == ["measured as a figure, the claim is now a defect"]
    assert misfits(replace(evidence, figure=None), claim) == ["measured by a probe, the claim is now a figure"]
