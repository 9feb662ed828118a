"""What of a saved optimizer is refused, and what of it is taken over."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from rlcore import CheckpointError, DistributionalPPO, ResumeWarning, StateError
from rlcore.checkpoint import load_container, save_container
from tests.support.training import differing, make_envs, make_model

MOMENTS = {
    "adaptive_upgd": ("utility", "first_moment", "second_moment"),
    "upgd": ("utility",),
    "adam": ("exp_avg", "exp_avg_sq"),
    "adamw": ("exp_avg", "exp_avg_sq"),
    "sgd": ("momentum_buffer",),
    "rmsprop": ("square_avg", "momentum_buffer"),
}
OPTIONS: dict[str, dict[str, Any]] = {"sgd": {"momentum": 0.9}, "rmsprop": {"momentum": 0.9}}
COUNTED = [name for name in MOMENTS if name != "sgd"]


@pytest.fixture(scope="module")
def models() -> dict[str, DistributionalPPO]:
    made = {name: make_model(optimizer_class=name, optimizer_kwargs=OPTIONS.get(name, {})) for name in MOMENTS}
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


def refused(model: DistributionalPPO, change: Any, said: str) -> None:
    before, damaged = model.get_parameters(), model.get_parameters()
    change(damaged["policy.optimizer"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResumeWarning)  # of a cast
        with pytest.raises(StateError, match=rf"policy\.optimizer.*{said}"):
            model.set_parameters(damaged)
    assert differing(before, model.get_parameters()) == []


def replaced(name: str, value: Any) -> Any:
    def change(state: dict[str, Any]) -> None:
        old = state["state"][0][name]
        state["state"][0][name] = value(old) if callable(value) else value

    return change


WRONG: dict[str, Any] = {
    "None": None,
    "a list": [],
    "a number": 1.0,
    "NaN": lambda old: torch.full_like(old, float("nan")),
    "infinity": lambda old: torch.full_like(old, float("inf")),
    "numbers that only float64 holds": lambda old: torch.full_like(old, 1e300, dtype=torch.float64),
    "whole numbers": lambda old: torch.zeros_like(old, dtype=torch.int64),
    "another shape": lambda old: torch.zeros(2, 2, 2),  # noqa: ARG005
    "a scalar": lambda old: torch.tensor(0.0),  # noqa: ARG005
}


CASES = [(name, moment, wrong) for name in MOMENTS for moment in MOMENTS[name] for wrong in WRONG]
CASES.remove(("sgd", "momentum_buffer", "None"))  # which torch has of a parameter without momentum


@pytest.mark.parametrize(("optimizer", "moment", "wrong"), CASES)
def test_a_moment_is_finite_and_of_its_parameter_s_shape(
    optimizer: str, moment: str, wrong: str, models: dict[str, DistributionalPPO]
) -> None:
    refused(models[optimizer], replaced(moment, WRONG[wrong]), moment)


@pytest.mark.parametrize(
    ("optimizer", "moment"), [("adaptive_upgd", "second_moment"), ("adam", "exp_avg_sq"), ("rmsprop", "square_avg")]
)
def test_a_second_moment_is_not_negative(optimizer: str, moment: str, models: dict[str, DistributionalPPO]) -> None:
    change = replaced(moment, lambda old: torch.full_like(old, -1e-9))
    refused(models[optimizer], change, f"{moment}.*holds a number below 0")


STEPS = [None, -1, 0.5, float("nan"), 2**70, True, "8", [8], torch.tensor(-1.0), torch.tensor(4), torch.ones(2)]


@pytest.mark.parametrize("step", STEPS, ids=str)
@pytest.mark.parametrize("optimizer", COUNTED)
def test_a_step_is_a_count(optimizer: str, step: Any, models: dict[str, DistributionalPPO]) -> None:
    refused(models[optimizer], replaced("step", step), "'step'.*whole number from 0 to")


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "rmsprop"])
def test_a_step_that_is_a_plain_number_trains_on(
    optimizer: str, models: dict[str, DistributionalPPO], tmp_path: Path
) -> None:
    path = edited(models[optimizer], tmp_path, replaced("step", 4))
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


@pytest.mark.parametrize("params", [[0, 0], [[], 1], ["0", 1], [True, 0]], ids=["twice", "a list", "a text", "a bool"])
def test_every_parameter_is_numbered_once(params: list[Any], models: dict[str, DistributionalPPO]) -> None:
    def change(state: dict[str, Any]) -> None:
        state["param_groups"][0]["params"][:2] = params

    refused(models["adam"], change, r"\['param_groups'\]")


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


@pytest.mark.parametrize("name", ["lr", "initial_lr", "seed"])
@pytest.mark.parametrize("value", [None, -1, "x", float("nan"), float("inf"), True, torch.ones(2)], ids=str)
def test_a_rate_or_seed_that_is_none_is_refused(name: str, value: Any, models: dict[str, DistributionalPPO]) -> None:
    def change(state: dict[str, Any]) -> None:
        state["param_groups"][1][name] = value

    refused(models["adaptive_upgd"], change, name)


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


@pytest.mark.parametrize("value", [None, float("nan")], ids=str)
def test_a_file_with_it_is_named(value: Any, models: dict[str, DistributionalPPO], tmp_path: Path) -> None:
    path = edited(models["adam"], tmp_path, replaced("step", value))
    for read in (lambda: DistributionalPPO.load(path, device="cpu"), lambda: models["adam"].set_parameters(path)):
        with pytest.raises(CheckpointError, match=r"edited\.zip: policy\.optimizer.*'step'"):
            read()


def test_a_state_that_is_restored_is_saved_with_the_same_bytes() -> None:
    def saved(model: DistributionalPPO) -> bytes:
        file = io.BytesIO()
        save_container(file, model.get_parameters())
        return file.getvalue()

    source, target = make_model(optimizer_class="upgd"), make_model(optimizer_class="upgd", seed=1)
    source.learn(48)
    target.set_parameters(source.get_parameters())
    assert saved(target) == saved(source)
