"""Spaces and networks that do not go together are refused in one line that says what does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from rlcore import CheckpointError, DistributionalPPO, SettingError
from rlcore.checkpoint import load_container, save_container
from rlcore.checkpoint.codec import encode
from tests.support.space_cases import BOX, IMAGE, TWO, Echo
from tests.support.training import make_model

NESTED = spaces.Dict({"inner": spaces.Dict({"x": BOX})})
SMALL_IMAGE = spaces.Box(0, 255, (20, 64, 3), np.uint8)

OBSERVATIONS: dict[str, tuple[spaces.Space[Any], str, str]] = {
    "a nested Dict": (NESTED, "MultiInputLstmPolicy", r"part 'inner' is Dict.*one Dict"),
    "an empty Dict": (spaces.Dict({}), "MultiInputLstmPolicy", "empty Dict"),
    "a Tuple": (spaces.Tuple([BOX, TWO]), "MlpLstmPolicy", r"Tuple\(.*one Dict"),
    "a Tuple within a Dict": (spaces.Dict({"pair": spaces.Tuple([BOX])}), "MultiInputLstmPolicy", "part 'pair'"),
    "a graph": (spaces.Graph(BOX, None), "MlpLstmPolicy", r"Graph\(.*Box, Discrete"),
    "a text": (spaces.Text(5), "MlpLstmPolicy", r"Text\(.*Box, Discrete"),
    "one of several": (spaces.OneOf([BOX, TWO]), "MlpLstmPolicy", r"OneOf\(.*Box, Discrete"),
    "a sequence": (spaces.Sequence(BOX), "MlpLstmPolicy", r"Sequence\(.*Box, Discrete"),
    "a table of numbers": (spaces.MultiDiscrete([[2, 3], [4, 5]]), "MlpLstmPolicy", "flatten it"),
    "numbers from 1": (spaces.Discrete(3, start=1), "MlpLstmPolicy", "start at 0.*subtract"),
    "several numbers from 1": (spaces.MultiDiscrete([3, 2], start=[0, 1]), "MlpLstmPolicy", "start at 0.*subtract"),
    "numbers that torch lacks": (spaces.Box(0, 1, (2,), np.longdouble), "MlpLstmPolicy", "float32 or float64"),
    "one number without a dimension": (spaces.Box(-1, 1, ()), "MlpLstmPolicy", r"no dimension.*shape \(1,\)"),
    "a switch without a dimension": (spaces.MultiBinary(()), "MlpLstmPolicy", "no dimension.*ReshapeObservation"),
    "no numbers": (spaces.Box(-1, 1, (0,)), "MlpLstmPolicy", "is empty.*at least one"),
    "rows of no numbers": (spaces.Box(-1, 1, (2, 0)), "MlpLstmPolicy", "is empty.*at least one"),
    "no choices": (spaces.MultiDiscrete([]), "MlpLstmPolicy", "is empty.*at least one"),
    "no numbers in a Dict": (
        spaces.Dict({"x": BOX, "none": spaces.Box(-1, 1, (0,))}),
        "MultiInputLstmPolicy",
        "part 'none' .*is empty",
    ),
    "a Dict for vectors": (spaces.Dict({"b": BOX, "a": TWO}), "MlpLstmPolicy", r"\['a', 'b'\].*MultiInputLstmPolicy"),
    "a Dict for images": (spaces.Dict({"view": IMAGE}), "CnnLstmPolicy", "'MultiInputLstmPolicy'"),
    "a vector for a Dict": (BOX, "MultiInputLstmPolicy", r"Box\(.*no Dict.*'MlpLstmPolicy'"),
    "a vector for images": (BOX, "CnnLstmPolicy", r"Box\(.*no images.*'MlpLstmPolicy'"),
    "float images for images": (spaces.Box(0, 1, (3, 40, 40)), "CnnLstmPolicy", "normalize_images=False"),
    "a small image": (SMALL_IMAGE, "CnnLstmPolicy", r"\(3, 20, 64\).*36"),
    "a small image in a Dict": (spaces.Dict({"view": SMALL_IMAGE}), "MultiInputLstmPolicy", r"\(3, 20, 64\).*36"),
}

ACTIONS: dict[str, tuple[spaces.Space[Any], str]] = {
    "a Dict": (spaces.Dict({"x": TWO}), r"Dict\(.*Box, Discrete, MultiDiscrete or MultiBinary"),
    "a Tuple": (spaces.Tuple([TWO]), r"Tuple\(.*MultiDiscrete"),
    "a text": (spaces.Text(5), r"Text\(.*MultiDiscrete"),
    "a table of choices": (spaces.MultiDiscrete([[2, 3], [4, 5]]), "flatten it"),
    "a table of switches": (spaces.MultiBinary((2, 2)), "flatten it"),
    "a row of switches": (spaces.MultiBinary([3]), "flatten it"),
    "forces without bounds": (spaces.Box(-np.inf, 1, (2,)), "finite bounds"),
    "no forces": (spaces.Box(-1, 1, (0,)), "is empty.*at least one action"),
    "no choices": (spaces.MultiDiscrete([]), "is empty.*at least one action"),
    "whole numbers in a box": (spaces.Box(0, 5, (2,), np.int64), "MultiDiscrete for whole numbers"),
}


@pytest.mark.parametrize("case", OBSERVATIONS)
def test_observations_that_a_policy_does_not_read_raise_one_line_that_says_what_to_do(case: str) -> None:
    space, policy, words = OBSERVATIONS[case]
    with pytest.raises(SettingError, match=words) as caught:
        DistributionalPPO(policy, Echo(space, TWO))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("case", ACTIONS)
def test_actions_without_a_distribution_raise_one_line_that_says_what_to_do(case: str) -> None:
    space, words = ACTIONS[case]
    with pytest.raises(SettingError, match=words) as caught:
        DistributionalPPO("MlpLstmPolicy", Echo(BOX, space))
    assert "\n" not in str(caught.value)


def test_images_that_are_normalised_already_are_read_when_told_so() -> None:
    options = {"features_extractor_kwargs": {"features_dim": 4}}
    policy_kwargs = {"normalize_images": False, "lstm_hidden_size": 4, **options}
    model = make_model(Echo(spaces.Box(0, 1, (3, 40, 40)), TWO), "CnnLstmPolicy", policy_kwargs=policy_kwargs)
    model.learn(16)
    assert model.num_timesteps == 16
    assert options == {"features_extractor_kwargs": {"features_dim": 4}}
    assert model.policy.critic_arch == []


def test_options_of_the_policy_s_own_extractor_are_known_and_those_of_others_are_not() -> None:
    env = Echo(spaces.Dict({"x": BOX}), TWO)
    make_model(env, "MultiInputLstmPolicy", policy_kwargs={"features_extractor_kwargs": {"cnn_output_dim": 4}})
    with pytest.raises(SettingError, match="features_dim"):
        make_model(env, "MultiInputLstmPolicy", policy_kwargs={"features_extractor_kwargs": {"features_dim": 4}})


@pytest.mark.parametrize(
    ("field", "space"),
    [
        ("observation_space", spaces.Tuple([BOX])),
        ("observation_space", spaces.Dict({"x": BOX})),
        ("action_space", spaces.Tuple([TWO])),
    ],
)
def test_a_file_with_such_spaces_is_refused_by_name(field: str, space: spaces.Space[Any], tmp_path: Path) -> None:
    make_model(Echo(BOX, TWO)).save(tmp_path / "model.zip")
    content: Any = load_container(tmp_path / "model.zip")
    content[field] = encode(space, field)
    save_container(tmp_path / "model.zip", content)
    with pytest.raises(CheckpointError, match=r"model\.zip.*(Tuple|Dict)"):
        DistributionalPPO.load(tmp_path / "model.zip")
