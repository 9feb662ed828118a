"""The three tests by which document 003 validates its fix: what a population hands over has the gradient statistics."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlcore import PBTScheduler, ResumeWarning, apply_exploit, load_checkpoint
from rlcore.checkpoint.formats import FORMAT_V1, FORMAT_V2
from tests.support.schedulers import make_scheduler
from tests.support.steps import after, all_finite, scaler_of, train, weights_of
from tests.support.training import differing


def scheduler_of_two(folder: Path) -> PBTScheduler:
    return make_scheduler(folder, size=2, hyperparams=[])


def test_v2_checkpoint_includes_vgs_state(tmp_path: Path) -> None:
    scheduler, model = scheduler_of_two(tmp_path), after(4)
    member = scheduler.population[0]
    scheduler.update_performance(member, 0.8, 100, model_parameters=model.get_parameters())
    assert member.checkpoint_path is not None
    checkpoint = load_checkpoint(member.checkpoint_path, require_digest=True)
    assert (checkpoint.format_version, checkpoint.step, checkpoint.performance) == (FORMAT_V2, 100, 0.8)
    saved = checkpoint.data["vgs_state"]
    assert isinstance(saved, dict)
    assert saved["step_count"] == 4
    assert differing(saved, scaler_of(model).state_dict()) == []


def test_pbt_scheduler_with_full_parameters(tmp_path: Path) -> None:
    """Step count 4 -> 10 and the source's averages, in its own weights; training continues from there to 12."""
    scheduler, target, source = scheduler_of_two(tmp_path), after(4, seed=1), after(10)
    worse, better = scheduler.population
    own = scaler_of(target).grad_var_ema
    scheduler.update_performance(worse, 0.2, 5, model_parameters=target.get_parameters())
    scheduler.update_performance(better, 0.8, 5, model_parameters=source.get_parameters())
    parameters, hyperparams, checkpoint_format = scheduler.exploit_and_explore(worse)
    assert checkpoint_format == FORMAT_V2
    assert parameters is not None
    assert scaler_of(target).step_count == 4
    apply_exploit(target, parameters, hyperparams)
    assert scaler_of(target).step_count == 10
    assert scaler_of(target).grad_var_ema == scaler_of(source).grad_var_ema != own
    assert differing(weights_of(target), weights_of(source)) == []
    train(target, 1)
    assert scaler_of(target).step_count == 12
    assert all_finite(target.get_parameters())


def test_backward_compatibility_with_v1_checkpoints(tmp_path: Path) -> None:
    """A bare policy is read, named v1_policy_only, has no statistics to give, and trains on."""
    scheduler, target, source = scheduler_of_two(tmp_path), after(4, seed=1), after(10)
    worse, better = scheduler.population
    scheduler.update_performance(worse, 0.2, 5, model_parameters=target.get_parameters())
    with pytest.warns(DeprecationWarning, match="model_state_dict saves the policy alone"):
        scheduler.update_performance(better, 0.8, 5, model_state_dict=source.policy.state_dict())
    with pytest.warns(ResumeWarning, match="holds only the policy"):
        parameters, hyperparams, checkpoint_format = scheduler.exploit_and_explore(worse)
    assert checkpoint_format == FORMAT_V1
    assert parameters is not None
    assert list(parameters) == ["policy"]
    with (
        pytest.warns(ResumeWarning, match="no state for return_scale_state: this model keeps its own"),
        pytest.warns(ResumeWarning, match="no state for vgs_state"),
    ):
        apply_exploit(target, parameters, hyperparams)
    assert differing(weights_of(target), weights_of(source)) == []
    train(target, 1)
    assert scaler_of(target).step_count == 2
