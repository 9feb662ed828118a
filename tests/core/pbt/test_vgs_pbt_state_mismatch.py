"""The three tests by which document 003 confirms its problem: policy of one member, statistics of another."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlcore import DistributionalPPO, ResumeWarning, apply_exploit
from tests.support.steps import after, scaler_of, weights_of
from tests.support.training import differing, make_envs


def test_vgs_state_preserved_via_save_load(tmp_path: Path) -> None:
    """Step count 8 -> 8, and the same averages."""
    model = after(8)
    model.save(tmp_path / "model.zip")
    loaded = DistributionalPPO.load(tmp_path / "model.zip", env=make_envs(), device="cpu")
    assert (scaler_of(model).step_count, scaler_of(loaded).step_count) == (8, 8)
    assert scaler_of(loaded).grad_var_ema == scaler_of(model).grad_var_ema is not None
    assert differing(scaler_of(loaded).state_dict(), scaler_of(model).state_dict()) == []


def test_vgs_state_synchronized_via_load(tmp_path: Path) -> None:
    """Step count 4 -> 10 with the file of a member that is further on, and its averages in place of the own ones."""
    source, target = after(10), after(4, seed=1)
    own = scaler_of(target).grad_var_ema
    source.save(tmp_path / "source.zip")
    assert (scaler_of(target).step_count, scaler_of(source).step_count) == (4, 10)
    target.set_parameters(tmp_path / "source.zip")
    assert scaler_of(target).step_count == 10
    assert scaler_of(target).grad_var_ema == scaler_of(source).grad_var_ema != own
    assert differing(scaler_of(target).state_dict(), scaler_of(source).state_dict()) == []


def test_policy_only_exploitation_does_not_keep_foreign_statistics() -> None:
    """The problem itself: with the policy alone, 4 -> 4 under weights that the 4 steps were not measured on. Restoring
    one part still does that; an exploit starts the statistics afresh and says so."""
    policy = {"policy": after(10).get_parameters()["policy"]}
    restored, exploited = after(4, seed=1), after(4, seed=1)
    own = scaler_of(restored).state_dict()
    restored.set_parameters(policy, exact_match=False)
    assert differing(scaler_of(restored).state_dict(), own) == []
    with (
        pytest.warns(ResumeWarning, match="no state for return_scale_state: this model keeps its own"),
        pytest.warns(ResumeWarning, match="no state for vgs_state"),
    ):
        apply_exploit(exploited, policy, {})
    assert differing(weights_of(exploited), weights_of(restored)) == []
    assert differing(dict(exploited.policy.state_dict()), dict(policy["policy"])) == []
    assert (scaler_of(exploited).step_count, scaler_of(exploited).grad_var_ema) == (0, None)
