"""The file that document 002 cites for bug 2: ``optimizer_kwargs['lr']`` is the rate that trains, in its four cases."""

from __future__ import annotations

import pytest

from rlcore import DistributionalPPO
from tests.support.training import make_model

CASES = [1e-3, 5e-3, 1e-4, 1e-2]


def rates(model: DistributionalPPO) -> list[float]:
    return [group["lr"] for group in model.policy.optimizer.param_groups]


@pytest.mark.parametrize("lr", CASES)
def test_the_rate_asked_for_is_there_after_construction_and_after_training(lr: float) -> None:
    model = make_model(optimizer_kwargs={"lr": lr})
    assert rates(model) == [lr, lr]
    before = model.policy.action_net.weight.detach().clone()
    model.learn(96)
    assert rates(model) == [lr, lr]
    assert (model.policy.action_net.weight != before).any()
