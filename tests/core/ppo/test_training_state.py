"""One registry names every piece of state, and every path carries all of it."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rlcore import (
    CheckpointError,
    DistributionalPPO,
    ResumeWarning,
    StateError,
    load_checkpoint,
    save_checkpoint,
)
from rlcore.checkpoint.container import load_container, save_container
from rlcore.state.training import LEARNT, Scope, StatePart
from tests.support.training import differing, make_envs, make_model, tensors_in

PATHS = ["save", "pickle", "deepcopy", "parameters", "checkpoint"]


def trained(**settings: Any) -> DistributionalPPO:
    model = make_model(make_envs(normalize=True), **settings)
    model.learn(96)
    return model


def travel(model: DistributionalPPO, path: str, folder: Path) -> DistributionalPPO:
    """The model after a journey along one of the paths."""
    if path == "save":
        model.save(folder / "model.zip")
        return DistributionalPPO.load(folder / "model.zip", env=make_envs(normalize=True), device="cpu")
    if path in ("pickle", "deepcopy"):
        copied: DistributionalPPO = pickle.loads(pickle.dumps(model)) if path == "pickle" else copy.deepcopy(model)  # noqa: S301
        copied.set_env(make_envs(normalize=True))
        return copied
    other = make_model(make_envs(normalize=True, seed=7), seed=7)
    other.learn(48)
    if path == "parameters":
        other.set_parameters(model.get_parameters())
    else:
        save_checkpoint(folder / "v2.pt", model.get_parameters(), step=96, performance=1.0)
        other.set_parameters(load_checkpoint(folder / "v2.pt").data)
    return other


@pytest.mark.parametrize("path", PATHS)
def test_scaler_statistics_survive_every_path(path: str, tmp_path: Path) -> None:
    model = trained()
    before, after = model.variance_gradient_scaler, travel(model, path, tmp_path).variance_gradient_scaler
    assert before is not None
    assert after is not None
    assert before.step_count == after.step_count == 8
    for name in ("grad_mean_ema", "grad_var_ema", "grad_norm_ema"):
        assert getattr(before, name) is not None
        assert getattr(after, name) == getattr(before, name)
    assert after.get_normalized_variance() == before.get_normalized_variance() > 0


@pytest.mark.parametrize("path", PATHS)
def test_the_scaler_scales_the_parameters_that_train_after_every_path(path: str, tmp_path: Path) -> None:
    arrived = travel(trained(), path, tmp_path)
    assert arrived.variance_gradient_scaler is not None
    linked = [id(p) for p in arrived.variance_gradient_scaler.parameters]
    assert linked == [id(p) for p in arrived.policy.parameters()]
    optimized = {id(p) for group in arrived.policy.optimizer.param_groups for p in group["params"]}
    assert optimized == set(linked)
    arrived.learn(48, reset_num_timesteps=False)
    assert arrived.variance_gradient_scaler.step_count == 12, "it goes on from where it was"


def test_relinking_keeps_the_statistics_of_every_tensor() -> None:
    model = trained()
    before = model.get_parameters()["vgs_state"]
    model.rebuild_optimizer()
    assert differing(before, model.get_parameters()["vgs_state"]) == []


def test_a_replaced_module_is_trained_and_scaled_after_rebuilding_the_optimizer() -> None:
    model = trained()
    model.policy.action_net = nn.Linear(8, 2)
    model.rebuild_optimizer()
    weight = model.policy.action_net.weight
    before = weight.detach().clone()
    model.learn(48, reset_num_timesteps=False)
    assert not torch.equal(before, weight)
    assert model.variance_gradient_scaler is not None
    assert any(p is weight for p in model.variance_gradient_scaler.parameters)


def test_parameters_are_a_snapshot_that_training_does_not_change() -> None:
    model = trained()
    taken = model.get_parameters()
    kept = copy.deepcopy(taken)
    live = {t.data_ptr() for t in model.policy.parameters()}
    assert not live & {t.data_ptr() for t in tensors_in(taken)}
    model.learn(48, reset_num_timesteps=False)
    assert differing(taken, kept) == []
    assert differing(taken, model.get_parameters()) != []


def test_every_part_is_captured_and_changes_what_a_file_holds(tmp_path: Path) -> None:
    model = trained(ent_coef=0.01, ent_coef_boost=2.0, kl_penalty_target=0.01)
    model.save(tmp_path / "model.zip")
    parts = {part.key: part for part in model._state_parts()}
    saved = model.__getstate__()["state"]
    assert set(saved) == set(parts)
    assert all(state is not None for state in saved.values())
    learner = {key for key, part in parts.items() if part.scope in LEARNT}
    assert set(model.get_parameters()) == learner


def test_a_component_in_the_registry_travels_along_every_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = DistributionalPPO._state_parts

    def with_one_more(self: DistributionalPPO) -> list[StatePart]:
        def restore(state: Any) -> None:
            self.added = dict(state)  # type: ignore[attr-defined]

        added = getattr(self, "added", {"count": 0})
        return [*original(self), StatePart("added_state", Scope.LEARNER, lambda: dict(added), restore)]

    monkeypatch.setattr(DistributionalPPO, "_state_parts", with_one_more)
    model = trained()
    model.added = {"count": 41}  # type: ignore[attr-defined]
    for path in ("save", "pickle", "parameters"):
        assert travel(model, path, tmp_path).added == {"count": 41}  # type: ignore[attr-defined]


def test_what_is_left_out_starts_fresh_and_one_warning_names_it() -> None:
    model, other = trained(), trained(seed=5)
    with pytest.warns(ResumeWarning, match="vgs_state, return_scale_state, normalizer_state") as caught:
        other.set_parameters({key: model.get_parameters()[key] for key in ("policy", "policy.optimizer")})
    assert len(caught) == 1
    assert other.variance_gradient_scaler is not None
    assert other.variance_gradient_scaler.step_count == 0


@pytest.mark.parametrize("exact_match", [True, False])
def test_statistics_of_another_estimator_are_checked_and_start_fresh(exact_match: bool) -> None:
    given, other = trained().get_parameters(), trained(seed=5, vgs_estimator="element")
    before = other.get_parameters()
    with pytest.raises(StateError, match="step_count"):
        other.set_parameters({**given, "vgs_state": {**given["vgs_state"], "step_count": -1}}, exact_match)
    assert differing(before, other.get_parameters()) == []
    with pytest.warns(ResumeWarning, match="'mean' are of no use to 'element'") as caught:
        other.set_parameters(given, exact_match)
    assert len(caught) == 1
    taken = other.get_parameters()
    assert differing(taken["policy"], given["policy"]) == []
    assert differing(taken["vgs_state"], make_model(vgs_estimator="element").get_parameters()["vgs_state"]) == []


@pytest.mark.parametrize("estimator", ["mean", "element"])
def test_a_scaler_s_state_needs_a_scaler(estimator: Any) -> None:
    model, other = trained(vgs_estimator=estimator), trained(variance_gradient_scaling=False)
    with pytest.raises(StateError, match="variance_gradient_scaling=False"):
        other.set_parameters(model.get_parameters())
    other.set_parameters(model.get_parameters(), exact_match=False)
    assert other.variance_gradient_scaler is None


def test_a_normaliser_s_state_needs_a_normaliser() -> None:
    model, other = trained(), make_model()
    with pytest.raises(StateError, match="VecNormalize"):
        other.set_parameters(model.get_parameters())
    other.set_parameters(model.get_parameters(), exact_match=False)
    assert differing(other.get_parameters()["policy"], model.get_parameters()["policy"]) == []


@pytest.mark.parametrize("kind", ["model file", "checkpoint"])
def test_parameters_are_read_from_a_file_by_its_path(kind: str, tmp_path: Path) -> None:
    model, other = trained(), trained(seed=5)
    path = tmp_path / "file.zip"
    if kind == "model file":
        model.save(path)
    else:
        save_checkpoint(path, model.get_parameters(), step=1, performance=0.0)
    other.set_parameters(path)
    assert differing(other.get_parameters(), model.get_parameters()) == []
    assert other.pending_state == {}, "where the run stood is no parameter"


@pytest.mark.parametrize(
    ("key", "settings"),
    [
        ("return_scale_state", {}),
        ("entropy_state", {"ent_coef_boost": 2.0, "ent_coef_plateau_explained_variance": 1.0}),
        ("kl_penalty_state", {"kl_penalty_coef": 1.0, "kl_penalty_target": 1e-6}),
    ],
)
def test_what_a_file_lacks_starts_fresh_unless_it_may_lack_parts(
    key: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    model, other, fresh = trained(**settings), trained(seed=5, **settings), make_model(**settings).get_parameters()[key]
    given = {name: state for name, state in model.get_parameters().items() if name != key}
    save_checkpoint(tmp_path / "part.pt", given, step=1, performance=0.0)
    own = other.get_parameters()[key]
    assert differing(own, fresh) != []
    other.set_parameters(tmp_path / "part.pt", exact_match=False)
    assert differing(other.get_parameters(), {**model.get_parameters(), key: own}) == []
    with pytest.warns(ResumeWarning, match=key):
        other.set_parameters(tmp_path / "part.pt")
    assert differing(other.get_parameters()[key], fresh) == []


@pytest.mark.parametrize(("options", "moves"), [({}, True), ({"seed": 3}, False)])
def test_a_new_seed_reseeds_the_noise_of_an_optimizer_whose_settings_have_none(
    options: dict[str, int], moves: bool
) -> None:
    model, seeds = make_model(optimizer_kwargs=options), []
    for seed in (None, 11, None, 12, 11):
        model.set_random_seed(seed)
        seeds.append(model.policy.optimizer.param_groups[0]["seed"])
    assert seeds[1] == seeds[2] == seeds[4]
    assert (len(set(seeds)) == 3) is moves


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_refused_by_name_and_change_nothing(bad: float, tmp_path: Path) -> None:
    source, target = make_model(seed=1), make_model(seed=2)
    before = target.get_parameters()
    with torch.no_grad():
        source.policy.action_net.bias[0] = bad
    source.save(tmp_path / "model.zip")
    with pytest.raises(StateError, match=r"policy\['action_net\.bias'\] holds NaN, infinity"):
        target.set_parameters(source.get_parameters())
    with pytest.raises(CheckpointError, match=r"policy\['action_net\.bias'\] holds NaN, infinity"):
        DistributionalPPO.load(tmp_path / "model.zip", device="cpu")
    assert differing(before, target.get_parameters()) == []


def test_parameters_can_leave_the_optimizer_out() -> None:
    source, target = make_model(seed=1), make_model(seed=2)
    source.learn(48)
    target.learn(48)
    own = target.get_parameters()["policy.optimizer"]
    parameters = source.get_parameters(include_optimizer=False)
    assert set(source.get_parameters()) - set(parameters) == {"policy.optimizer"}
    target.set_parameters(parameters, exact_match=False)
    taken = target.get_parameters()
    assert differing(taken["policy"], parameters["policy"]) == differing(taken["policy.optimizer"], own) == []
    with pytest.raises(StateError, match=r"missing are .*policy\.optimizer"):
        target.set_parameters(parameters)
    with pytest.raises(StateError, match=r"missing are \['policy'"):
        target.set_parameters({"policy.optimizer": own})


def plain(**settings: Any) -> DistributionalPPO:
    model = make_model(**settings)
    model.learn(48)
    return model


@pytest.mark.parametrize(("given", "own"), [("upgd", "adaptive_upgd"), ("adaptive_upgd", "upgd"), ("sgd", "rmsprop")])
def test_moments_of_another_optimizer_are_refused(given: str, own: str) -> None:
    model, other = plain(optimizer_class=given), plain(optimizer_class=own)
    before = other.get_parameters()
    with pytest.raises(StateError, match="does not fit"):
        other.set_parameters(model.get_parameters())
    assert differing(before, other.get_parameters()) == []


def test_what_is_learnt_is_taken_over_and_settings_are_not() -> None:
    giver = make_model(vgs_alpha=1.0, vgs_warmup_steps=1, optimizer_kwargs={"sigma": 0.5})
    taker = make_model(vgs_alpha=0.25, vgs_warmup_steps=2, optimizer_kwargs={"sigma": 0.125})
    giver.learn(96)
    given = giver.get_parameters()
    given["vgs_state"]["enabled"] = False
    taker.set_parameters(given)
    scaler = taker.variance_gradient_scaler
    assert scaler is not None
    assert (scaler.step_count, scaler.settings.alpha, scaler.settings.warmup_steps) == (8, 0.25, 2)
    assert scaler.settings.enabled
    assert {group["sigma"] for group in taker.policy.optimizer.param_groups} == {0.125}
    assert len(taker.policy.optimizer.state) == len(list(taker.policy.parameters()))


def test_values_of_another_return_scale_are_refused() -> None:
    model, given = make_model(return_scale=None), make_model().get_parameters()
    with pytest.raises(StateError, match="learnt under another return_scale"):
        model.set_parameters(given)


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
