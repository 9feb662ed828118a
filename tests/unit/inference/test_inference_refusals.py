"""A file or an input from which a policy could not act as it was trained to is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from rlcore import (
    CheckpointError,
    DistributionalPPO,
    SettingError,
    UnknownSettingError,
    infer_signals,
    load_policy,
    save_checkpoint,
)
from rlcore.checkpoint import load_container, save_container
from tests.support.acting import NETWORK, RAW, STARTS
from tests.support.environments import edit
from tests.support.space_cases import Echo
from tests.support.training import make_envs, make_model


@pytest.mark.parametrize(
    ("given", "lacking"), [({}, "spaces"), ({"spaces": True}, "settings"), ({"settings": {}}, "spaces")]
)
def test_a_checkpoint_alone_is_not_enough_and_the_error_says_what_to_give(
    given: dict[str, Any], lacking: str, model: DistributionalPPO, box: Any, tmp_path: Path
) -> None:
    save_checkpoint(tmp_path / "v2.pt", model.get_parameters(), step=48, performance=0.0)
    given = {name: box if name == "spaces" else value for name, value in given.items()}
    with pytest.raises(SettingError, match=r"v2\.pt is a checkpoint.*give env or spaces, and settings") as caught:
        load_policy(tmp_path / "v2.pt", **given)
    assert caught.value.setting == lacking


def test_an_environment_that_normalises_is_refused_and_one_that_scales_rewards_is_not(file: Path) -> None:
    with pytest.raises(SettingError, match=r"VecNormalize.*env\.venv"):
        load_policy(file, make_envs("Pendulum-v1", normalize=True))
    load_policy(file, VecNormalize(make_envs("Pendulum-v1"), norm_obs=False))


def test_spaces_of_another_environment_are_refused(file: Path, box: Any) -> None:
    with pytest.raises(SettingError, match=r"observation space is Box.*the policy's Box"):
        load_policy(file, gym.make("CartPole-v1"))
    with pytest.raises(SettingError, match="action space is Discrete"):
        load_policy(file, spaces=(box[0], spaces.Discrete(2)))


def test_settings_of_another_network_and_settings_for_a_model_file_are_refused(
    model: DistributionalPPO, file: Path, box: Any, tmp_path: Path
) -> None:
    save_checkpoint(tmp_path / "v2.pt", model.get_parameters(), step=48, performance=0.0)
    with pytest.raises(CheckpointError, match=r"v2\.pt: .*shape"):
        load_policy(tmp_path / "v2.pt", spaces=box, settings={**NETWORK, "n_quantiles": 5})
    with pytest.raises(SettingError, match=r"settings=.*would do nothing; leave it out"):
        load_policy(file, settings=NETWORK)
    with pytest.raises(SettingError, match=r"policy='MlpLstmPolicy' would do nothing; leave it out"):
        load_policy(file, policy="MlpLstmPolicy")
    for name, words in (("n_quantile", "did you mean 'n_quantiles'"), ("device", "no setting 'device'")):
        with pytest.raises(UnknownSettingError, match=words):
            load_policy(tmp_path / "v2.pt", spaces=box, settings={**NETWORK, name: 5})


@pytest.mark.parametrize("device", ["cuda", "cuda:3", torch.device("cuda")])
def test_a_device_that_is_not_there_is_one_clear_error(
    device: Any, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SettingError, match=r"map_location=.*cuda.*no CUDA device.*use 'cpu'"):
        load_policy(file, map_location=device)


def test_the_second_of_one_cuda_device_is_not_there(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(SettingError, match=r"map_location='cuda:1'.* has 1 CUDA device"):
        load_policy(file, map_location="cuda:1")


class Payload:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self.marker,)


def test_a_file_that_would_run_code_is_refused_and_nothing_runs(box: Any, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    for content in (
        {"format_version": "model_v1", "settings": Payload(marker)},
        {"format_version": "v2_full_parameters", "data": Payload(marker)},
        Payload(marker),
    ):
        torch.save(content, tmp_path / "x.pt")
        with pytest.raises(CheckpointError, match="could run code"):
            load_policy(tmp_path / "x.pt", spaces=box, settings={})
    assert not marker.exists()
    torch.load(tmp_path / "x.pt", weights_only=False)
    assert marker.exists(), "the payload is real"


def test_a_damaged_or_missing_or_foreign_file_is_one_error_with_its_name(file: Path, box: Any, tmp_path: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "damaged.zip").write_bytes(content)
    third = {"model_state_dict": {"w": torch.ones(1)}, "optimizer_state_dict": {}, "vgs_state_dict": None}
    save_container(tmp_path / "third.pt", third)
    (tmp_path / "text.zip").write_text("text")
    cases = {
        "damaged.zip": "digest",
        "missing.zip": "cannot be read",
        "third.pt": "never adopted",
        "text.zip": "truncated",
    }
    for name, words in cases.items():
        with pytest.raises(CheckpointError, match=f"{name}: .*{words}"):
            load_policy(tmp_path / name, spaces=box, settings={})


def test_without_a_digest_a_warning_or_a_refusal(file: Path, tmp_path: Path) -> None:
    torch.save(load_container(file), tmp_path / "plain.zip")
    with pytest.warns(UserWarning, match="carries no digest"):
        load_policy(tmp_path / "plain.zip")
    with pytest.raises(CheckpointError, match="carries no digest"):
        load_policy(tmp_path / "plain.zip", require_digest=True)


LAYER: list[str | int] = ["state", "normalizer_state", "layers", 0]
MOMENTS = [*LAYER, "observation", 0]
BAD: list[tuple[list[str | int], Any, str]] = [
    (["state", "policy"], None, "holds no policy"),
    (["state", "normalizer_state", "layers"], None, "must be a list"),
    ([*LAYER, "observation"], None, "must be a list"),
    ([*LAYER, "clip_obs"], 0.0, "clip_obs.*above 0"),
    ([*LAYER, "epsilon"], "x", "epsilon.*above 0"),
    ([*MOMENTS, "key"], "x", "which these observations do not have"),
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


ZERO = np.zeros((1, 1, 8), np.float32)
SHAPE = r"Unexpected observation shape"
MISUSES: dict[str, tuple[dict[str, Any], str]] = {
    "too wide": ({"observation": np.zeros(4, np.float32)}, SHAPE),
    "a number that statistics would broadcast": ({"observation": np.float32(0)}, SHAPE),
    "several of another width": ({"observation": np.zeros((2, 4), np.float32)}, SHAPE),
    "what reset() returns": ({"observation": (RAW[0], {})}, "observation=.* cannot be acted on"),
    "rows of different lengths": ({"observation": [[0, 1, 2], [0, 1]]}, "inhomogeneous shape"),
    "no environment": ({"observation": np.zeros((0, 3), np.float32)}, "observation=.* cannot be acted on"),
    "NaN": ({"observation": np.array([0, np.nan, 0], np.float32)}, "holds NaN or infinity"),
    "infinity": ({"observation": np.float32([0, np.inf, -np.inf])}, "holds NaN or infinity"),
    "a text": ({"observation": ["a", "b", "c"]}, "could not convert"),
    "a state of another number": (
        {"observation": np.zeros((2, 3), np.float32), "state": (ZERO, ZERO)},
        r"state has the shape \(2, 1, 1, 8\), and the observations need \(2, 1, 2, 8\)",
    ),
    "half a state": ({"observation": RAW[0], "state": (ZERO,)}, r"state has the shape \(1, 1, 1, 8\)"),
    "a start that is no array": ({"observation": RAW[0], "episode_start": True}, r"episode_start has the shape \(\)"),
    "starts of another number": ({"observation": RAW[0], "episode_start": [True, True]}, r"need \(1,\)"),
}


@pytest.mark.parametrize("case", MISUSES)
def test_what_the_policy_cannot_act_on_is_refused_by_name(case: str, file: Path) -> None:
    given, words = MISUSES[case]
    with pytest.raises(SettingError, match=words) as caught:
        load_policy(file).predict(**given)
    assert caught.value.setting in given


@pytest.mark.parametrize(
    ("observations", "starts"), [(RAW[:0], None), (RAW[0, 0], None), (RAW, STARTS[1:]), (RAW, True)]
)
def test_a_sequence_without_steps_or_with_other_starts_is_refused(observations: Any, starts: Any, file: Path) -> None:
    with pytest.raises(SettingError, match=r"observations(=.* cannot be acted on| and episode_starts are of)"):
        infer_signals(file, observations, starts)


def test_what_names_no_file_and_spaces_given_twice_are_refused(file: Path, box: Any) -> None:
    with pytest.raises(SettingError, match="path=None is neither a path nor"):
        load_policy(None)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="env and spaces are both given"):
        load_policy(file, make_envs("Pendulum-v1"), spaces=box)


NAMED = spaces.Dict({"count": spaces.Discrete(5), "place": spaces.Box(-1, 1, (2,))})


@pytest.mark.parametrize(
    "changes", [{"count": np.zeros(5, int)}, {"count": None}, {"count": np.full(12, 5)}, {"place": np.zeros((12, 3))}]
)
def test_parts_that_do_not_belong_together_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    make_model(DummyVecEnv([lambda: Echo(NAMED, spaces.Discrete(2))]), "MultiInputLstmPolicy").save(tmp_path / "m.zip")
    policy = load_policy(tmp_path / "m.zip")
    sequence = {"count": np.zeros(12, int), "place": np.zeros((12, 2), np.float32)}
    assert len(policy.infer(sequence)) == 12
    with pytest.raises(SettingError):
        policy.infer({**sequence, **changes})
    with pytest.raises(SettingError, match="cannot be acted on"):
        policy.predict({name: value for name, value in {**sequence, **changes}.items() if value is not None})
    with pytest.raises(SettingError, match="cannot be acted on"):
        policy.infer(sequence["place"])
