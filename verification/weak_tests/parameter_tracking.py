"""Whether the scaler holds the parameters that train, as a value that nobody reads."""

from __future__ import annotations

from pathlib import Path

from verification.probes.make import Make


def test_the_scaler_holds_the_parameters_of_the_policy_after_a_load(tmp_path: Path) -> bool:
    model = Make().model(0)
    model.learn(96)
    model.save(tmp_path / "model.zip")
    loaded = type(model).load(tmp_path / "model.zip", env=Make().envs(0), device="cpu")
    assert loaded.variance_gradient_scaler is not None
    held = {id(parameter) for parameter in loaded.variance_gradient_scaler.parameters}
    return held == {id(parameter) for parameter in loaded.policy.parameters()}
