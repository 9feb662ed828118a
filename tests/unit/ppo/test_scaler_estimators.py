"""Every variance estimator inside a model: it trains, and its statistics survive a file and an in-memory hand-over."""

from __future__ import annotations

from io import BytesIO

import pytest

from rlcore import DistributionalPPO, VarianceGradientScaler
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
