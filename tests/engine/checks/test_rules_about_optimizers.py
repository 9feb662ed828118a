"""Each rule about optimizers fails on an optimizer with exactly its defect, and passes, proven, on the sound one."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from rlverify.checks import Status
from rlverify.checks.engine.rule_runs import UnknownRuleError
from rlverify.checks.rules.optimizers import OPTIMIZERS, check_optimizer
from tests.support import tiny_optimizers as tiny

DEFECTS = {
    "state_dict_continues": (tiny.HidesState, "5 steps after the load", "parameters[0]"),
    "deepcopy_continues": (tiny.CopyStartsAgain, "5 steps after the copy", "parameters[0]"),
    "load_state_dict_copies": (tiny.SharesState, "in the source after the receiver made steps", "state[0]"),
    "zero_gradients_move_nothing": (
        tiny.Drifts,
        "2 of 2 parameters moved with weight_decay and lambd and decay of 0, by up to 0.000",
        "parameters[0]",
    ),
    "learning_rate_zero_freezes": (tiny.SmallestStep, "2 of 2 parameters moved, by up to ", "parameters[0]"),
    "missing_gradients_are_skipped": (tiny.NeedsGradients, "step() raises AttributeError", ""),
    "non_finite_gradients_do_not_stay": (
        tiny.TrustsGradients,
        "nan: silent, 2 parameters and 2 tensors of the state stay broken; inf: silent",
        "parameters[0]",
    ),
    "huge_gradients_stay_finite": (tiny.Squares, "are not finite", "parameters[0]"),
    "half_precision_stays_finite": (tiny.Divides, "are not finite", "torch.float16"),
    "evaluation_changes_nothing": (tiny.StaysEvaluated, "the parameters differ by up to", "parameters[0]"),
    "foreach_equals_loop": (tiny.TwoFormulas, "the parameters differ by up to", "parameters[0]"),
}


@pytest.mark.parametrize("name", OPTIMIZERS.rules)
def test_a_rule_passes_on_a_sound_optimizer_and_is_proven(name: str) -> None:
    (record,) = check_optimizer(tiny.Momentum, checks=[name])
    assert record.status is Status.PASS, record.finding
    assert record.proofs
    assert all(each.detected for each in record.proofs)


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_fails_its_rule_and_no_other(name: str) -> None:
    optimizer, seen, where = DEFECTS[name]
    records = {each.check: each for each in check_optimizer(optimizer)}
    assert {each for each, record in records.items() if record.status is not Status.PASS} == {name}
    assert seen in records[name].finding.seen
    assert records[name].finding.where.startswith(where)


def test_every_rule_has_a_defect() -> None:
    assert list(DEFECTS) == list(OPTIMIZERS.rules)


def test_a_state_dictionary_of_another_shape_is_no_failure() -> None:
    found = check_optimizer(tiny.OtherShape)
    assert [each.check for each in found if each.status is not Status.PASS] == []


def test_a_rule_that_does_not_apply_says_why() -> None:
    (record,) = check_optimizer(torch.optim.SGD, checks=["load_state_dict_copies"])
    assert (record.status, record.finding.seen) == (Status.NOT_APPLICABLE, "the optimizer has no state")
    (record,) = check_optimizer(torch.optim.SparseAdam, checks=["foreach_equals_loop"])
    assert record.finding.seen == "SparseAdam has no option foreach"
    (record,) = check_optimizer(torch.optim.SGD, checks=["evaluation_changes_nothing"])
    assert record.finding.seen == "the optimizer has no train() and eval()"


def test_an_optimizer_for_matrices_is_checked_on_matrices() -> None:
    (record,) = check_optimizer(torch.optim.Muon, checks=["state_dict_continues"])
    assert record.outcome == "pass, proven by 1 fault"


def test_a_copy_that_cannot_step_fails() -> None:
    (record,) = check_optimizer(torch.optim.LBFGS, checks=["deepcopy_continues"])
    assert record.status is Status.FAIL
    assert "has no attribute '_params'" in record.finding.seen


def test_a_factory_that_raises_gives_an_error() -> None:
    (record,) = check_optimizer(lambda _parameters: 1 / 0, checks=["deepcopy_continues"], name="broken")  # type: ignore[arg-type, return-value]
    assert (record.subject, record.status) == ("broken", Status.ERROR)
    assert "ZeroDivisionError" in record.finding.seen


class OwnSGD(torch.optim.SGD):
    """Nothing of its own."""


@pytest.mark.parametrize(
    ("optimizer", "check", "nearest"),
    [
        (torch.optim.RMSprop, "huge_gradients_stay_finite", "RMSprop"),
        (OwnSGD, "non_finite_gradients_do_not_stay", "SGD"),
        (tiny.TrustsGradients, "non_finite_gradients_do_not_stay", "Adam"),
        (tiny.SharesState, "load_state_dict_copies", "Adam"),
        (tiny.StaysEvaluated, "evaluation_changes_nothing", ""),
        (tiny.CopyStartsAgain, "deepcopy_continues", ""),
    ],
)
def test_what_the_nearest_class_of_torch_fails_too_counts_only_if_strict(
    optimizer: type[torch.optim.Optimizer], check: str, nearest: str
) -> None:
    (record,) = check_optimizer(optimizer, checks=[check])
    assert (record.library.algorithm if record.library else "") == nearest
    assert record.outcome.startswith("fail, known in torch ") == bool(nearest)
    assert record.is_unexpected == (not nearest)
    (record,) = check_optimizer(optimizer, checks=[check], strict=True)
    assert record.is_unexpected


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownRuleError, match="no check is named 'nothing'; choose from state_dict_continues"):
        check_optimizer(torch.optim.SGD, checks=["nothing"])


@pytest.mark.usefixtures("processes")
def test_the_global_generators_are_left_alone() -> None:
    before = torch.get_rng_state().tolist(), repr(np.random.get_state()), random.getstate()
    check_optimizer(tiny.Momentum, checks=["deepcopy_continues"])
    assert (torch.get_rng_state().tolist(), repr(np.random.get_state()), random.getstate()) == before
