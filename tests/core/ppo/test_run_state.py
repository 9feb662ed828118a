"""Where a run stands: counters, generators, and what a save holds around and within a rollout."""

from __future__ import annotations

import io
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlcore import DistributionalPPO, ResumeWarning
from rlcore.ppo import state_parts
from tests.support.configurations import ALWAYS_MOVING
from tests.support.training import acting, differing, make_envs, make_model, tensors_in


def trained(**settings: Any) -> DistributionalPPO:
    model = make_model(make_envs(normalize=True), **settings)
    model.learn(96)
    return model


def test_counters_and_the_window_of_episodes_survive_a_file(tmp_path: Path) -> None:
    model = trained(stats_window_size=7)
    counters = ("num_timesteps", "_total_timesteps", "_episode_num", "_n_updates", "_current_progress_remaining")
    for number, name in zip((11, 12, 13, 14, 0.15), counters, strict=True):
        setattr(model, name, number)
    model.save(tmp_path / "model.zip")
    loaded = DistributionalPPO.load(tmp_path / "model.zip", device="cpu")
    assert [getattr(loaded, name) for name in counters] == [11, 12, 13, 14, 0.15]
    for name in ("ep_info_buffer", "ep_success_buffer"):
        mine, theirs = getattr(model, name), getattr(loaded, name)
        assert (list(theirs), theirs.maxlen) == (list(mine), 7)


def draws() -> list[Any]:
    """Numbers of every kind from every global generator; an odd number of NumPy's normals leaves one cached."""
    python, numpy = [random.random(), random.gauss(0, 1)], [np.random.normal(), np.random.random()]
    return [*python, *numpy, *torch.rand(3).tolist(), *torch.randn(3).tolist()]


def test_every_global_generator_goes_on_where_it_was_captured() -> None:
    draws()
    captured = state_parts.capture_generators()
    first = [draws(), draws()]
    state_parts.apply_generators(captured)
    assert [draws(), draws()] == first


def test_parameters_given_in_the_middle_of_a_rollout_are_those_that_a_save_holds() -> None:
    model, given = trained(), trained(seed=5).get_parameters()
    held: dict[str, Any] = {}

    def exploit() -> None:
        model.set_parameters(given)
        held.update(model.__getstate__()["state"])

    model.learn(48, callback=acting(5, exploit, go_on=True), reset_num_timesteps=False)
    assert differing({key: held[key] for key in given}, given) == []


def test_environments_set_after_a_stop_in_a_rollout_are_those_that_a_save_holds() -> None:
    model = trained()
    model.learn(48, callback=acting(5, go_on=False), reset_num_timesteps=False)
    stopped = model.__getstate__()["state"]
    assert stopped["lstm_state"] is not None
    other = make_envs(normalize=True, seed=9)
    other.reset()
    model.set_env(other)
    held = model.__getstate__()["state"]
    assert held["lstm_state"] is None
    assert differing(held["env_state"], stopped["env_state"]) != []


def test_episodes_of_arrays_are_saved_and_loaded_without_what_no_file_can_hold() -> None:
    model, file = make_model(), io.BytesIO()
    model.learn(48)
    assert model.ep_info_buffer is not None
    model.ep_info_buffer.clear()
    model.ep_info_buffer.extend(
        {"r": np.array([value]), "l": np.array([4]), "t": np.float32(1), "tool": object()} for value in (4.0, 6.0)
    )
    model.save(file)
    file.seek(0)
    loaded = DistributionalPPO.load(file, env=make_envs(), device="cpu")
    assert list(loaded.ep_info_buffer or ()) == [{"r": [value], "l": [4], "t": 1.0} for value in (4.0, 6.0)]


def reloaded(model: DistributionalPPO, folder: Path, **settings: Any) -> DistributionalPPO:
    model.save(folder / "model.zip")
    return DistributionalPPO.load(folder / "model.zip", env=make_envs(normalize=True), device="cpu", **settings)


@pytest.fixture
def stopped() -> DistributionalPPO:
    model = make_model(make_envs(normalize=True))
    model.learn(144, callback=acting(21, go_on=False))
    return model


def test_an_optimizer_rebuilt_after_a_stop_is_what_is_saved(stopped: DistributionalPPO, tmp_path: Path) -> None:
    stopped.rebuild_optimizer()
    assert len(reloaded(stopped, tmp_path).policy.optimizer.state) == 0


def test_setting_what_is_there_already_in_a_rollout_changes_nothing_of_the_resume(tmp_path: Path) -> None:
    whole = make_model(make_envs(normalize=True))
    whole.learn(144)
    expected = whole.get_parameters()
    cut = make_model(make_envs(normalize=True))

    def give_it_its_own_policy() -> None:
        cut.set_parameters({"policy": cut.get_parameters()["policy"]}, exact_match=False)
        cut.save(tmp_path / "model.zip")

    cut.learn(144, callback=acting(21, give_it_its_own_policy, go_on=False))
    loaded = DistributionalPPO.load(tmp_path / "model.zip", env=make_envs(normalize=True), device="cpu")
    loaded.learn(144 - loaded.num_timesteps, reset_num_timesteps=False)
    assert differing(expected, loaded.get_parameters()) == []


def test_what_starts_fresh_or_is_forgotten_after_a_stop_is_so_in_a_file_too(stopped: DistributionalPPO) -> None:
    stopped.reset_lstm_states_to_initial()
    with pytest.warns(ResumeWarning, match="normalizer_state"):
        stopped.set_parameters({key: stopped.get_parameters()[key] for key in ("policy", "policy.optimizer")})
    kept: Any = stopped.__getstate__()["state"]
    assert differing(kept["normalizer_state"], stopped.get_parameters()["normalizer_state"]) == []
    assert not any(bool(tensor.any()) for name in ("actor", "critic") for tensor in kept["lstm_state"][name])


@pytest.mark.parametrize("seed", [1, None])
def test_another_seed_or_a_new_count_after_a_load_begins_another_run(
    seed: int | None, stopped: DistributionalPPO, tmp_path: Path
) -> None:
    """From a reset, without a warning; what the normaliser had learnt stays."""
    loaded = reloaded(stopped, tmp_path, **({} if seed is None else {"seed": seed}))
    assert (set(loaded.pending_state) == {"normalizer_state"}) is (seed is not None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded.learn(48, reset_num_timesteps=seed is None)
    assert loaded.num_timesteps == (48 if seed is None else 96)
    assert loaded.pending_state == {}


def test_statistics_that_wait_for_a_run_start_fresh_as_well(stopped: DistributionalPPO, tmp_path: Path) -> None:
    loaded = reloaded(stopped, tmp_path, seed=1)
    with pytest.warns(ResumeWarning, match="normalizer_state"):
        loaded.set_parameters({key: stopped.get_parameters()[key] for key in ("policy", "policy.optimizer")})
    assert loaded.pending_state == {}


def test_an_update_that_fails_leaves_no_trace() -> None:
    model = make_model(**ALWAYS_MOVING)
    model.learn(48)
    before, updates = model.get_parameters(), model._n_updates
    step, calls = model.policy.optimizer.step, []

    def failing() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise FloatingPointError
        step()

    model.policy.optimizer.step = failing  # type: ignore[method-assign,assignment]
    with pytest.raises(FloatingPointError):
        model.learn(48, reset_num_timesteps=False)
    assert differing(before, model.get_parameters()) == []
    assert model._n_updates == updates


def test_an_interrupted_update_is_saved_as_it_began_and_resumes_exactly(tmp_path: Path) -> None:
    whole = make_model(make_envs(normalize=True))
    whole.learn(144)
    expected = whole.get_parameters()

    model = make_model(make_envs(normalize=True))
    step, steps = model.policy.optimizer.step, []

    def interrupted() -> None:
        steps.append(1)
        if len(steps) == 6:
            raise KeyboardInterrupt
        step()

    model.policy.optimizer.step = interrupted  # type: ignore[method-assign,assignment]
    with pytest.raises(KeyboardInterrupt):
        model.learn(144)
    model.save(tmp_path / "model.zip")
    loaded = DistributionalPPO.load(tmp_path / "model.zip", env=make_envs(normalize=True), device="cpu")
    assert loaded.num_timesteps == 48
    loaded.learn(144 - 48, reset_num_timesteps=False)
    assert differing(expected, loaded.get_parameters()) == []


NEEDS_CUDA = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
DEVICES = ["cpu", pytest.param("cuda", marks=NEEDS_CUDA)]


@pytest.mark.parametrize("later", DEVICES)
@pytest.mark.parametrize("first", DEVICES)
def test_a_model_goes_on_training_where_it_is_loaded(first: str, later: str) -> None:
    model, file = make_model(device=first), io.BytesIO()
    model.learn(96)
    assert {parameter.device.type for parameter in model.policy.parameters()} == {first}
    model.save(file)
    file.seek(0)
    loaded = DistributionalPPO.load(file, env=make_envs(), device=later)
    assert {parameter.device.type for parameter in loaded.policy.parameters()} == {later}
    saved, restored = ([each.cpu() for each in tensors_in(m.get_parameters())] for m in (model, loaded))
    assert len(saved) > 20
    assert all(torch.equal(one, other) for one, other in zip(saved, restored, strict=True))
    loaded.learn(48, reset_num_timesteps=False)
    trained = [each.cpu() for each in tensors_in(loaded.get_parameters())]
    assert any(not torch.equal(one, other) for one, other in zip(saved, trained, strict=True))
    assert all(parameter.isfinite().all() for parameter in loaded.policy.parameters())
