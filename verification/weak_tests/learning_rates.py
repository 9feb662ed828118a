"""The learning rate that was asked for, looked at as soon as the model is there."""

from __future__ import annotations

import pytest

from verification.probes.make import Make


@pytest.mark.parametrize("rate", [1e-3, 5e-3, 1e-4, 1e-2])
def test_the_rate_asked_for_is_that_of_every_group(rate: float) -> None:
    model = Make().model(0, optimizer_kwargs={"lr": rate})
    assert {group["lr"] for group in model.policy.optimizer.param_groups} == {rate}
