"""Observations of every kind in a model file, and what Monitor noted of finished episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from rlcore import CheckpointError, DistributionalPPO, ResumableEnv, ResumeWarning, StateError
from rlcore.checkpoint import load_container, save_container
from rlcore.state import position as observations
from tests.support.environments import Custom
from tests.support.space_cases import EVERYTHING, KEYED, TWO, Echo
from tests.support.training import make_envs, make_model

TYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("dtype", [*TYPES, "float16", "float32", "float64"])
def test_an_array_of_any_type_comes_back_from_a_file_bit_for_bit(dtype: str, tmp_path: Path) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    save_container(tmp_path / "file.zip", {"observations": observations.to_state(array)})
    back = observations.from_state(load_container(tmp_path / "file.zip")["observations"])
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())


OTHER_SPACE: dict[str, Any] = {
    "a key too few": lambda kept: {key: part for key, part in kept.items() if key != "mask"},
    "a key too many": lambda kept: {**kept, "more": torch.zeros(2)},
    "one array for all": lambda _: torch.zeros(2, 3),
    "a part of another shape": lambda kept: {**kept, "mask": torch.zeros(2, 5)},
}
DAMAGED: dict[str, Any] = {
    "a part of another number": lambda kept: {**kept, "kind": torch.zeros(3)},
    "a text for a part": lambda kept: {**kept, "mask": "x"},
    "a dict for a part": lambda kept: {**kept, "mask": {"x": torch.zeros(2, 3)}},
    "bytes that are not all": lambda kept: {**kept, "counter": {**kept["counter"], "shape": [2, 3]}},
    "a class in place of bytes": lambda kept: {**kept, "counter": {"__kind__": "class", "name": "torch.nn.Tanh"}},
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "model.zip"
    model = make_model(make_envs(KEYED, 2, normalize=True), "MultiInputLstmPolicy")
    model.learn(32)
    model.save(path)
    return path


@pytest.mark.parametrize(
    ("field", "case"),
    [
        *[("observations", case) for case in (*OTHER_SPACE, *DAMAGED)],
        *[("original_observations", case) for case in DAMAGED],
    ],
)
def test_damaged_observations_of_a_dict_are_refused_on_loading(
    field: str, case: str, saved: Path, tmp_path: Path
) -> None:
    content: Any = load_container(saved)
    state = content["state"]["lstm_state"]
    state[field] = {**OTHER_SPACE, **DAMAGED}[case](state[field])
    save_container(tmp_path / "model.zip", content)
    with pytest.raises(CheckpointError, match=r"model\.zip.*(original_)?observations"):
        DistributionalPPO.load(tmp_path / "model.zip", device="cpu")


def test_a_vector_for_a_dict_and_a_dict_for_a_vector_are_refused() -> None:
    with pytest.raises(StateError, match="a dict of"):
        observations.check("them", torch.zeros(2, 3), EVERYTHING, 2)
    with pytest.raises(StateError, match=r"shape \(2, 3\)"):
        observations.check("them", {"x": torch.zeros(2, 3)}, spaces.Box(-1, 1, (3,)), 2)


def test_the_rollout_reads_a_transposed_image_in_the_order_in_which_the_buffer_holds_it() -> None:
    grey = spaces.Box(0, 1, (1, 40, 36))
    model = make_model(
        Echo(grey, TWO),
        "CnnLstmPolicy",
        policy_kwargs={"normalize_images": False, "features_extractor_kwargs": {"features_dim": 4}},
    )
    strides: list[Any] = []
    model.policy.features_extractor.register_forward_pre_hook(lambda _, given: strides.append(given[0].stride()))
    transposed = torch.rand(2, 40, 36, 1).permute(0, 3, 1, 2)
    states = model._last_lstm_states
    doubled: Any = type(states)(*[tuple(torch.cat([t, t], 1) for t in pair) for pair in states])
    with torch.no_grad():
        model.policy(transposed, doubled, torch.zeros(2))
        model.policy.predict_values(transposed, doubled.vf, torch.zeros(2))
    assert transposed.stride() != (1440, 1440, 36, 1)
    assert strides == [(1440, 1440, 36, 1)] * 2


class Talkative(Custom):
    """Notes an object that no file can hold, beside numbers."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, over, late, _ = super().step(action)
        return observation, reward, over, late, {"tool": object(), "score": np.float32(0.5), "pair": [1, np.int64(2)]}


def test_what_no_file_can_hold_of_finished_episodes_is_left_out_with_one_warning(tmp_path: Path) -> None:
    keywords = ("tool", "score")
    envs = DummyVecEnv([lambda: ResumableEnv(Monitor(Talkative(), info_keywords=keywords))])
    model = make_model(envs)
    model.learn(64)
    with pytest.warns(ResumeWarning, match=r"'tool': 'object'.*left out") as caught:
        model.save(tmp_path / "model.zip")
    assert len(caught) == 1
    episodes = list(DistributionalPPO.load(tmp_path / "model.zip", device="cpu").ep_info_buffer)
    assert episodes
    assert [set(episode) for episode in episodes] == [{"r", "l", "t", "score"}] * len(episodes)
    assert "tool" in model.ep_info_buffer[0]


def test_a_resumable_environment_with_dict_observations_steps_on_exactly() -> None:
    env, other = (ResumableEnv(Monitor(gym.make(KEYED))) for _ in range(2))
    env.reset(seed=3)
    env.step(np.array([1, 0]))
    other.set_state(env.get_state())
    for action in ([2, 1], [0, 0], [1, 1], [2, 0]):
        seen, again = env.step(np.array(action)), other.step(np.array(action))
        assert all(np.array_equal(seen[0][key], again[0][key]) for key in EVERYTHING)
        assert seen[1:4] == again[1:4]
    seen_first, again_first = env.reset()[0], other.reset()[0]
    assert all(np.array_equal(seen_first[key], again_first[key]) for key in EVERYTHING)
