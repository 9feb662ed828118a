"""What document 000 missed: populations with twin critics and scaling but without UPGD, exploits that carry gradient
statistics, and watching whether critics diverge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlcore import DistributionalPPO, apply_exploit, load_checkpoint, save_pbt_checkpoint
from tests.support.gradients import watched
from tests.support.steps import after, logged, scaler_of, train, weights_of
from tests.support.training import differing


def adam(steps: int, seed: int = 0, **settings: Any) -> DistributionalPPO:
    return after(steps, seed=seed, optimizer_class="adam", **settings)


def test_pbt_twin_critics_vgs_without_upgd(tmp_path: Path) -> None:
    """Adam takes over the source's moments or starts afresh, as asked; both critics and the statistics come along."""
    source = adam(10)
    file = save_pbt_checkpoint(source, None, tmp_path / "member.pt", performance=1.0)
    for strategy, moments in (("reset", 0), ("copy", 10)):
        target = adam(4, seed=1)
        apply_exploit(
            target,
            load_checkpoint(file).data,
            {"learning_rate": 2e-3},
            optimizer_exploit_strategy=strategy,  # type: ignore[arg-type]
        )
        assert isinstance(target.policy.optimizer, torch.optim.Adam)
        assert differing(weights_of(target), weights_of(source)) == []
        states = target.policy.optimizer.state_dict()["state"].values()
        assert {int(state["step"]) for state in states} == ({moments} if moments else set())
        train(target, 1)
        assert {int(state["step"]) for state in target.policy.optimizer.state.values()} == {moments + 2}
        assert {group["lr"] for group in target.policy.optimizer.param_groups} == {2e-3}
        assert scaler_of(target).step_count == 12


def test_exploit_with_vgs_transfer(tmp_path: Path) -> None:
    """After an exploit the scaling acts as it did for the source, on the weights that train here."""
    source = adam(10, vgs_alpha=5.0)
    target = adam(4, seed=1, vgs_alpha=5.0)
    wanted = scaler_of(source).get_scaling_factor()
    assert wanted < 1.0
    assert scaler_of(target).get_scaling_factor() != wanted
    file = save_pbt_checkpoint(source, None, tmp_path / "member.pt", performance=1.0)
    apply_exploit(target, load_checkpoint(file).data, {})
    with watched(target) as steps:
        train(target, 1)
    assert steps[0].promised == wanted
    assert differing(steps[0].used, {name: raw * wanted for name, raw in steps[0].raw.items()}) == []


def test_divergence_monitoring() -> None:
    """What is logged of the critics is the mean gap between their values in the rollout, 0 where they are one."""
    model = adam(2)
    for _ in range(3):
        train(model, 1)
        first, second = np.moveaxis(model.rollout_buffer.critic_values.astype(np.float64), -1, 0)
        assert logged(model, "twin_critics/divergence") == float(np.abs(first - second).mean()) > 0.0
    first_head, second_head = model.policy.value_net.heads
    second_head.load_state_dict(first_head.state_dict())
    train(model, 1)
    assert logged(model, "twin_critics/divergence") == 0.0
    with torch.no_grad():
        second_head[-1].bias.add_(3.0)  # type: ignore[index]
    std = model.value_scale.snapshot.std
    train(model, 1)
    assert abs(logged(model, "twin_critics/divergence") - 3.0 * std) < 0.3 * std
