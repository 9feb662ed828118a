"""Saving and loading, looked at for what survives anyway, or not at all."""

from __future__ import annotations

from pathlib import Path

from rlcore import DistributionalPPO, VarianceGradientScaler
from verification.probes.make import Make


def saved_and_loaded(model: DistributionalPPO, folder: Path) -> DistributionalPPO:
    """The model that comes out of the file that the given one was written to."""
    model.save(folder / "model.zip")
    return type(model).load(folder / "model.zip", env=Make().envs(0), device="cpu")


def scaler_of(model: DistributionalPPO) -> VarianceGradientScaler:
    """Its scaler, which must be there."""
    assert model.variance_gradient_scaler is not None
    return model.variance_gradient_scaler


def test_several_cycles_of_saving_and_loading_do_not_crash(tmp_path: Path) -> None:
    model = Make().model(0)
    for _ in range(3):
        model.learn(96)
        model = saved_and_loaded(model, tmp_path)


def test_step_count_and_averages_survive_a_load(tmp_path: Path) -> None:
    """Those over all tensors: what was measured of each tensor is not looked at."""
    model = Make().model(0)
    model.learn(96)
    before, after = scaler_of(model), scaler_of(saved_and_loaded(model, tmp_path))
    assert after.step_count == before.step_count > 0
    for name in ("grad_mean_ema", "grad_var_ema", "grad_norm_ema"):
        assert getattr(after, name) == getattr(before, name) is not None
