"""The real claims, each measured in this process under a seed that its evidence does not use."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from rlverify.evidence.summarising import summarise
from rlverify.project.content import open_project
from rlverify.records.claims import Claim, Verdict
from rlverify.verdicts.verdict import Record
from tests.engine.project_folders import run_here

PROJECT = open_project(Path(__file__).parents[2])
OTHER_SEED = 1234
CONFIRMABLE = [claim for claim in PROJECT.claims if claim.expected_verdict is Verdict.CONFIRMED and claim.fault]
SHARED = [
    (one, other) for one, other in permutations(CONFIRMABLE, 2) if one.probe == other.probe and one.fault != other.fault
]
NULLS = [claim for claim in PROJECT.claims if claim.kind == "null"]


def test_catalogue_and_code_name_each_other() -> None:
    assert PROJECT.check() == ()


def test_every_area_has_a_null_fault() -> None:
    assert {claim.area for claim in NULLS} == {claim.area for claim in PROJECT.claims}


@pytest.mark.slow
@pytest.mark.parametrize("claim", [each for each in PROJECT.claims if each.figure is None], ids=lambda claim: claim.id)
def test_another_seed_gives_the_same_verdict_and_grade(claim: Claim) -> None:
    assert OTHER_SEED not in claim.seeds
    runs = run_here(PROJECT, claim, [OTHER_SEED])
    record = Record(claim, summarise(claim, runs))
    assert record.as_expected, [run.error or run.observations for run in runs]


def test_claims_that_share_a_probe_say_what_each_of_them_shows() -> None:
    assert len(SHARED) > 1
    assert all(claim.shows for pair in SHARED for claim in pair)


@pytest.mark.slow
@pytest.mark.parametrize("claim", [each for each in CONFIRMABLE if not each.shows], ids=lambda claim: claim.id)
def test_a_claim_that_does_not_say_what_it_shows_shows_every_symptom(claim: Claim) -> None:
    (_, faulty) = run_here(PROJECT, replace(claim, documented_fix=None), [OTHER_SEED])
    assert [each.symptom for each in faulty.observations if each.holds] == []


@pytest.mark.slow
@pytest.mark.parametrize(("claim", "other"), SHARED, ids=lambda claim: claim.id)
def test_no_claim_is_confirmed_by_the_fault_of_another(claim: Claim, other: Claim) -> None:
    crossed = replace(claim, fault=other.fault, documented_fix=None)
    record = Record(crossed, summarise(crossed, run_here(PROJECT, crossed, [OTHER_SEED])))
    assert record.verdict in (Verdict.UNDECIDED, Verdict.NOT_REPRODUCED)


@pytest.mark.slow
def test_another_seed_gives_other_values() -> None:
    claim = PROJECT.claim("BUG-10")
    first, second = (
        {each.symptom: each.before for each in run_here(PROJECT, claim, [seed])[0].observations} for seed in (0, 1)
    )
    assert first["step_count after load()"] == second["step_count after load()"]
    assert first["grad_norm_ema after load()"] != second["grad_norm_ema after load()"]


NUMERIC = re.compile(r"FIG-\d+|INT-04(-\w+)*|INT-05(-A)?|CFG-02|ASR-0[5678]|FND-37|MON-08")
"""Ids of claims whose verdict is a comparison of measured sizes."""


@pytest.mark.parametrize(
    "claim", [each for each in PROJECT.claims if NUMERIC.fullmatch(each.id)], ids=lambda claim: claim.id
)
def test_a_numeric_verdict_names_its_conditions_or_says_why_none_can_change_it(claim: Claim) -> None:
    conditions = [each for each in PROJECT.claims if each.condition_of == claim.id and not each.of_fix]
    assert bool(conditions) != bool(claim.invariant)
