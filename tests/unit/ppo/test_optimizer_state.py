"""What of a saved optimizer is refused, and what of it is taken over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rlcore import DistributionalPPO
from rlcore.checkpoint import load_container, save_container
from tests.support.training import differing, make_envs, make_model

NAMES = ["adaptive_upgd", "adam", "adamw", "sgd", "rmsprop"]
OPTIONS: dict[str, dict[str, Any]] = {"sgd": {"momentum": 0.9}, "rmsprop": {"momentum": 0.9}}


@pytest.fixture(scope="module")
def models() -> dict[str, DistributionalPPO]:
    made = {name: make_model(optimizer_class=name, optimizer_kwargs=OPTIONS.get(name, {})) for name in NAMES}
    for model in made.values():
        model.learn(48)
    return made


def edited(model: DistributionalPPO, tmp_path: Path, change: Any) -> Path:
    """A file of the model with a change of its optimizer's state."""
    model.save(tmp_path / "edited.zip")
    content: Any = load_container(tmp_path / "edited.zip")
    change(content["state"]["policy.optimizer"])
    save_container(tmp_path / "edited.zip", content)
    return tmp_path / "edited.zip"


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "rmsprop"])
def test_a_step_that_is_a_plain_number_trains_on(
    optimizer: str, models: dict[str, DistributionalPPO], tmp_path: Path
) -> None:
    path = edited(models[optimizer], tmp_path, lambda state: state["state"][0].update(step=4))
    loaded = DistributionalPPO.load(path, env=make_envs(), device="cpu")
    loaded.learn(48, reset_num_timesteps=False)
    steps = {float(entry["step"]) for entry in loaded.policy.optimizer.state.values()}
    assert steps == {8.0}


def test_a_parameter_without_moments_starts_fresh(models: dict[str, DistributionalPPO], tmp_path: Path) -> None:
    path = edited(models["adam"], tmp_path, lambda state: state["state"].update({0: {}}))
    loaded = DistributionalPPO.load(path, env=make_envs(), device="cpu")
    loaded.learn(48, reset_num_timesteps=False)
    steps = sorted(float(entry["step"]) for entry in loaded.policy.optimizer.state.values())
    assert steps[0] == 4.0
    assert set(steps[1:]) == {8.0}


GROUPS: dict[str, dict[str, Any]] = {
    "adam": {"maximize": True, "weight_decay": 0.5, "betas": (0.1, 0.2), "fused": torch.ones(2), "eps": 0.25},
    "sgd": {"maximize": True, "nesterov": True, "momentum": 0.5},
    "adaptive_upgd": {"sigma": 0.5, "weight_decay": 0.5, "betas": (0.1, 0.2)},
}


@pytest.mark.parametrize("optimizer", GROUPS)
def test_options_are_the_model_s_and_not_those_of_the_file(
    optimizer: str, models: dict[str, DistributionalPPO], tmp_path: Path
) -> None:
    def change(state: dict[str, Any]) -> None:
        for group in state["param_groups"]:
            group.update(GROUPS[optimizer])

    loaded = DistributionalPPO.load(edited(models[optimizer], tmp_path, change), device="cpu")
    untouched = models[optimizer].get_parameters()
    assert differing(loaded.get_parameters(), untouched) == []
    other = make_model(optimizer_class=optimizer, optimizer_kwargs=OPTIONS.get(optimizer, {}))
    other.set_parameters(tmp_path / "edited.zip")
    assert differing(other.get_parameters(), untouched) == []


def test_rates_and_the_seed_of_the_noise_are_those_of_the_file(
    models: dict[str, DistributionalPPO], tmp_path: Path
) -> None:
    def change(state: dict[str, Any]) -> None:
        for group in state["param_groups"]:
            group |= {"lr": 0.125, "initial_lr": 0.25, "seed": 2**63}

    loaded = DistributionalPPO.load(edited(models["adaptive_upgd"], tmp_path, change), device="cpu")
    groups = loaded.policy.optimizer.param_groups
    assert [(group["lr"], group["initial_lr"], group["seed"]) for group in groups] == [(0.125, 0.25, 2**63)] * 2


class Measuring(torch.optim.SGD):
    """Keeps in its groups what it measures, as some optimizers that find their own rate do."""

    def __init__(self, params: Any, lr: float = 0.1, *, growth: float = 2.0) -> None:
        super().__init__(params, lr=lr)
        for group in self.param_groups:
            group |= {"growth": growth, "measured": 1.0}


def test_what_another_optimizer_measures_in_its_groups_is_of_the_file(tmp_path: Path) -> None:
    model = make_model(optimizer_class=Measuring)
    for group in model.policy.optimizer.param_groups:
        group |= {"growth": 9.0, "measured": 4.0}
    model.save(tmp_path / "model.zip")
    loaded = DistributionalPPO.load(tmp_path / "model.zip", device="cpu", custom_objects={"optimizer_class": Measuring})
    assert [(g["growth"], g["measured"]) for g in loaded.policy.optimizer.param_groups] == [(2.0, 4.0)] * 2
