"""Statements of the documents whose evidence is their own words: a list of tests, a block of settings, quoted code."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
import yaml
from torch import Tensor

from rlcore import SettingError
from rlverify import Observation, probe
from verification.probes.cited import cited_text
from verification.probes.exploit_scenario import an_exploit_takes_the_measured_variance
from verification.probes.make import Make

LISTED, SETTINGS, QUOTED = "001:232-268", "001:397-409", "004:24-29"
GAPS: dict[str, Callable[[str], bool]] = {
    "a population with twins and scaling, without UPGD": lambda name: (
        all(word in name for word in ("pbt", "twin_critics", "vgs")) and "upgd" not in name
    ),
    "an exploit with transfer of the scaler's state": lambda name: "exploit" in name and "vgs" in name,
    "divergence of twins in a population": lambda name: "twin_critics" in name and "divergence" in name,
}
"""The tests that document 000 misses, and by what a name would tell that it is one of them."""
BETA, ROUNDS = 0.99, 400
TRANSCRIBED = ("grad.mean().item()", "grad_mean_current ** 2", "sq_corrected - mean_corrected.pow(2)")
"""What of the quoted code is run here; its averages are corrected for their start, as their names say."""


@probe("the-list-of-001-has-the-missing-tests")
def the_list_of_001_has_the_missing_tests(make: Make, seed: int) -> Sequence[Observation]:  # noqa: ARG001
    """Look through the names of the 24 tests for those that document 000 misses."""
    names = re.findall(r"^- (test_\w+)", cited_text(LISTED), re.MULTILINE)
    found = {gap: [name for name in names if is_one(name)] for gap, is_one in GAPS.items()}
    return [
        Observation("tests in the list", "24", str(len(names)), len(names) == 24),
        *(
            Observation(f"a test of {gap}", "in the list", ", ".join(tests) or "not in the list", bool(tests))
            for gap, tests in found.items()
        ),
    ]


@probe("documented-configuration-as-pyyaml-reads-it")
def documented_configuration_as_pyyaml_reads_it(make: Make, seed: int) -> Sequence[Observation]:
    """Read the block with PyYAML, and train with what it gives."""
    settings: dict[str, Any] = yaml.safe_load(cited_text(SETTINGS))
    rate = settings["optimizer_kwargs"]["lr"]
    kind = "a text" if isinstance(rate, str) else "a number"
    try:
        make.model(seed, **settings).learn(96)
        outcome = "trains"
    except SettingError as error:
        outcome = "refused, names lr" if "'lr'" in str(error) else "refused"
    return [
        Observation("learning rate of the block, as PyYAML reads it", "a number", kind, kind == "a number"),
        Observation("a model of the block, as PyYAML reads it", "trains", outcome, outcome == "trains"),
    ]


@probe("quoted-code-measures-the-variance-of-the-mean")
def quoted_code_measures_the_variance_of_the_mean(make: Make, seed: int) -> Sequence[Observation]:  # noqa: ARG001
    """Run the lines that document 004 quotes of version 3.0 beside the variances that they may be."""
    assert all(code in cited_text(QUOTED) for code in TRANSCRIBED), "the document quotes other code"
    noise = torch.randn(ROUNDS, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    history = noise + torch.tensor([3.0, -3.0], dtype=torch.float64).repeat(32)
    kinds = {
        "of the mean": history.mean(1).var(correction=0),
        "of the elements over time": history.var(0, correction=0).mean(),
        "between the elements": history.var(1, correction=0).mean(),
    }
    measured = _quoted(history)
    nearest = min(kinds, key=lambda kind: abs(measured / float(kinds[kind]) - 1))
    return [Observation("variance by the quoted code", "of the mean", nearest, nearest == "of the mean")]


@probe("an-exploit-leaves-nothing-of-the-old-policy")
def an_exploit_leaves_nothing_of_the_old_policy(make: Make, seed: int) -> Sequence[Observation]:
    """Of the scenario of document 000 the part that is the mismatch: B's weights under what A measured."""
    seen = {each.symptom: each for each in an_exploit_takes_the_measured_variance(make, seed)}
    variance = seen["grad_var_ema"]
    left = variance.after not in ("None", variance.before)
    found = variance.after if left else "none"
    return [seen["weights"], Observation("variance that A measured under its old policy", "none", found, not left)]


def _quoted(history: Tensor) -> float:
    """Averages of ``grad.mean()`` and of its square, corrected for their start; the one less the other's square."""
    mean = square = 0.0
    for gradient in history:
        current = gradient.mean().item()
        mean = BETA * mean + (1 - BETA) * current
        square = BETA * square + (1 - BETA) * current**2
    correction = 1 - BETA ** len(history)
    return square / correction - (mean / correction) ** 2
