"""Each rule about gradient transforms fails on a transform with exactly its defect, and passes on the sound one."""

from __future__ import annotations

import pytest
import torch

from rlverify.checks import Status
from rlverify.checks.rules.transforms import TRANSFORMS, check_gradient_transform
from tests.support import tiny_subjects as tiny

DEFECTS = {
    "transform_changes_gradients_only": (tiny.MovesParameters, "1 parameters moved", "parameters[0]"),
    "zero_gradients_stay_zero": (tiny.DividesByNorm, "the gradient is nan, expected 0", "parameters[0]"),
    "missing_gradients_stay_missing": (tiny.NeedsGradients, "became a tensor", "parameters[2]"),
    "gradients_keep_their_form": (tiny.ReturnsSingle, "the gradient is torch.float32[4, 3]", "parameters[0]"),
    "huge_gradients_stay_finite": (tiny.SquaresFirst, "3 gradients are not finite", "parameters[0]"),
    "nan_gradients_do_not_spread": (tiny.MixesAll, "2 gradients are not finite", "parameters[1]"),
    "transform_state_continues": (tiny.ForgetsAverage, "the gradients differ by up to", "parameters[0]"),
}


@pytest.mark.parametrize("name", TRANSFORMS.rules)
def test_a_rule_passes_on_a_sound_transform_and_is_proven(name: str) -> None:
    (record,) = check_gradient_transform(tiny.Scale, checks=[name])
    assert record.status is Status.PASS, record.finding
    assert record.proofs
    assert all(each.detected for each in record.proofs)


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_fails_its_rule_and_no_other(name: str) -> None:
    transform, seen, where = DEFECTS[name]
    records = {each.check: each for each in check_gradient_transform(transform)}
    assert {each for each, record in records.items() if record.status is not Status.PASS} == {name}
    assert seen in records[name].finding.seen
    assert records[name].finding.where == where


def test_every_rule_has_a_defect() -> None:
    assert list(DEFECTS) == list(TRANSFORMS.rules)


def test_clipping_by_norm_spreads_nan_and_has_no_state() -> None:
    def clip(parameters: list[torch.nn.Parameter]) -> object:
        return lambda: torch.nn.utils.clip_grad_norm_(parameters, 1.0)

    found = {each.check: each for each in check_gradient_transform(clip)}
    assert found["transform_state_continues"].finding.seen == "function has no state_dict()"
    failed = [name for name, each in found.items() if each.status is Status.FAIL]
    assert failed == ["nan_gradients_do_not_spread"]
