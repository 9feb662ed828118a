"""Every variance estimator inside a model: it trains, and its statistics survive a file and an in-memory hand-over."""

from __future__ import annotations

from io import BytesIO

import pytest

from rlcore import DistributionalPPO, VarianceGradientScaler
from rlcore.errors import CheckpointError, ResumeWarning, StateError
from rlcore.optim.gradient_variance import ESTIMATORS
from tests.support.training import differing, make_envs, make_model, tensors_in


def scaler_of(model: DistributionalPPO) -> VarianceGradientScaler:
    assert model.variance_gradient_scaler is not None
    return model.variance_gradient_scaler


@pytest.mark.parametrize("estimator", list(ESTIMATORS))
def test_statistics_of_every_estimator_survive_a_file_and_a_hand_over(estimator: str) -> None:
    model = make_model(vgs_estimator=estimator, vgs_normalization="second_moment")
    model.learn(48)
    before = model.get_parameters()["vgs_state"]
    assert scaler_of(model).get_normalized_variance() > 0.0
    assert any(bool(tensor.any()) for tensor in tensors_in(before["estimator_state"]))
    file = BytesIO()
    model.save(file)
    file.seek(0)
    loaded = DistributionalPPO.load(file, env=make_envs(), device="cpu")
    other = make_model(vgs_estimator=estimator, vgs_normalization="second_moment", seed=1)
    other.set_parameters(model.get_parameters())
    for restored in (loaded, other):
        assert differing(restored.get_parameters()["vgs_state"], before) == []
        assert scaler_of(restored).get_scaling_factor() == scaler_of(model).get_scaling_factor()


def test_a_file_that_names_the_removed_sketch_says_what_to_do_and_loads_that_way() -> None:
    model, file = make_model(vgs_estimator="element"), BytesIO()
    model.learn(48)
    model.__dict__["vgs_estimator"] = "sketch"
    object.__setattr__(scaler_of(model).settings, "estimator", "sketch")
    model.save(file)
    file.seek(0)
    with pytest.raises(CheckpointError, match="vgs_estimator='sketch' cannot be used"):
        DistributionalPPO.load(file, env=make_envs(), device="cpu")
    file.seek(0)
    with pytest.warns(ResumeWarning, match="vgs_state"):
        loaded = DistributionalPPO.load(file, env=make_envs(), device="cpu", vgs_estimator="element")
    assert (scaler_of(loaded).settings.estimator, scaler_of(loaded).step_count) == ("element", 0)


def test_statistics_of_the_removed_sketch_are_refused_with_what_to_do() -> None:
    scaler = scaler_of(make_model())
    with pytest.raises(StateError, match="estimator='sketch' cannot be used"):
        scaler.load_state_dict({**scaler.state_dict(), "estimator": "sketch"})
