"""What a member hands over: files that are whole, its own, pruned, and read without harm when they are not."""

from __future__ import annotations

import logging
import math
import os
import stat
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from rlcore import CheckpointError, PBTScheduler, ResumeWarning, SettingError
from rlcore.checkpoint import FORMAT_V1, FORMAT_V2, load_checkpoint
from rlcore.errors import CallOrderError
from tests.support.schedulers import files_in, make_scheduler, parameters_of, report
from tests.support.training import differing, make_model, tensors_in


def ready(folder: Path, **settings: Any) -> PBTScheduler:
    """A population of four in which member 0 is the worst and member 3 the best."""
    scheduler = make_scheduler(folder, **settings)
    report(scheduler, [0.1, 0.2, 0.3, 0.4])
    return scheduler


def test_a_member_keeps_its_last_two_files(tmp_path: Path) -> None:
    scheduler = make_scheduler(tmp_path, size=2)
    for step in (5, 10, 15, 20, 20):
        report(scheduler, [0.1, 0.2], step)
    assert files_in(tmp_path) == [f"member_{number}_step_{step}.pt" for number in (0, 1) for step in (15, 20)]
    assert [member.checkpoint_path for member in scheduler.population] == [
        str(tmp_path / f"member_{number}_step_20.pt") for number in (0, 1)
    ]


def test_older_files_go_only_after_the_new_one_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = make_scheduler(tmp_path, size=2)
    report(scheduler, [0.1, 0.2], 5)
    report(scheduler, [0.1, 0.2], 10)
    member, names = scheduler.population[0], files_in(tmp_path)
    before = member.state_dict()

    def fail(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(CheckpointError, match="cannot be written"):
        scheduler.update_performance(member, 0.9, 15, model_parameters=parameters_of(0))
    assert member.state_dict() == before
    assert set(names) <= set(files_in(tmp_path))


@pytest.mark.parametrize("damage", ["missing", "cut short", "changed", "foreign", "never saved"])
def test_a_source_that_cannot_be_read_leaves_the_member_as_it_was(damage: str, tmp_path: Path) -> None:
    scheduler = ready(tmp_path)
    worst, *_, best = scheduler.population
    assert best.checkpoint_path is not None
    path, said = Path(best.checkpoint_path), best.checkpoint_path
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "cut short":
        path.write_bytes(content[:-40])
    elif damage == "changed":
        path.write_bytes(content.replace(b"step_count", b"step_kount"))
    elif damage == "foreign":
        path.write_text("text")
    else:
        best.checkpoint_path, said = None, "member 3 has saved no checkpoint"
    before = dict(worst.hyperparams)
    with pytest.warns(ResumeWarning) as caught:
        assert scheduler.exploit_and_explore(worst) == (None, before, None)
    assert [said in str(warning.message) for warning in caught] == [True]
    assert (worst.hyperparams, worst.copied_from) == (before, None)
    assert (scheduler.exploitation_count, scheduler.exploration_count) == (0, 0)


def test_the_warning_of_a_source_that_cannot_be_read_points_at_the_caller(tmp_path: Path) -> None:
    scheduler = ready(tmp_path)
    worst, *_, best = scheduler.population
    Path(str(best.checkpoint_path)).unlink()
    with pytest.warns(ResumeWarning) as caught:
        scheduler.exploit_and_explore(worst)
    assert Path(caught[0].filename).name == Path(__file__).name


def test_only_a_member_that_copied_explores(tmp_path: Path) -> None:
    scheduler = ready(tmp_path, explore_method="perturb")
    before = [dict(member.hyperparams) for member in scheduler.population]
    results = [scheduler.exploit_and_explore(member) for member in scheduler.population]
    assert [hyperparams == old for (_, hyperparams, _), old in zip(results, before, strict=True)] == [False] + [
        True
    ] * 3
    assert [checkpoint_format for *_, checkpoint_format in results] == [FORMAT_V2, None, None, None]
    assert scheduler.exploration_count == 1


def test_the_switch_lets_members_explore_that_copied_nothing(tmp_path: Path) -> None:
    scheduler = ready(tmp_path, explore_method="perturb", explore_without_exploit=True)
    before = [dict(member.hyperparams) for member in scheduler.population]
    results = [scheduler.exploit_and_explore(member) for member in scheduler.population]
    assert not any(hyperparams == old for (_, hyperparams, _), old in zip(results, before, strict=True))
    assert [parameters is None for parameters, *_ in results] == [False, True, True, True]
    assert (scheduler.exploitation_count, scheduler.exploration_count) == (1, 4)


def test_who_was_copied_is_said_of_the_last_exploit_only(tmp_path: Path) -> None:
    scheduler = ready(tmp_path)
    member = scheduler.population[0]
    scheduler.exploit_and_explore(member)
    assert member.copied_from == 3
    scheduler.update_performance(member, 9.0, 10)
    scheduler.exploit_and_explore(member)
    assert member.copied_from is None


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


def test_parameters_handed_over_share_no_tensor_with_anything(tmp_path: Path) -> None:
    scheduler = make_scheduler(tmp_path, size=2)
    worst, best = scheduler.population
    live = parameters_of(1)
    scheduler.update_performance(worst, 0.0, 5, model_parameters=parameters_of(0))
    scheduler.update_performance(best, 1.0, 5, model_parameters=live)
    for tensor in tensors_in(live):
        tensor.fill_(-1.0)
    first, second = (scheduler.exploit_and_explore(worst)[0] for _ in range(2))
    assert repr(first) == repr(second) == repr(parameters_of(1))
    for tensor in tensors_in(first):
        tensor.fill_(-2.0)
    assert repr(second) == repr(scheduler.exploit_and_explore(worst)[0]) == repr(parameters_of(1))


def test_what_a_real_model_reports_arrives_whole(tmp_path: Path) -> None:
    scheduler = make_scheduler(tmp_path, size=2)
    worst, best = scheduler.population
    source = make_model()
    source.learn(96)
    scheduler.update_performance(worst, math.nan, 5, model_parameters=make_model(seed=1).get_parameters())
    scheduler.update_performance(best, 9.5, 5, model_parameters=source.get_parameters())
    parameters, _, _ = scheduler.exploit_and_explore(worst)
    expected = {name: part for name, part in source.get_parameters().items() if part is not None}
    assert parameters is not None
    found = {str(name): part for name, part in parameters.items() if part is not None}
    assert set(found) == set(expected)
    assert {"policy", "policy.optimizer", "vgs_state"} <= set(found)
    assert differing(found, expected) == []


def test_a_bare_policy_is_deprecated_and_written_as_v1(tmp_path: Path) -> None:
    scheduler = make_scheduler(tmp_path, size=2)
    worst, best = scheduler.population
    for member in (worst, best):
        policy = {"weight": torch.full((2,), float(member.member_id))}
        with pytest.warns(DeprecationWarning, match="model_parameters=model.get_parameters") as caught:
            scheduler.update_performance(member, member.member_id, 5, model_state_dict=policy)
        assert Path(caught[0].filename).name == Path(__file__).name
    with pytest.warns(ResumeWarning, match="holds only the policy"):
        parameters, _, checkpoint_format = scheduler.exploit_and_explore(worst)
    assert checkpoint_format == FORMAT_V1
    assert repr(parameters) == repr({"policy": {"weight": torch.ones(2)}})


def test_a_file_of_an_older_population_is_read_as_v1(tmp_path: Path) -> None:
    scheduler = ready(tmp_path)
    worst, *_, best = scheduler.population
    best.checkpoint_path = str(tmp_path / "old.pt")
    torch.save({"weight": torch.ones(2)}, best.checkpoint_path)
    with pytest.warns(ResumeWarning, match="holds only the policy"):
        assert scheduler.exploit_and_explore(worst)[2] == FORMAT_V1


UNUSABLE: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "text": ({"performance": "0.5"}, SettingError, "performance='0.5' is no number"),
    "nothing": ({"performance": None}, SettingError, "performance=None is no number"),
    "a bool": ({"performance": True}, SettingError, "performance=True is no number"),
    "half a step": ({"step": 1.5}, SettingError, "step=1.5 is no whole number"),
    "a step before the first": ({"step": -1}, SettingError, "step=-1 is no whole number"),
    "both": ({"model_state_dict": {"w": torch.ones(1)}}, SettingError, "are both given"),
    "parts missing": ({"model_parameters": {"policy": {"w": torch.ones(1)}}}, CheckpointError, "lacks"),
    "no policy": ({"model_parameters": None, "model_state_dict": {"w": 1.0}}, CheckpointError, "must be a dict"),
    "no container": ({"model_parameters": 3}, CheckpointError, "wrong type"),
}


@pytest.mark.parametrize("case", UNUSABLE)
@pytest.mark.filterwarnings("ignore:model_state_dict saves:DeprecationWarning")
def test_a_report_that_cannot_be_used_changes_nothing(case: str, tmp_path: Path) -> None:
    changes, error, words = UNUSABLE[case]
    scheduler = make_scheduler(tmp_path)
    report(scheduler, [0.1, 0.2, 0.3, 0.4])
    member, names = scheduler.population[0], files_in(tmp_path)
    before = member.state_dict()
    with pytest.raises(error, match=words):
        scheduler.update_performance(
            member, **{"performance": 0.5, "step": 10, "model_parameters": parameters_of(0), **changes}
        )
    assert member.state_dict() == before
    assert files_in(tmp_path) == names


def test_a_score_alone_keeps_the_last_file(tmp_path: Path) -> None:
    scheduler = ready(tmp_path)
    member = scheduler.population[0]
    scheduler.update_performance(member, math.nan, 10)
    assert member.performance is not None
    assert math.isnan(member.performance)
    assert member.step == 10
    assert member.checkpoint_path is not None
    assert load_checkpoint(member.checkpoint_path).step == 5


def test_a_member_of_another_population_is_refused(tmp_path: Path) -> None:
    scheduler, other = ready(tmp_path), ready(tmp_path / "other")
    for refusing in (scheduler, PBTScheduler(scheduler.config)):
        with pytest.raises(CallOrderError, match="take one of population"):
            refusing.exploit_and_explore(other.population[0])
    with pytest.raises(CallOrderError, match="take one of population"):
        scheduler.update_performance(other.population[0], 1.0, 10)


def test_a_folder_that_cannot_be_made_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    scheduler = make_scheduler(tmp_path / "file")
    with pytest.raises(CheckpointError, match="cannot be made a folder"):
        scheduler.update_performance(scheduler.population[0], 1.0, 5, model_parameters=parameters_of(0))


def test_an_exploit_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    scheduler = ready(tmp_path)
    with caplog.at_level(logging.INFO, "rlcore.pbt"), warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler.exploit_and_explore(scheduler.population[0])
    assert "member 0 copies member 3" in caplog.text
