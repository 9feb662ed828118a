"""Claims under other conditions: how they are written, and what they make of a verdict and of a grade."""

from __future__ import annotations

import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from rlverify.cli.tables import claim_table
from rlverify.project.catalogue import load
from rlverify.project.citations import Documents
from rlverify.records.claims import Claim, DocumentedProblem, EarlierCriterion, Figure, FixGrade, Verdict
from rlverify.records.errors import CatalogueError
from rlverify.records.measured import Evidence, FigureEvidence
from rlverify.reporting.phrasing import spread
from rlverify.verdicts.verdict import Record, attached, with_conditions
from tests.engine.reporting.records import CLAIM, figure, measured
from tests.engine.reporting.test_claims_page import MINIMAL_FIGURE
from verification.pages.overview import is_opposed

PROBED = """
[[claim]]
id = "BUG-1"
title = "State is forgotten"
statement = "Restoring forgets the count."
probe = "restore"
fault = "forgets"
documented_fix = "remembers"
fix_statement = "The state is read."
expected_fix_grade = "CURED"
expected = "CONFIRMED"
"""
CONDITION = """
[[claim.condition]]
name = "half"
title = "half as long"
experiment = "toy-half"
runs = 8
expected = "UNDECIDED"
"""
OWN_FIGURE = 'quantity = "count"\nunit = "times"\nclaimed = [0.0, 1.0]\n'


def _load(folder: Path, text: str) -> tuple[Claim, ...]:
    (folder / "toy.toml").write_text(text, encoding="utf-8")
    return load(folder, Documents(lines={}))


def test_a_condition_takes_from_its_figure_what_it_does_not_say(tmp_path: Path) -> None:
    parent, under = _load(tmp_path, MINIMAL_FIGURE.replace("pilot =", "tolerance = 0.5, pilot =") + CONDITION)
    assert (under.id, under.condition_of, under.condition) == ("FIG-1@half", "FIG-1", "half as long")
    assert under.title == "Efficiency is lost: half as long"
    assert (under.experiment, under.seeds, under.expected_verdict) == ("toy-half", tuple(range(8)), Verdict.UNDECIDED)
    assert under.figure == Figure("efficiency lost", "%", (15.0, 25.0), 8, 0.0, "", repeats=False)
    assert parent.condition_of == ""


def test_a_condition_of_a_claim_with_a_probe_is_a_figure_without_its_faults_and_tests(tmp_path: Path) -> None:
    tests = 'killed_by = ["tests/a.py::test_a"]\nshows = ["count"]\n'
    fields = 'against_document = true\npart_of = "BUG-2"\nproblem = {impact = "high"}\n'
    other = PROBED.replace("BUG-1", "BUG-2")
    text = PROBED + tests + fields + CONDITION + OWN_FIGURE + "of_fix = true\n" + other
    parent, under, _ = _load(tmp_path, text)
    assert (parent.kind, parent.fault, parent.killed_by) == ("defect", "forgets", ("tests/a.py::test_a",))
    assert (under.kind, under.fault, under.documented_fix, under.killed_by, under.shows) == (
        "figure",
        None,
        None,
        (),
        (),
    )
    assert (under.against_document, under.problem, under.part_of) == (False, None, "")
    assert parent.against_document
    assert parent.problem == DocumentedProblem(impact="high")
    assert parent.part_of == "BUG-2"
    assert (under.probe, under.fix_statement, under.expected_fix_grade, under.of_fix) == ("", "", None, True)
    assert under.figure == Figure("count", "times", (0.0, 1.0), 8, 0.0, "", repeats=False, document_gives="statement")


def test_an_earlier_criterion_is_kept_with_its_verdict(tmp_path: Path) -> None:
    earlier = '[[claim.earlier]]\ncriterion = "10 %"\nverdict = "REFUTED"\nuntil = 2026-11-21\nwhy = "Too narrow."\n'
    parent, under = _load(tmp_path, PROBED + CONDITION + OWN_FIGURE + earlier)
    assert parent.earlier == (EarlierCriterion("10 %", Verdict.REFUTED, "2026-11-21", "Too narrow."),)
    assert under.earlier == ()
    of_condition = earlier.replace("[[claim.earlier]]", "[[claim.condition.earlier]]")
    parent, under = _load(tmp_path, PROBED + CONDITION + OWN_FIGURE + of_condition)
    assert under.earlier == (EarlierCriterion("10 %", Verdict.REFUTED, "2026-11-21", "Too narrow."),)
    assert parent.earlier == ()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (PROBED + CONDITION, "BUG-1, condition.quantity: is missing in 'half'; the claim has no figure"),
        (PROBED + CONDITION + OWN_FIGURE + CONDITION + OWN_FIGURE, "two conditions of a claim have the same name"),
        (
            PROBED.replace('documented_fix = "remembers"\nfix_statement = "The state is read."\n', "").replace(
                'expected_fix_grade = "CURED"\n', ""
            )
            + CONDITION
            + OWN_FIGURE
            + "of_fix = true\n",
            "condition.of_fix: 'half' is about a fix, and the claim has none",
        ),
        (PROBED + CONDITION + OWN_FIGURE.replace("[0.0, 1.0]", "[1.0, 0.0]"), "from 1 to 0 holds no interval"),
        (PROBED + CONDITION + OWN_FIGURE.replace("[0.0, 1.0]", "[-inf, inf]"), "nothing could refute it"),
        (PROBED + CONDITION + OWN_FIGURE + "quantty = 1\n", "no such field; did you mean 'quantity'?"),
        (
            PROBED + CONDITION + OWN_FIGURE + '[[claim.condition.earlier]]\nverdct = "REFUTED"\n',
            "no such field; did you mean 'verdict'?",
        ),
        (PROBED.replace('"CURED"', '"UNDECIDED"'), "expected_fix_grade: no single measurement gives UNDECIDED"),
        (PROBED + CONDITION.replace("runs = 8", "runs = 4") + OWN_FIGURE, "condition.0.runs"),
    ],
)
def test_a_condition_that_cannot_be_is_an_error(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(CatalogueError) as caught:
        _load(tmp_path, text)
    assert told in str(caught.value)


def test_a_condition_of_the_fix_may_stand_beside_an_invariant(tmp_path: Path) -> None:
    text = PROBED + 'invariant = "Nothing."\n' + CONDITION + OWN_FIGURE + "of_fix = true\n"
    parent, under = _load(tmp_path, text)
    assert (parent.invariant, under.invariant) == ("Nothing.", "")


def under(verdict: Verdict | None, *, of_fix: bool = False, expected: Verdict | None = None) -> Record:
    """The record of a condition under which that verdict was measured, or nothing."""
    figure = Figure("count", "times", (0.0, 1.0), 5, 0.0, "")
    claim = replace(
        CLAIM, id="TOY-01@x", kind="figure", condition_of="TOY-01", condition="x", of_fix=of_fix, figure=figure,
        fault=None, documented_fix=None, expected_fix_grade=None,
        expected_verdict=expected or verdict or Verdict.REFUTED,
    )  # fmt: skip
    if verdict is None:
        return Record(claim, None)
    if verdict is Verdict.STALE:
        return replace(under(Verdict.CONFIRMED, of_fix=of_fix), misfits=("measured with seeds 0",))
    if verdict is Verdict.ERROR:
        broken = FigureEvidence((), 0.0, 0.0, 0.0, None, figure.claimed, errors=("seed 0: x",))
        return Record(claim, Evidence(claim.id, claim.seeds, (), figure=broken))
    low, high = {Verdict.CONFIRMED: (0.2, 0.8), Verdict.REFUTED: (2.0, 3.0), Verdict.UNDECIDED: (0.5, 2.0)}[verdict]
    found = FigureEvidence((low, high), (low + high) / 2, low, high, 1.0, figure.claimed)
    return Record(claim, Evidence(claim.id, claim.seeds, (), figure=found))


CONFIRMED = measured(CLAIM, healthy=2, faulty=0, documented_fix=2)
NOT_REPRODUCED = measured(CLAIM, healthy=2, faulty=2, documented_fix=2)
REGRESSED = measured(CLAIM, healthy=0, faulty=0, documented_fix=0)
UNSTEADY = measured(CLAIM, healthy=1, faulty=0, documented_fix=2)
FIGURE = figure(10.0, 20.0)  # 15 to 25 are claimed, so that it is UNDECIDED
C, R, U = Verdict.CONFIRMED, Verdict.REFUTED, Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("own", "others", "verdict", "depends"),
    [
        (CONFIRMED, [], C, False),
        (CONFIRMED, [C, C], C, False),
        (CONFIRMED, [C, R], U, True),
        (CONFIRMED, [U], U, True),
        (CONFIRMED, [C, None], U, False),
        (NOT_REPRODUCED, [R], Verdict.NOT_REPRODUCED, False),
        (NOT_REPRODUCED, [C], U, True),
        (REGRESSED, [C], Verdict.REGRESSED, False),
        (REGRESSED, [R], Verdict.REGRESSED, False),
        (CONFIRMED, [R, None], U, False),
        (CONFIRMED, [R, Verdict.STALE], U, False),
        (CONFIRMED, [R, Verdict.ERROR], U, False),
        (UNSTEADY, [C], U, False),
        (FIGURE, [R], U, False),
    ],
)
def test_a_verdict_that_another_condition_changes_is_undecided(
    own: Record, others: list[Verdict | None], verdict: Verdict, depends: bool
) -> None:
    record = replace(own, conditions=tuple(map(under, others)))
    assert (record.verdict, record.depends) == (verdict, depends)
    assert record.fix_grade == own.fix_grade
    assert record.is_open == (not depends and verdict is U)


def test_conditions_of_the_fix_say_nothing_of_the_claim_and_the_reverse() -> None:
    record = replace(CONFIRMED, conditions=(under(R), under(None, of_fix=True)))
    assert (record.depends, record.fix_depends, record.is_open) == (True, False, True)
    record = replace(CONFIRMED, conditions=(under(None), under(R, of_fix=True)))
    assert (record.depends, record.fix_depends, record.is_open) == (False, True, True)
    assert record.missing_conditions == ["x"]
    record = replace(CONFIRMED, conditions=(under(R), under(R, of_fix=True)))
    assert (record.depends, record.fix_depends, record.is_open) == (True, True, False)


@pytest.mark.parametrize(
    ("own", "others", "of_fix", "opposed"),
    [
        (CONFIRMED, [R, U], False, True),
        (CONFIRMED, [C, U], False, False),
        (CONFIRMED, [R, None], False, False),
        (NOT_REPRODUCED, [C], False, True),
        (NOT_REPRODUCED, [U, R], False, False),
        (CONFIRMED, [R], True, True),
        (CONFIRMED, [U, C], True, False),
        (measured(CLAIM, healthy=2, faulty=0, documented_fix=0), [C], True, True),
        (measured(CLAIM, healthy=2, faulty=0, documented_fix=0), [U, R], True, False),
    ],
)
def test_an_opposite_verdict_differs_from_an_undecided_one(
    own: Record, others: list[Verdict | None], of_fix: bool, opposed: bool
) -> None:
    record = replace(own, conditions=tuple(under(each, of_fix=of_fix) for each in others))
    assert is_opposed(record) == opposed
    if None not in others:
        assert ("(the opposite was measured)" in spread(record)) == opposed
        assert ("(no opposite was measured; some runs do not decide)" in spread(record)) != opposed


@pytest.mark.parametrize(
    ("held", "others", "grade", "depends"),
    [
        (2, [C], FixGrade.CURED, False),
        (2, [C, R], FixGrade.UNDECIDED, True),
        (2, [U], FixGrade.UNDECIDED, True),
        (2, [R, None], FixGrade.UNDECIDED, False),
        (2, [R, Verdict.STALE], FixGrade.UNDECIDED, False),
        (2, [R, Verdict.ERROR], FixGrade.UNDECIDED, False),
        (0, [R], FixGrade.NO_EFFECT, False),
        (0, [C], FixGrade.UNDECIDED, True),
    ],
)
def test_a_grade_that_another_condition_changes_is_undecided(
    held: int, others: list[Verdict | None], grade: FixGrade, depends: bool
) -> None:
    own = measured(CLAIM, healthy=2, faulty=0, documented_fix=held)
    record = replace(own, conditions=tuple(under(each, of_fix=True) for each in others))
    assert (record.verdict, record.fix_grade, record.fix_depends) == (Verdict.CONFIRMED, grade, depends)
    assert record.is_open == (grade is FixGrade.UNDECIDED and not depends)
    assert record.fix_fails == (grade is FixGrade.NO_EFFECT)


def test_a_claim_is_as_expected_if_it_is_under_every_condition() -> None:
    assert replace(CONFIRMED, conditions=(under(R), under(U))).as_expected
    assert not replace(CONFIRMED, conditions=(under(R), under(U, expected=C))).as_expected
    assert not replace(NOT_REPRODUCED, conditions=(under(R),)).as_expected


def test_records_of_conditions_are_put_beneath_their_claims() -> None:
    other = measured(replace(CLAIM, id="TOY-02"), healthy=2, faulty=0, documented_fix=2)
    one, two = under(C), under(R)
    found = with_conditions([one, CONFIRMED, other, two])
    assert [(each.claim.id, each.conditions) for each in found] == [("TOY-01", (one, two)), ("TOY-02", ())]
    assert attached([one, CONFIRMED, other, two]) == [one, found[0], other, two]
    assert with_conditions(found) == found
    assert with_conditions([found[0], one]) == [found[0]]


def test_a_condition_without_its_claim_is_an_error() -> None:
    other = measured(replace(CLAIM, id="TOY-02"), healthy=2, faulty=0, documented_fix=2)
    with pytest.raises(ValueError, match="records of conditions without their claim: TOY-01"):
        with_conditions([under(C), other])


def test_how_verdicts_are_spread_over_conditions_is_shown() -> None:
    conditions = (under(C), under(R), under(R), under(U), under(C, of_fix=True))
    told = "CONFIRMED under the claim's own condition; of 4 other conditions: "
    assert spread(replace(CONFIRMED, conditions=conditions)) == (
        told + "CONFIRMED under 1, REFUTED under 2, UNDECIDED under 1 (the opposite was measured)"
    )
    assert spread(replace(CONFIRMED, conditions=(under(C),))) == ""
    of_fix = (under(C, of_fix=True), under(R, of_fix=True), under(R, of_fix=True))
    told = "fix CURED under the claim's own condition; of 3 other conditions: cures under 1, does not cure under 2"
    told += " (the opposite was measured)"
    assert spread(replace(CONFIRMED, conditions=of_fix)) == told


def shown(claim: Claim, *conditions: Claim) -> str:
    console = Console(width=200, file=StringIO())
    console.print(claim_table(claim, conditions))
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def test_show_tells_conditions_and_what_they_are_of(tmp_path: Path) -> None:
    earlier = '[[claim.earlier]]\ncriterion = "10 %"\nverdict = "REFUTED"\nuntil = 2026-11-21\nwhy = "Too narrow."\n'
    parent, under = _load(tmp_path, MINIMAL_FIGURE + CONDITION + earlier)
    assert re.search(r"conditions +FIG-1@half: half as long", shown(parent, under))
    assert re.search(r"earlier +10 %: REFUTED, until 2026-11-21; Too narrow\.", shown(parent))
    assert re.search(r"pilot +8 seeds", shown(parent))
    assert re.search(r"condition of +FIG-1 *\n", shown(under))
    assert "pilot" not in shown(under)
