"""Statements that the documents' own text settles: a list of tests, a block of settings, quoted code."""

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
from verification.probes.make import Make, equal

LISTED, SETTINGS, QUOTED = "001:232-268", "001:397-409", "004:24-29"
GAPS: dict[str, Callable[[str], bool]] = {
    "PBT with twin critics and VGS, without UPGD": lambda name: (
        all(word in name for word in ("pbt", "twin_critics", "vgs")) and "upgd" not in name
    ),
    "an exploit that transfers VGS state": lambda name: "exploit" in name and "vgs" in name,
    "divergence of twin critics in PBT": lambda name: "twin_critics" in name and "divergence" in name,
}
"""The tests that document 000 finds missing, each with a check of a test's name."""
BETA, ROUNDS = 0.99, 400
TRANSCRIBED = ("grad.mean().item()", "grad_mean_current ** 2", "sq_corrected - mean_corrected.pow(2)")
"""The expressions of the quoted code that `_quoted` computes. The averages are bias-corrected, as their names say."""


@probe("the-list-of-001-has-the-missing-tests")
def the_list_of_001_has_the_missing_tests(make: Make, seed: int) -> Sequence[Observation]:  # noqa: ARG001
    """Search the names of the 24 tests for those that document 000 finds missing."""
    names = re.findall(r"^- (test_\w+)", cited_text(LISTED), re.MULTILINE)
    found = {gap: [name for name in names if is_one(name)] for gap, is_one in GAPS.items()}
    return [
        equal("tests in document 001's list", 24, len(names)),
        *(
            Observation(
                f"test in document 001's list for {gap}", "listed", ", ".join(tests) or "not listed", bool(tests)
            )
            for gap, tests in found.items()
        ),
    ]


@probe("documented-configuration-as-pyyaml-reads-it")
def documented_configuration_as_pyyaml_reads_it(make: Make, seed: int) -> Sequence[Observation]:
    """Read the block with PyYAML and train with the result."""
    settings: dict[str, Any] = yaml.safe_load(cited_text(SETTINGS))
    rate = settings["optimizer_kwargs"]["lr"]
    kind = "string" if isinstance(rate, str) else "number"
    try:
        make.model(seed, **settings).learn(96)
        outcome = "trains"
    except SettingError as error:
        outcome = "refused, error names lr" if "'lr'" in str(error) else "refused"
    return [
        equal("type of the documented lr as PyYAML reads it", "number", kind),
        equal("training with the documented settings as PyYAML reads them", "trains", outcome),
    ]


@probe("quoted-code-measures-the-variance-of-the-mean")
def quoted_code_measures_the_variance_of_the_mean(make: Make, seed: int) -> Sequence[Observation]:  # noqa: ARG001
    """Run the lines that document 004 quotes from version 3.0. Compare with three kinds of variance."""
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
    return [equal("kind of variance that the quoted code computes", "of the mean", nearest)]


@probe("an-exploit-leaves-nothing-of-the-old-policy")
def an_exploit_leaves_nothing_of_the_old_policy(make: Make, seed: int) -> Sequence[Observation]:
    """Check the mismatch of document 000's scenario: B's weights with statistics that A measured."""
    seen = {each.symptom: each for each in an_exploit_takes_the_measured_variance(make, seed)}
    variance = seen["grad_var_ema of member A after it copied B"]
    left = variance.after not in ("None", variance.before)
    found = variance.after if left else "none"
    return [
        seen["weights of member A after it copied B"],
        Observation("variance of A's old policy after A copied B", "none", found, not left),
    ]


def _quoted(history: Tensor) -> float:
    """Bias-corrected averages of ``grad.mean()`` and of its square; the second less the square of the first."""
    mean = square = 0.0
    for gradient in history:
        current = gradient.mean().item()
        mean = BETA * mean + (1 - BETA) * current
        square = BETA * square + (1 - BETA) * current**2
    correction = 1 - BETA ** len(history)
    return square / correction - (mean / correction) ** 2
