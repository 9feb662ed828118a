"""One repeated run of a figure: which one it is, and what it says of the committed value."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import pytest

from rlverify.evidence.evidence_files import to_json
from rlverify.evidence.figure_evidence import measured_figure
from rlverify.gating.replay import problems_of_run, repeated_seed
from rlverify.project.content import open_project
from rlverify.records.claims import Claim
from rlverify.records.measured import Evidence
from rlverify.records.problems import Problem
from rlverify.records.runs import PairedRun
from tests.meta.project_folders import PROJECTS


def gain(**figure: Any) -> Claim:
    """The claim of a figure whose runs repeat between machines, with other settings."""
    claim = open_project(PROJECTS / "figureproject").claim("FIG-GAIN")
    assert claim.figure is not None
    return dataclasses.replace(claim, figure=dataclasses.replace(claim.figure, **figure))


def evidence_of(*values: float) -> Evidence:
    return Evidence("FIG-GAIN", tuple(range(len(values))), (), figure=measured_figure(values, (15.0, 25.0)))


@pytest.mark.parametrize(
    ("committed", "value", "tolerance", "agrees"),
    [
        (20.0, 20.2, 0.0, True),
        (20.0, 20.3, 0.0, False),
        (20.0, 20.4, 0.5, True),
        (20.0, 20.6, 0.5, False),
        (-20.0, -20.2, 0.0, True),
        (0.0, 1e-6, 0.0, True),  # the committed values are rounded to six decimals
        (0.0, -2e-6, 0.0, False),
    ],
)
def test_one_run_agrees_within_the_larger_of_three_margins(
    committed: float, value: float, tolerance: float, agrees: bool
) -> None:
    claim, evidence = gain(tolerance=tolerance), evidence_of(0.0, committed, 0.0)
    problems = problems_of_run(claim, evidence, PairedRun("transfer", 1, (("gain", value),)))
    sentence = f"repeated runs differ: seed 1 gives {value:.5g} %, committed {committed:.5g}"
    remedy = "if that is right, run `rlverify audit --level full --update`"
    assert problems == ([] if agrees else [Problem("FIG-GAIN", 1, sentence, "values", remedy)])


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (PairedRun("transfer", 2, error="ValueError: boom"), "ValueError: boom"),
        (PairedRun("transfer", 2, (("spike", 20.0),)), "gives no quantity 'gain', but 'spike'"),
    ],
)
def test_one_run_without_a_value_is_a_crash(run: PairedRun, why: str) -> None:
    problems = problems_of_run(gain(), evidence_of(20.0, 20.0, 20.0), run)
    assert problems == [Problem("FIG-GAIN", 1, f"a repeated run crashes: seed 2: {why}", "verdict")]


def test_the_run_that_is_repeated_follows_from_all_of_the_evidence() -> None:
    found = [evidence_of(*(20.0 + place + each for each in range(8))) for place in range(5)]
    seeds = [int(hashlib.sha256(_bordered(to_json(each))).hexdigest()[:16], 16) % 8 for each in found]
    assert [repeated_seed(each) for each in found] == seeds
    assert len({*seeds}) > 1


def _bordered(text: str) -> bytes:
    return f"{len(text.encode())}:{text}".encode()
