"""A population goes on exactly where its state was taken, and draws from no generator but its own."""

from __future__ import annotations

import copy
import io
import json
import math
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlcore import PBTScheduler, StateError
from rlcore.checkpoint import load_container, save_container
from tests.support.schedulers import make_config, make_scheduler, parameters_of, report


def go_on(scheduler: PBTScheduler, rounds: int = 3) -> list[Any]:
    """What a population does in the next rounds."""
    done: list[Any] = []
    for number in range(rounds):
        step = max(member.step for member in scheduler.population) + 5
        report(scheduler, [math.sin(3 * step + member.member_id + number) for member in scheduler.population], step)
        for member in scheduler.population:
            parameters, hyperparams, checkpoint_format = scheduler.exploit_and_explore(member)
            done.append((repr(parameters), hyperparams, checkpoint_format, member.copied_from))
    return [*done, scheduler.get_stats()]


@pytest.mark.parametrize("method", ["truncation", "binary_tournament"])
def test_a_population_goes_on_exactly_where_its_state_was_taken(method: str, tmp_path: Path) -> None:
    scheduler = make_scheduler(tmp_path, exploit_method=method)
    go_on(scheduler)
    file = io.BytesIO()
    save_container(file, scheduler.state_dict())
    expected = go_on(scheduler)
    file.seek(0)
    resumed = PBTScheduler(scheduler.config)
    resumed.load_state_dict(load_container(file))
    assert go_on(resumed) == expected
    assert resumed.state_dict() == scheduler.state_dict()


def test_a_state_is_plain_and_shares_nothing_with_the_scheduler(tmp_path: Path) -> None:
    scheduler = make_scheduler(tmp_path)
    go_on(scheduler)
    state = scheduler.state_dict()
    assert json.loads(json.dumps(state)) == state
    before = copy.deepcopy(state)
    go_on(scheduler)
    assert state == before
    resumed = PBTScheduler(scheduler.config)
    resumed.load_state_dict(state)
    go_on(resumed)
    assert state == before


def test_the_files_that_the_last_state_names_are_there_after_one_more_round_and_in_a_moved_folder(
    tmp_path: Path,
) -> None:
    """A process killed between a report and the next saved state resumes from the state before."""
    scheduler = make_scheduler(tmp_path / "old")
    for step in (5, 10, 15):
        report(scheduler, [0.1, 0.2, 0.3, 0.4], step)
        state = scheduler.state_dict()
    report(scheduler, [0.1, 0.2, 0.3, 0.4], 20)
    shutil.move(tmp_path / "old", tmp_path / "new")
    resumed = PBTScheduler(make_config(tmp_path / "new"))
    resumed.load_state_dict(state)
    assert repr(resumed.exploit_and_explore(resumed.population[0])[0]) == repr(parameters_of(3))


def test_no_global_generator_is_touched(tmp_path: Path) -> None:
    def states() -> list[Any]:
        legacy = np.random.get_state()
        return [random.getstate(), legacy[1].tolist(), legacy[2:], torch.get_rng_state().tolist()]  # type: ignore[index]

    before = states()
    scheduler = make_scheduler(tmp_path, seed=11)
    assert states() == before
    go_on(scheduler)
    state = scheduler.state_dict()
    PBTScheduler(scheduler.config).load_state_dict(state)
    assert states() == before


def test_a_state_of_another_population_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    scheduler = make_scheduler(tmp_path)
    before = scheduler.state_dict()
    with pytest.raises(StateError, match="has 3 members and population_size=4"):
        scheduler.load_state_dict({**before, "members": before["members"][:3]})  # type: ignore[index]
    assert scheduler.state_dict() == before
