"""What a member hands over, read without harm when it is not whole; and a scheduler goes on exactly where it was."""

from __future__ import annotations

import json
import logging
import math
import os
import random
import shutil
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlcore import CheckpointError, PBTScheduler, ResumeWarning, SettingError, StateError
from rlcore.checkpoint.formats import FORMAT_V2, load_checkpoint
from tests.support.schedulers import files_in, make_config, make_scheduler, parameters_of, report


def ready(folder: Path, **settings: Any) -> PBTScheduler:
    """A population of four in which member 0 is the worst and member 3 the best."""
    scheduler = make_scheduler(folder, **settings)
    report(scheduler, [0.1, 0.2, 0.3, 0.4])
    return scheduler


def test_a_member_keeps_its_last_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older files go only after the new one is durable."""
    scheduler = make_scheduler(tmp_path, size=2)
    for step in (5, 10, 15, 20, 20):
        report(scheduler, [0.1, 0.2], step)
    names = [f"member_{number}_step_{step}.pt" for number in (0, 1) for step in (15, 20)]
    assert files_in(tmp_path) == names
    member = scheduler.population[0]
    before = member.state_dict()
    assert before["checkpoint_path"] == str(tmp_path / "member_0_step_20.pt")

    def fail(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(CheckpointError, match="cannot be written"):
        scheduler.update_performance(member, 0.9, 25, model_parameters=parameters_of(0))
    assert member.state_dict() == before
    assert set(names) <= set(files_in(tmp_path))


@pytest.mark.parametrize("damage", ["missing", "cut short", "never saved"])
def test_a_source_that_cannot_be_read_leaves_the_member_as_it_was(damage: str, tmp_path: Path) -> None:
    scheduler = ready(tmp_path)
    worst, *_, best = scheduler.population
    assert best.checkpoint_path is not None
    path, said = Path(best.checkpoint_path), best.checkpoint_path
    if damage == "missing":
        path.unlink()
    elif damage == "cut short":
        path.write_bytes(path.read_bytes()[:-40])
    else:
        best.checkpoint_path, said = None, "member 3 has saved no checkpoint"
    before = dict(worst.hyperparams)
    with pytest.warns(ResumeWarning) as caught:
        assert scheduler.exploit_and_explore(worst) == (None, before, None)
    assert [said in str(warning.message) for warning in caught] == [True]
    assert (worst.hyperparams, worst.copied_from) == (before, None)
    assert (scheduler.exploitation_count, scheduler.exploration_count) == (0, 0)


@pytest.mark.parametrize("everyone", [False, True])
def test_only_a_member_that_copied_explores(everyone: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With the switch, members explore that copied nothing."""
    scheduler = ready(tmp_path, explore_method="perturb", explore_without_exploit=everyone)
    before = [dict(member.hyperparams) for member in scheduler.population]
    with caplog.at_level(logging.INFO, "rlcore.pbt"):
        results = [scheduler.exploit_and_explore(member) for member in scheduler.population]
    changed = [hyperparams != old for (_, hyperparams, _), old in zip(results, before, strict=True)]
    assert changed == [True, *[everyone] * 3]
    assert [parameters is None for parameters, *_ in results] == [False, True, True, True]
    assert [checkpoint_format for *_, checkpoint_format in results] == [FORMAT_V2, None, None, None]
    assert (scheduler.exploitation_count, scheduler.exploration_count) == (1, 4 if everyone else 1)
    assert "member 0 copies member 3" in caplog.text


def test_who_was_copied_is_said_until_the_next_report_and_a_score_alone_keeps_the_file(tmp_path: Path) -> None:
    scheduler = ready(tmp_path)
    member = scheduler.population[0]
    scheduler.exploit_and_explore(member)
    assert member.state_dict()["copied_from"] == 3
    scheduler.update_performance(member, math.nan, 10)
    assert (member.copied_from, member.step, str(member.performance)) == (None, 10, "nan")
    assert member.checkpoint_path is not None
    assert load_checkpoint(member.checkpoint_path).step == 5


def test_hyperparameters_come_with_the_parameters_that_they_trained(tmp_path: Path) -> None:
    """In one round the source may have copied another member before it is copied itself; its file is the old one."""
    scheduler = make_scheduler(tmp_path, size=3, exploit_method="binary_tournament", hyperparams=[])
    scheduler.initialize_population([{"trained": "by 0"}, {"trained": "by 1"}, {"trained": "by 2"}])
    low, middle, _ = report(scheduler, [0.0, 1.0, 2.0])
    while middle.hyperparams == {"trained": "by 1"}:
        scheduler.exploit_and_explore(middle)
    parameters, hyperparams, _ = scheduler.exploit_and_explore(low)
    while low.copied_from != 1:
        parameters, hyperparams, _ = scheduler.exploit_and_explore(low)
    assert repr(parameters) == repr(parameters_of(1))
    assert hyperparams == {"trained": "by 1"}


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"performance": None}, TypeError, "None"),
        ({"step": 1.5}, SettingError, "step=1.5 is no whole number"),
        ({"model_parameters": {"policy": {"w": torch.ones(1)}}}, CheckpointError, "lacks"),
        ({"model_parameters": None, "model_state_dict": {"w": 1.0}}, CheckpointError, "must be a dict"),
    ],
)
@pytest.mark.filterwarnings("ignore:model_state_dict saves:DeprecationWarning")
def test_a_report_that_cannot_be_used_changes_nothing(
    changes: dict[str, Any], error: type[Exception], words: str, tmp_path: Path
) -> None:
    scheduler = ready(tmp_path)
    member, names = scheduler.population[0], files_in(tmp_path)
    before = member.state_dict()
    given = {"performance": 0.5, "step": 10, "model_parameters": parameters_of(0), **changes}
    with pytest.raises(error, match=words):
        scheduler.update_performance(member, **given)
    assert (member.state_dict(), files_in(tmp_path)) == (before, names)


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
    """A state is plain, and shares nothing with the scheduler that gave it and the one that goes on from it."""
    scheduler = make_scheduler(tmp_path, exploit_method=method)
    go_on(scheduler)
    state = scheduler.state_dict()
    text = json.dumps(state)
    expected = go_on(scheduler)
    resumed = PBTScheduler(scheduler.config)
    resumed.load_state_dict(state)
    assert go_on(resumed) == expected
    assert resumed.state_dict() == scheduler.state_dict()
    assert json.dumps(state) == text
    resumed.load_state_dict(json.loads(text))
    assert go_on(resumed) == expected


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
