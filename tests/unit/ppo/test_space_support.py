"""Spaces and networks that do not go together are refused in one line that says what does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from rlcore import DistributionalPPO, SettingError
from tests.support.space_cases import BOX, IMAGE, TWO, Echo
from tests.support.training import make_model

NESTED = spaces.Dict({"inner": spaces.Dict({"x": BOX})})

# Space and policy of each case; the first word of the space is in the message.
OBSERVATIONS: list[tuple[spaces.Space[Any], str]] = [
    (NESTED, "MultiInputLstmPolicy"),
    (spaces.Dict({}), "MultiInputLstmPolicy"),
    (spaces.Tuple([BOX, TWO]), "MlpLstmPolicy"),
    (spaces.Dict({"pair": spaces.Tuple([BOX])}), "MultiInputLstmPolicy"),
    (spaces.Graph(BOX, None), "MlpLstmPolicy"),
    (spaces.Text(5), "MlpLstmPolicy"),
    (spaces.MultiDiscrete([[2, 3], [4, 5]]), "MlpLstmPolicy"),
    (spaces.Discrete(3, start=1), "MlpLstmPolicy"),
    (spaces.MultiDiscrete([3, 2], start=[0, 1]), "MlpLstmPolicy"),
    (spaces.MultiDiscrete([]), "MlpLstmPolicy"),
    (spaces.Box(-1, 1, ()), "MlpLstmPolicy"),
    (spaces.Box(-1, 1, (2, 0)), "MlpLstmPolicy"),
    (spaces.MultiBinary(()), "MlpLstmPolicy"),
    (spaces.Dict({"x": BOX, "none": spaces.Box(-1, 1, (0,))}), "MultiInputLstmPolicy"),
    # A policy for other observations.
    (spaces.Dict({"b": BOX, "a": TWO}), "MlpLstmPolicy"),
    (spaces.Dict({"view": IMAGE}), "CnnLstmPolicy"),
    (BOX, "MultiInputLstmPolicy"),
]
ACTIONS: list[spaces.Space[Any]] = [
    spaces.Dict({"x": TWO}),
    spaces.Tuple([TWO]),
    spaces.Text(5),
    spaces.Discrete(3, start=2),
    spaces.MultiDiscrete([3, 2], start=[5, -1]),
    spaces.MultiDiscrete([[2, 3], [4, 5]]),
    spaces.MultiDiscrete([]),
    spaces.MultiBinary((2, 2)),
    spaces.MultiBinary([3]),
    spaces.Box(-np.inf, 1, (2,)),
    spaces.Box(-1, 1, (0,)),
    spaces.Box(0, 5, (2,), np.int64),
]
SIDES = [
    *((space, TWO, policy, f"the observations are .*{type(space).__name__}") for space, policy in OBSERVATIONS),
    *((BOX, space, "MlpLstmPolicy", f"the actions are .*{type(space).__name__}") for space in ACTIONS),
]


@pytest.mark.parametrize(("observations", "actions", "policy", "words"), SIDES, ids=lambda value: str(value)[:40])
def test_what_the_table_does_not_have_is_refused_in_one_line_that_says_what_it_has(
    observations: spaces.Space[Any], actions: spaces.Space[Any], policy: str, words: str
) -> None:
    with pytest.raises(SettingError, match=rf"{words}.* does not take: 'MlpLstmPolicy' reads") as caught:
        DistributionalPPO(policy, Echo(observations, actions))
    assert "\n" not in str(caught.value)


def test_images_that_are_normalised_already_are_read_when_told_so() -> None:
    options = {"features_extractor_kwargs": {"features_dim": 4}}
    policy_kwargs = {"normalize_images": False, "lstm_hidden_size": 4, **options}
    model = make_model(Echo(spaces.Box(0, 1, (3, 40, 40)), TWO), "CnnLstmPolicy", policy_kwargs=policy_kwargs)
    assert model.learn(16).num_timesteps == 16
    assert options == {"features_extractor_kwargs": {"features_dim": 4}}
    assert model.policy.critic_arch == []
