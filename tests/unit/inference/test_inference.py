"""A policy from a file acts as the model did: same scale of observations, same memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from rlcore import (
    DistributionalPPO,
    StateError,
    infer_signals,
    load_policy,
    save_checkpoint,
)
from rlcore.checkpoint import load_container, save_container
from rlcore.ppo import construction
from rlcore.ppo.policy import DistributionalRecurrentPolicy
from tests.support.acting import NETWORK, RAW, STARTS, STEPS, expected_actions
from tests.support.environments import Parts
from tests.support.space_cases import Echo
from tests.support.training import SMALL, make_envs, make_model

ROOT = Path(__file__).parents[3]


def test_a_sequence_gets_the_models_own_actions(model: DistributionalPPO, file: Path) -> None:
    actions = infer_signals(file, RAW, STARTS)
    np.testing.assert_array_equal(actions, expected_actions(model, RAW))
    np.testing.assert_array_equal(infer_signals(file, RAW.astype(np.float64), STARTS), actions)
    assert load_policy(file).normalizes
    without_starts = infer_signals(file, RAW)
    np.testing.assert_array_equal(without_starts, expected_actions(model, RAW, np.arange(STEPS) == 0))
    forgetful = np.stack([load_policy(file).predict(observation)[0] for observation in RAW[:3]])
    assert (without_starts[:15] == actions[:15]).all()
    assert (without_starts[15:20] != actions[15:20]).all()
    assert (forgetful[1:] != actions[1:3]).all()


def test_environments_side_by_side_get_the_actions_of_each_alone(file: Path) -> None:
    side_by_side = np.stack([RAW, RAW[::-1]], axis=1)
    starts = np.stack([STARTS, STARTS[::-1]], axis=1)
    actions = infer_signals(file, side_by_side, starts)
    assert actions.shape == (STEPS, 2, 1)
    np.testing.assert_allclose(actions[:, 0], infer_signals(file, RAW, STARTS), atol=1e-8)
    np.testing.assert_allclose(actions[:, 1], infer_signals(file, RAW[::-1], STARTS[::-1]), atol=1e-8)


def test_a_fresh_process_gives_the_same_actions(model: DistributionalPPO, file: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "given.npz", observations=RAW, starts=STARTS)
    script = (
        "import sys, numpy, torch; from rlcore import infer_signals; torch.set_num_threads(1)\n"
        "given = numpy.load(sys.argv[2])\n"
        "numpy.save(sys.argv[3], infer_signals(sys.argv[1], given['observations'], given['starts']))"
    )
    command = [sys.executable, "-W", "error", "-c", script, file, tmp_path / "given.npz", tmp_path / "actions.npy"]
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})
    np.testing.assert_array_equal(np.load(tmp_path / "actions.npy"), expected_actions(model, RAW))


def test_discrete_actions_without_a_normaliser_are_the_models_own(tmp_path: Path) -> None:
    model = make_model()
    model.save(tmp_path / "model.zip")
    observations = np.random.default_rng(0).normal(size=(STEPS, 4)).astype(np.float32)
    actions = infer_signals(tmp_path / "model", observations, STARTS)
    np.testing.assert_array_equal(actions, expected_actions(model, observations))
    assert set(actions) == {0, 1}
    assert not load_policy(tmp_path / "model").normalizes


@pytest.mark.parametrize(
    "settings", [{"clip_obs": 0.5}, {"epsilon": 2.0}, {"norm_obs": False}, {"norm_reward": False}], ids=str
)
def test_the_wrappers_own_settings_are_followed(settings: dict[str, Any], tmp_path: Path) -> None:
    model = make_model(VecNormalize(make_envs("Pendulum-v1"), **settings))
    model.learn(48)
    model.save(tmp_path / "model.zip")
    observations = RAW / [1.0, 20.0, 40.0]
    actions = infer_signals(tmp_path / "model.zip", observations.astype(np.float32), STARTS)
    np.testing.assert_array_equal(actions, expected_actions(model, observations.astype(np.float32)))
    assert load_policy(tmp_path / "model.zip").normalizes == settings.get("norm_obs", True)


def test_a_normaliser_that_was_switched_off_is_not_followed(tmp_path: Path) -> None:
    model = make_model(make_envs("Pendulum-v1", normalize=True))
    model.learn(48)
    model.get_vec_normalize_env().norm_obs = False  # type: ignore[union-attr]
    model.save(tmp_path / "model.zip")
    assert not load_policy(tmp_path / "model.zip").normalizes


def test_of_two_normalisers_the_inner_one_comes_first(tmp_path: Path) -> None:
    model = make_model(VecNormalize(make_envs("Pendulum-v1", normalize=True), epsilon=0.5))
    model.learn(48)
    model.save(tmp_path / "model.zip")
    observations = RAW / np.float32([1.0, 20.0, 40.0])
    actions = infer_signals(tmp_path / "model.zip", observations)
    np.testing.assert_array_equal(actions, expected_nested(model, observations))


def expected_nested(model: DistributionalPPO, observations: Any) -> Any:
    outer: Any = model.get_env()
    actions, state = [], None
    for observation in observations:
        seen = outer.normalize_obs(outer.venv.normalize_obs(observation))
        action, state = model.predict(seen, state, deterministic=True)
        actions.append(action)
    return np.stack(actions)


def test_a_v2_checkpoint_acts_the_same_with_spaces_and_settings(
    model: DistributionalPPO, box: Any, tmp_path: Path
) -> None:
    save_checkpoint(tmp_path / "v2.pt", model.get_parameters(), step=48, performance=0.0)
    expected = expected_actions(model, RAW)
    for options in ({"spaces": box}, {"env": gym.make("Pendulum-v1")}, {"env": make_envs("Pendulum-v1")}):
        actions = infer_signals(tmp_path / "v2.pt", RAW, STARTS, settings=NETWORK, **options)
        np.testing.assert_array_equal(actions, expected)


def test_a_file_that_does_not_say_whether_it_saw_normalised_observations_brings_a_warning(
    model: DistributionalPPO, box: Any, tmp_path: Path
) -> None:
    torch.save(dict(model.policy.state_dict()), tmp_path / "v1.pt")
    without = {name: part for name, part in model.get_parameters().items() if name != "normalizer_state"}
    save_checkpoint(tmp_path / "v2.pt", without, step=48, performance=0.0)
    normalised = model.get_vec_normalize_env().normalize_obs(RAW)  # type: ignore[union-attr]
    for name in ("v1.pt", "v2.pt"):
        with pytest.warns(UserWarning, match="does not say whether") as caught:
            actions = infer_signals(tmp_path / name, normalised, STARTS, spaces=box, settings=NETWORK)
        assert len(caught) == 1
        np.testing.assert_array_equal(actions, expected_actions(model, RAW))


def test_statistics_without_the_wrappers_settings_take_its_defaults(
    model: DistributionalPPO, file: Path, tmp_path: Path
) -> None:
    content: Any = load_container(file)
    for name in ("norm_obs", "clip_obs", "epsilon"):
        del content["state"]["normalizer_state"]["layers"][0][name]
    save_container(tmp_path / "older.zip", content)
    np.testing.assert_array_equal(infer_signals(tmp_path / "older.zip", RAW, STARTS), expected_actions(model, RAW))


def test_loading_and_acting_leave_the_generators_alone_and_build_nothing_for_training(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("make_buffer", "make_scaler"):
        monkeypatch.delattr(construction, name)
    monkeypatch.delattr(DistributionalPPO, "_setup_model")
    torch.manual_seed(5)
    np.random.seed(5)
    expected = (torch.rand(3), np.random.rand())
    torch.manual_seed(5)
    np.random.seed(5)
    policy = load_policy(file)
    policy.infer(RAW)
    assert torch.equal(torch.rand(3), expected[0])
    assert np.random.rand() == expected[1]
    assert (policy.device.type, policy.action_space.shape, policy.observation_space.shape) == ("cpu", (1,), (3,))


def test_the_network_is_put_where_map_location_says(
    model: DistributionalPPO, box: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent_to: list[str] = []

    class Staying(DistributionalRecurrentPolicy):
        def to(self, device: Any) -> Self:  # type: ignore[override]  # of torch's overloads the one that is used
            sent_to.append(str(device))
            return self

    save_checkpoint(tmp_path / "v2.pt", model.get_parameters(), step=48, performance=0.0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    options: dict[str, Any] = {"spaces": box, "settings": NETWORK, "policy": Staying}
    for given in ("cuda:1", torch.device("cuda:0"), "cpu"):
        load_policy(tmp_path / "v2.pt", map_location=given, **options)
    load_policy(tmp_path / "v2.pt", **options)
    assert sent_to == ["cuda:1", "cuda:0", "cpu", "cpu"]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_acts_as_the_cpu_does(file: Path) -> None:
    policy = load_policy(file, map_location="cuda")
    assert policy.device.type == "cuda"
    expected = infer_signals(file, RAW, STARTS)
    np.testing.assert_allclose(policy.infer(RAW, STARTS), expected, atol=0.05 * np.ptp(expected))


def test_actions_can_be_drawn_instead(file: Path) -> None:
    policy = load_policy(file)
    torch.manual_seed(0)
    drawn = [policy.predict(RAW[0], deterministic=False)[0].item() for _ in range(3)]
    assert len(set(drawn)) == 3
    assert len({policy.predict(RAW[0])[0].item() for _ in range(3)}) == 1


def test_a_restore_leaves_an_environments_own_limits(model: DistributionalPPO) -> None:
    other = make_model(VecNormalize(make_envs("Pendulum-v1"), clip_obs=0.5))
    other.set_parameters(model.get_parameters())
    assert other.get_vec_normalize_env().clip_obs == 0.5  # type: ignore[union-attr]
    with pytest.raises(StateError):
        make_model(make_envs("Pendulum-v1")).set_parameters(model.get_parameters())


def test_of_named_observations_those_are_normalised_that_training_normalised(tmp_path: Path) -> None:
    envs = make_vec_env("Pendulum-v1", 2, seed=0, wrapper_class=Parts)
    settings = {**SMALL, "policy_kwargs": {"lstm_hidden_size": 8}}
    model = DistributionalPPO("MultiInputLstmPolicy", VecNormalize(envs, norm_obs_keys=["speed"]), **settings)
    model.learn(32)
    model.save(tmp_path / "model.zip")
    observations = {"direction": RAW[:, :2], "speed": RAW[:, 2:] / 100}
    steps = [{name: values[step] for name, values in observations.items()} for step in range(STEPS)]
    np.testing.assert_array_equal(
        infer_signals(tmp_path / "model.zip", observations, STARTS), expected_actions(model, steps)
    )


CHANNELS_LAST = spaces.Box(0, 255, (36, 40, 3), np.uint8)


@pytest.mark.parametrize("named", [False, True])
def test_images_are_taken_as_the_environment_has_them(named: bool, tmp_path: Path) -> None:
    seen: spaces.Space[Any] = spaces.Dict({"camera": CHANNELS_LAST}) if named else CHANNELS_LAST
    env = Echo(seen, spaces.Box(-1.0, 1.0, (1,)))
    settings = {**{name: SMALL[name] for name in ("n_steps", "seed")}, "policy_kwargs": {"lstm_hidden_size": 8}}
    model = DistributionalPPO("MultiInputLstmPolicy" if named else "CnnLstmPolicy", env, **settings)
    model.save(tmp_path / "model.zip")
    save_checkpoint(tmp_path / "v2.pt", model.get_parameters(), step=0, performance=0.0)
    images = np.random.default_rng(0).integers(0, 255, (6, *CHANNELS_LAST.shape), np.uint8)
    steps = [{"camera": image} if named else image for image in images]
    starts = np.zeros(len(images), bool)
    expected = expected_actions(model, steps, starts)
    sequence = {"camera": images} if named else images
    assert np.ptp(expected) > 1e-4
    turned = {"camera": images.transpose(0, 3, 1, 2)} if named else images.transpose(0, 3, 1, 2)
    checkpoint = {"env": env, "policy": type(model.policy), "settings": settings}
    for given, options, file in (
        (sequence, {"env": env}, "model.zip"),
        (turned, {}, "model.zip"),
        (sequence, checkpoint, "v2.pt"),
    ):
        np.testing.assert_allclose(infer_signals(tmp_path / file, given, **options), expected, atol=1e-6)
