"""A state that is damaged is refused where it is read, by one error, and not where it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rlcore import CheckpointError, DistributionalPPO, StateError
from rlcore.checkpoint import load_container, save_container
from tests.support.training import differing, make_envs, make_model


def edit(path: str, value: Any) -> Any:
    """A change of one place in the state of a model file."""

    def change(state: dict[str, Any]) -> None:
        *parents, last = path.split("/")
        place: Any = state
        for key in parents:
            place = place[int(key) if isinstance(place, list) else int(key) if key.isdigit() else key]
        place[int(last) if isinstance(place, list) or last.isdigit() else last] = value

    return change


def without(path: str) -> Any:
    def change(state: dict[str, Any]) -> None:
        *parents, last = path.split("/")
        place: Any = state
        for key in parents:
            place = place[int(key) if key.isdigit() else key]
        del place[int(last) if last.isdigit() else last]

    return change


LEARNER = {
    "whole numbers for weights": edit("policy/action_net.bias", torch.zeros(2, dtype=torch.int64)),
    "a list for a weight": edit("policy/action_net.bias", [0.0, 0.0]),
    "moments in a list": edit("policy.optimizer/state", []),
    "a number for the moments of a parameter": edit("policy.optimizer/state/0", 1),
    "moments of a parameter that is not there": edit("policy.optimizer/state/999", {}),
    "one average missing": without("policy.optimizer/state/0/exp_avg"),
    "text for a rate": edit("policy.optimizer/param_groups/0/lr", "x"),
    "a number for a group": edit("policy.optimizer/param_groups", [1, 2]),
    "text for the statistics": edit("vgs_state/step_count", "8"),
}
RUN = {
    "text for a counter": edit("progress_state/num_timesteps", "abc"),
    "a negative counter": edit("progress_state/_n_updates", -1),
    "text for the progress": edit("progress_state/_current_progress_remaining", "x"),
    "no number for the progress": edit("progress_state/_current_progress_remaining", float("nan")),
    "more than all progress": edit("progress_state/_current_progress_remaining", 1.5),
    "less than no progress": edit("progress_state/_current_progress_remaining", -0.5),
    "numbers for finished episodes": edit("progress_state/ep_info_buffer", [1, 2]),
    "a number for successes": edit("progress_state/ep_success_buffer", 1),
    "no generators": edit("rng_state", {}),
    "a generator's state cut short": edit("rng_state/torch", torch.zeros(3, dtype=torch.uint8)),
    "another generator's state": edit("rng_state/python", [3, [1, 2], None]),
    "no LSTM states": edit("lstm_state", {}),
    "one LSTM state": edit("lstm_state/actor", []),
    "LSTM states of another size": edit("lstm_state/critic/0", torch.zeros(1, 3, 5)),
    "observations of another size": edit("lstm_state/observations", torch.zeros(3, 5)),
    "flags of another shape": edit("lstm_state/episode_starts", torch.zeros(3, 1)),
    "no environments": edit("env_state", {}),
}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    model = make_model(optimizer_class="adam")
    model.learn(96)
    model.save(tmp_path / "model.zip")
    return tmp_path / "model.zip"


@pytest.mark.parametrize("case", [*LEARNER, *RUN])
def test_a_model_file_with_it_is_refused_on_loading(case: str, saved: Path) -> None:
    content: Any = load_container(saved)
    {**LEARNER, **RUN}[case](content["state"])
    save_container(saved, content)
    with pytest.raises(CheckpointError) as caught:
        DistributionalPPO.load(saved, env=make_envs(), device="cpu")
    assert str(saved) in str(caught.value)


@pytest.mark.parametrize("case", LEARNER)
def test_parameters_with_it_are_refused_and_change_nothing(case: str) -> None:
    model = make_model(optimizer_class="adam")
    model.learn(96)
    before, damaged = model.get_parameters(), model.get_parameters()
    LEARNER[case](damaged)
    with pytest.raises(StateError):
        model.set_parameters(damaged)
    assert differing(before, model.get_parameters()) == []


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
