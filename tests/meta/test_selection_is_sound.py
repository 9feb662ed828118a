"""``gate --changed`` measures a claim if something that its runs executed has changed; nothing else can move it.

Two ways to try this, both of which can be run at length as programs:

- For some claims, every function of the core that their record does not name is broken at once. Their evidence must be
  what is committed, to the byte (`tests.meta.broken_elsewhere`).
- For some random mutations of the core, claims that are not selected are measured. Their evidence must be what is
  committed as well (`tests.meta.random_mutations`).
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlverify.project.content import open_project
from rlverify.project.fingerprint import code_parts
from tests.meta import broken_elsewhere
from tests.meta.random_mutations import Sizes, Trial, try_all

ROOT = Path(__file__).parents[2]
EVERY = 24
"""One claim of so many; all of them take a quarter of an hour."""

START_PROCESSES = ("BUG-10-R1", "BUG-10-R2", "BUG-10-R3")
"""Their runs start another program, so their record names all functions: what it might run is unknown."""
PROBED = [claim.id for claim in open_project(ROOT).claims if claim.figure is None]


def measured(claim_id: str, **settings: str) -> list[str]:
    command = [sys.executable, "-m", "tests.meta.broken_elsewhere", claim_id]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **settings}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()


@pytest.mark.slow
@pytest.mark.parametrize("claim_id", PROBED[::EVERY])
def test_breaking_all_that_a_claim_does_not_execute_leaves_its_evidence_as_it_is(claim_id: str) -> None:
    name, outcome, broken = measured(claim_id)
    assert (name, outcome) == (claim_id, "same")
    assert int(broken) > 300 or claim_id in START_PROCESSES  # of about 1,000 functions


@pytest.mark.slow
def test_breaking_one_function_that_it_executes_changes_it() -> None:
    """The check itself can fail: BUG-05 without one function in its record."""
    assert measured("BUG-05", BROKEN_AS_WELL="rlcore.functional.utility:utility_scale")[1] == "other"


def test_the_functions_of_a_file_are_those_that_the_record_names() -> None:
    source = "def a():\n def b(): ...\nfor i in ():\n  def g(): ...\n"
    source += "class C:\n  def d(self): ...\n  class E:\n   async def f(self): ...\n"
    names = {name for name, _ in broken_elsewhere.functions(ast.parse(source), "")}
    assert names == {"a", "C.d", "C.E.f", "g"} == code_parts(source.encode()).keys() - {""}


@pytest.mark.slow
def test_a_random_mutation_changes_only_claims_that_are_selected() -> None:
    trials: list[Trial] = []
    for seed in range(5):  # until a mutation changes a claim, which depends on the code that is mutated
        trials += try_all(Sizes(number=8, unselected=4), seed=seed)
        measured = [each for trial in trials for each in trial.measured]
        if any(not each["same_evidence"] for each in measured):
            break
    else:
        pytest.fail("no mutation changed a claim, so this test may see no change")
    assert [trial.counterexamples for trial in trials] == [[]] * len(trials)
    assert sum(not each["is_selected"] for each in measured) == sum(trial.expected for trial in trials) >= 12


@pytest.mark.slow
def test_a_random_mutation_of_a_function_that_the_records_lack_changes_other_claims() -> None:
    """The check itself can fail: the settings of an optimizer are checked in four claims of five."""
    trials = try_all(Sizes(number=2, selected=0), forget="rlcore.optim.settings:checked")
    assert any(trial.counterexamples for trial in trials)
