"""A policy from a file acts as the model did: same scale of observations, same memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from rlcore import (
    CheckpointError,
    DistributionalPPO,
    DistributionalRecurrentPolicy,
    InferencePolicy,
    SettingError,
    load_policy,
)
from rlcore.checkpoint.container import load_container, save_container
from tests.support.environments import Parts, edit
from tests.support.space_cases import Echo
from tests.support.training import SMALL, make_envs, make_model

STEPS = 40
STARTS = np.arange(STEPS) % 15 == 0
RAW = np.random.default_rng(0).normal([1.0, -20.0, 300.0], [0.1, 5.0, 40.0], (STEPS, 3)).astype(np.float32)
"""Observations on scales that a policy behind VecNormalize would take for something else."""


def expected_actions(model: DistributionalPPO, observations: Any, starts: Any = STARTS) -> Any:
    """What the model itself does, behind its own normaliser."""
    actions, state = [], None
    normalizer = model.get_vec_normalize_env()
    for observation, start in zip(observations, starts, strict=True):
        seen = observation if normalizer is None else normalizer.normalize_obs(observation)
        action, state = model.predict(seen, state, np.atleast_1d(start), deterministic=True)
        actions.append(action)
    return np.stack(actions)


def acted(policy: InferencePolicy | Path, observations: Any, starts: Any = None) -> Any:
    """What a policy, or that of a file, does step by step."""
    policy = load_policy(policy) if isinstance(policy, Path) else policy
    parts = dict(observations) if isinstance(observations, dict) else {None: observations}
    steps = [dict(zip(parts, values, strict=True)) for values in zip(*parts.values(), strict=True)]
    actions, state = [], None
    for index, step in enumerate(steps):
        start = None if starts is None else np.atleast_1d(starts[index])
        action, state = policy.predict(step if isinstance(observations, dict) else step[None], state, start)
        actions.append(action)
    return np.stack(actions)


@pytest.fixture(scope="module")
def model() -> DistributionalPPO:
    """A model of Pendulum whose normaliser has statistics that matter."""
    trained = make_model(make_envs("Pendulum-v1", normalize=True))
    trained.learn(48)
    statistics = trained.get_vec_normalize_env().obs_rms  # type: ignore[union-attr]
    statistics.mean, statistics.var = np.array([1.0, -19.0, 290.0]), np.array([0.02, 30.0, 1500.0])
    return trained


@pytest.fixture(scope="module")
def file(model: DistributionalPPO, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("inference") / "model.zip"
    model.save(path)
    return path


def test_a_sequence_gets_the_models_own_actions(model: DistributionalPPO, file: Path) -> None:
    actions = acted(file, RAW, STARTS)
    np.testing.assert_array_equal(actions, expected_actions(model, RAW))
    np.testing.assert_array_equal(acted(file, RAW.astype(np.float64), STARTS), actions)
    assert load_policy(file).normalizes
    without_starts = acted(file, RAW)
    np.testing.assert_array_equal(without_starts, expected_actions(model, RAW, np.arange(STEPS) == 0))
    forgetful = np.stack([load_policy(file).predict(observation)[0] for observation in RAW[:3]])
    assert (without_starts[:15] == actions[:15]).all()
    assert (without_starts[15:20] != actions[15:20]).all()
    assert (forgetful[1:] != actions[1:3]).all()


def test_environments_side_by_side_get_the_actions_of_each_alone(file: Path) -> None:
    side_by_side = np.stack([RAW, RAW[::-1]], axis=1)
    starts = np.stack([STARTS, STARTS[::-1]], axis=1)
    actions = acted(file, side_by_side, starts)
    assert actions.shape == (STEPS, 2, 1)
    np.testing.assert_allclose(actions[:, 0], acted(file, RAW, STARTS), atol=1e-8)
    np.testing.assert_allclose(actions[:, 1], acted(file, RAW[::-1], STARTS[::-1]), atol=1e-8)


@pytest.mark.parametrize(
    "settings",
    [{"clip_obs": 0.5}, {"epsilon": 2.0}, {"norm_obs": False}, {"norm_reward": False}, {"inner": True}, {"off": True}],
    ids=str,
)
def test_the_wrappers_own_settings_are_followed(settings: dict[str, Any], tmp_path: Path) -> None:
    given = {name: value for name, value in settings.items() if name not in ("inner", "off")}
    envs = make_envs("Pendulum-v1", normalize="inner" in settings)
    model = make_model(VecNormalize(envs, **{"epsilon": 0.5, **given}))
    model.learn(48)
    outer: Any = model.get_env()
    outer.norm_obs &= "off" not in settings
    model.save(tmp_path / "model.zip")
    observations = RAW / np.float32([1.0, 20.0, 40.0])
    actions, state = [], None
    for observation in observations:
        seen = outer.normalize_obs(outer.venv.normalize_obs(observation) if "inner" in settings else observation)
        action, state = model.predict(seen, state, deterministic=True)
        actions.append(action)
    np.testing.assert_array_equal(acted(tmp_path / "model.zip", observations), np.stack(actions))
    assert load_policy(tmp_path / "model.zip").normalizes == outer.norm_obs


def test_statistics_without_the_wrappers_settings_take_its_defaults(
    model: DistributionalPPO, file: Path, tmp_path: Path
) -> None:
    content: Any = load_container(file)
    for name in ("norm_obs", "clip_obs", "epsilon"):
        del content["state"]["normalizer_state"]["layers"][0][name]
    save_container(tmp_path / "older.zip", content)
    np.testing.assert_array_equal(acted(tmp_path / "older.zip", RAW, STARTS), expected_actions(model, RAW))


def test_loading_and_acting_leave_the_generators_alone(file: Path) -> None:
    torch.manual_seed(5)
    np.random.seed(5)
    expected = (torch.rand(3), np.random.rand())
    torch.manual_seed(5)
    np.random.seed(5)
    policy = load_policy(file)
    acted(policy, RAW)
    assert torch.equal(torch.rand(3), expected[0])
    assert np.random.rand() == expected[1]
    assert (policy.device.type, policy.action_space.shape, policy.observation_space.shape) == ("cpu", (1,), (3,))


def test_the_network_is_put_where_map_location_says(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent_to: list[str] = []
    monkeypatch.setattr(
        DistributionalRecurrentPolicy, "to", lambda policy, device: [sent_to.append(str(device)), policy][1]
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    load_policy(file, map_location="cuda:1")
    load_policy(file)
    assert sent_to == ["cuda:1", "cpu"]
    with pytest.raises(SettingError, match=r"map_location='cuda:2'.* has 2 CUDA device"):
        load_policy(file, map_location="cuda:2")


def test_without_a_digest_a_warning_or_a_refusal(file: Path, tmp_path: Path) -> None:
    torch.save(load_container(file), tmp_path / "plain.zip")
    with pytest.warns(UserWarning, match="carries no digest"):
        load_policy(tmp_path / "plain.zip")
    with pytest.raises(CheckpointError, match="carries no digest"):
        load_policy(tmp_path / "plain.zip", require_digest=True)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_acts_as_the_cpu_does(file: Path) -> None:
    policy = load_policy(file, map_location="cuda")
    assert policy.device.type == "cuda"
    expected = acted(file, RAW, STARTS)
    np.testing.assert_allclose(acted(policy, RAW, STARTS), expected, atol=0.05 * np.ptp(expected))


def test_actions_can_be_drawn_instead(file: Path) -> None:
    policy = load_policy(file)
    torch.manual_seed(0)
    drawn = [policy.predict(RAW[0], deterministic=False)[0].item() for _ in range(3)]
    assert len(set(drawn)) == 3
    assert len({policy.predict(RAW[0])[0].item() for _ in range(3)}) == 1


def test_of_named_observations_those_are_normalised_that_training_normalised(tmp_path: Path) -> None:
    envs = make_vec_env("Pendulum-v1", 2, seed=0, wrapper_class=Parts)
    settings = {**SMALL, "policy_kwargs": {"lstm_hidden_size": 8}}
    model = DistributionalPPO("MultiInputLstmPolicy", VecNormalize(envs, norm_obs_keys=["speed"]), **settings)
    model.learn(32)
    model.save(tmp_path / "model.zip")
    observations = {"direction": RAW[:, :2], "speed": RAW[:, 2:] / 100}
    steps = [{name: values[step] for name, values in observations.items()} for step in range(STEPS)]
    np.testing.assert_array_equal(acted(tmp_path / "model.zip", observations, STARTS), expected_actions(model, steps))


@pytest.mark.parametrize("named", [False, True])
def test_images_may_have_their_channels_first_or_last(named: bool, tmp_path: Path) -> None:
    space = spaces.Box(0, 255, (36, 40, 3), np.uint8)
    env = Echo(spaces.Dict({"camera": space}) if named else space, spaces.Box(-1.0, 1.0, (1,)))
    settings = {**{name: SMALL[name] for name in ("n_steps", "seed")}, "policy_kwargs": {"lstm_hidden_size": 8}}
    model = DistributionalPPO("MultiInputLstmPolicy" if named else "CnnLstmPolicy", env, **settings)
    model.save(tmp_path / "model.zip")
    images = np.random.default_rng(0).integers(0, 255, (6, *space.shape), np.uint8)
    steps = [{"camera": image} if named else image for image in images]
    expected = expected_actions(model, steps, np.zeros(len(images), bool))
    assert np.ptp(expected) > 1e-4
    for given in (images, images.transpose(0, 3, 1, 2)):
        found = acted(tmp_path / "model.zip", {"camera": given} if named else given)
        np.testing.assert_allclose(found, expected, atol=1e-6)


LAYER: list[str | int] = ["state", "normalizer_state", "layers", 0]
MOMENTS = [*LAYER, "observation", 0]
BAD: list[tuple[list[str | int], Any, str]] = [
    (["state", "policy"], None, "holds no policy"),
    (["state", "normalizer_state", "layers"], 1, "cannot be used"),
    ([*LAYER, "observation"], None, "cannot be used"),
    ([*LAYER, "clip_obs"], -1.0, "clip_obs.* -1.0"),
    ([*LAYER, "epsilon"], "x", "epsilon.*'x'"),
    ([*LAYER, "norm_obs"], 1, "norm_obs.* 1"),
    ([*MOMENTS, "key"], "x", "cannot be used"),
    ([*MOMENTS, "mean"], torch.zeros(4, dtype=torch.float64), r"shape \(3,\)"),
    ([*MOMENTS, "mean"], torch.tensor([0.0, 0.0, np.nan], dtype=torch.float64), "NaN"),
    ([*MOMENTS, "var"], -torch.ones(3, dtype=torch.float64), "number below 0"),
    ([*MOMENTS, "var"], torch.ones(3, dtype=torch.int64), "float64"),
]


@pytest.mark.parametrize(("path", "value", "message"), BAD, ids=lambda value: repr(value)[-40:])
def test_statistics_that_cannot_be_right_are_refused(
    path: list[str | int], value: Any, message: str, file: Path, tmp_path: Path
) -> None:
    save_container(tmp_path / "bad.zip", edit(load_container(file), path, value))
    with pytest.raises(CheckpointError, match=rf"bad\.zip: .*{message}"):
        load_policy(tmp_path / "bad.zip")
