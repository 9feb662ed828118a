"""What set_parameters() takes of what it is given, and what it refuses because it is of something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlcore import DistributionalPPO, StateError, save_checkpoint
from tests.support.training import differing, make_model


def trained(**settings: Any) -> DistributionalPPO:
    model = make_model(**settings)
    model.learn(48)
    return model


@pytest.mark.parametrize(("given", "own"), [("upgd", "adaptive_upgd"), ("adaptive_upgd", "upgd"), ("sgd", "rmsprop")])
def test_moments_of_another_optimizer_are_refused(given: str, own: str) -> None:
    model, other = trained(optimizer_class=given), trained(optimizer_class=own)
    before = other.get_parameters()
    with pytest.raises(StateError, match=r"is not the state of a .* use the same optimizer_class"):
        other.set_parameters(model.get_parameters())
    assert differing(before, other.get_parameters()) == []


def test_the_model_s_own_switch_rules_over_that_of_a_scaler_s_state() -> None:
    model, other = trained(), trained(seed=5)
    given = model.get_parameters()
    given["vgs_state"]["enabled"] = False
    other.set_parameters(given)
    assert other.variance_gradient_scaler is not None
    assert other.variance_gradient_scaler.settings.enabled
    assert other.get_parameters()["vgs_state"]["step_count"] == given["vgs_state"]["step_count"]


@pytest.mark.parametrize("key", ["progress_state", "env_state", "lstm_state", "rng_state"])
@pytest.mark.parametrize("exact_match", [False, True])
def test_where_a_run_stands_is_no_parameter(key: str, exact_match: bool) -> None:
    model, other = trained(), trained(seed=5)
    before = other.__getstate__()["state"]
    given = {**model.get_parameters(), key: model.__getstate__()["state"][key]}
    with pytest.raises(StateError, match=f"{key} says where a run stands"):
        other.set_parameters(given, exact_match=exact_match)
    assert differing(before, other.__getstate__()["state"]) == []


def test_of_a_checkpoint_parameters_are_what_was_learnt(tmp_path: Path) -> None:
    model, other = trained(), trained(seed=5)
    run = {key: model.__getstate__()["state"][key] for key in ("lstm_state", "rng_state")}
    save_checkpoint(tmp_path / "file.zip", {**model.get_parameters(), **run}, step=1, performance=0.0)
    other.set_parameters(tmp_path / "file.zip")
    assert differing(other.get_parameters(), model.get_parameters()) == []
    assert not set(run) & set(other.pending_state)
