"""Bugs 4 and 9 of document 002: the scaler holds the very parameters that train, whatever happened to them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from rlcore import DistributionalPPO
from tests.support.training import make_envs, make_model


def trained(seed: int = 0) -> DistributionalPPO:
    model = make_model(make_envs(seed=seed), seed=seed, vgs_alpha=1.0)
    model.learn(48)
    return model


def assert_scales_what_trains(model: DistributionalPPO) -> None:
    """Identity, not equality: a copy has the same values, and its gradients are nobody's."""
    scaler, parameters = model.variance_gradient_scaler, list(model.policy.parameters())
    assert scaler is not None
    assert [id(parameter) for parameter in scaler.parameters] == [id(parameter) for parameter in parameters]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    factor = scaler.scale_gradients()
    assert factor < 1.0
    for parameter in parameters:
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, torch.full_like(parameter, factor))


def saved_and_loaded(model: DistributionalPPO, folder: Path) -> DistributionalPPO:
    model.save(folder / "model.zip")
    return DistributionalPPO.load(folder / "model.zip", env=make_envs(), device="cpu")


def pickled(model: DistributionalPPO, _: Path) -> DistributionalPPO:
    copied: DistributionalPPO = pickle.loads(pickle.dumps(model))  # noqa: S301
    return copied


def given_parameters(model: DistributionalPPO, _: Path) -> DistributionalPPO:
    other = trained(seed=7)
    other.set_parameters(model.get_parameters())
    return other


WAYS: dict[str, Callable[[DistributionalPPO, Path], DistributionalPPO]] = {
    "load()": saved_and_loaded,
    "pickle": pickled,
    "set_parameters()": given_parameters,
}


@pytest.mark.parametrize("way", WAYS)
def test_the_scaler_scales_what_trains_after_a_load(way: str, tmp_path: Path) -> None:
    assert_scales_what_trains(WAYS[way](trained(), tmp_path))


def test_the_scaler_scales_what_trains_after_the_optimizer_was_rebuilt() -> None:
    model = trained()
    before = list(model.policy.parameters())
    model.rebuild_optimizer()
    assert all(old is new for old, new in zip(before, model.policy.parameters(), strict=True))
    assert_scales_what_trains(model)


def test_a_replaced_module_is_scaled_after_rebuilding_the_optimizer() -> None:
    model = trained()
    model.policy.action_net = nn.Linear(8, 2)
    model.rebuild_optimizer()
    assert_scales_what_trains(model)


def test_a_replaced_module_is_scaled_after_a_load_too(tmp_path: Path) -> None:
    model = trained()
    model.policy.action_net = nn.Linear(8, 2)
    model.rebuild_optimizer()
    assert_scales_what_trains(saved_and_loaded(model, tmp_path))
