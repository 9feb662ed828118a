"""A population trains member by member as each would alone, and goes on exactly where it was interrupted."""

from __future__ import annotations

import io
import math
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.utils import LinearSchedule, set_random_seed

from rlcore import DistributionalPPO, NonFiniteError, PopulationMember, ResumeWarning
from rlcore.errors import CheckpointError
from rlcore.pbt import PBTConfig
from rlcore.pbt.population import LineageEvent, Population, ancestors, append_lineage, member_seed, read_lineage
from rlcore.pbt.turns import OwnGenerators, TurnwiseTraining
from rlcore.state.training import Scope, capture_generators
from tests.support.population_run import CONFIG, UPDATES, build, build_model
from tests.support.training import differing, make_envs, make_model


class Faulty(CartPoleEnv):
    """Its 20th step, and no other, earns or is observed as NaN."""

    def __init__(self, what: str, **options: Any) -> None:
        super().__init__(**options)
        self.what, self.steps = what, 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        observation, reward, *rest = super().step(action)
        if self.steps == 20 and self.what == "reward":
            reward = math.nan
        elif self.steps == 20:
            observation = observation * math.nan
        return observation, reward, *rest


def outcome(population: Population) -> dict[str, Any]:
    """Everything that two runs of one population must have in common, in the bits."""
    members = [member.state_dict() for member in population.scheduler.population]
    for member in members:
        del member["checkpoint_path"]
    models = []
    for model in population.models:
        state = model._training_state().capture(Scope.LEARNER, Scope.COLLECTED, Scope.PROGRESS)
        for episode in state["progress_state"]["ep_info_buffer"]:  # type: ignore[index,union-attr]
            del episode["t"]  # type: ignore[union-attr,arg-type]
        models.append(state)
    lineage = (population.folder / "lineage.jsonl").read_text()
    return {"members": members, "models": models, "lineage": lineage, "stats": population.scheduler.get_stats()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A population that trained to its end, and what it reported and had on the way."""
    population = build(tmp_path_factory.mktemp("finished"))
    reports: list[PopulationMember] = []
    seen: list[dict[str, Any]] = []

    def look(member: PopulationMember) -> None:
        model = population.models[member.member_id]
        reports.append(member)
        seen.append({**model.get_parameters(), "lr": model.learning_rate, "window": len(model.ep_info_buffer or ())})

    result = population.train(UPDATES, look)
    found = {"reports": reports, "seen": seen, "outcome": outcome(population)}
    return SimpleNamespace(population=population, result=result, **found)


class TestTurns:
    def test_turns_are_logged_under_the_name_of_their_member(self, tmp_path: Path) -> None:
        TurnwiseTraining(make_model(tensorboard_log=str(tmp_path)), 96, "member_3")
        assert [folder.name for folder in tmp_path.iterdir()] == ["member_3_0"]

    def test_turns_leave_the_bits_of_one_call_of_learn(self) -> None:
        settings: dict[str, Any] = {"learning_rate": LinearSchedule(1e-2, 1e-3, 1.0), "clip_range": 0.1}
        whole, cut = make_model(**settings), make_model(**settings)
        set_random_seed(7)
        whole.learn(144)
        expected = whole._training_state().capture(Scope.LEARNER, Scope.RUN)
        set_random_seed(7)
        training = TurnwiseTraining(cut, 144, "run")
        training.advance(1, {})
        training.advance(2, {})
        assert differing(expected, cut._training_state().capture(Scope.LEARNER, Scope.RUN)) == []

    def test_a_member_that_copied_nobody_is_the_model_that_it_would_be_alone(self, finished: SimpleNamespace) -> None:
        loner = next(member for member in finished.result.table if member.exploits == 0)
        seed = member_seed(6, loner.member_id)
        set_random_seed(seed)
        alone = build_model(loner.hyperparams, seed)
        alone.learn(UPDATES * 64)
        assert differing(alone.get_parameters(), finished.population.models[loner.member_id].get_parameters()) == []

    @pytest.mark.parametrize("diverges", ["a gradient", "a return", "an observation"])
    def test_after_an_update_that_failed_a_saved_model_stands_where_the_live_one_does(
        self, diverges: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model, file = make_model(), io.BytesIO()
        training = TurnwiseTraining(model, 144, "run")
        training.advance(1, {})
        with monkeypatch.context() as patch:
            if diverges == "a gradient":
                patch.setitem(vars(model), "vf_coef", math.nan)
            elif diverges == "a return":
                patch.setattr(model.rollout_buffer, "gamma", math.nan)
            else:
                step = CartPoleEnv.step
                patch.setattr(CartPoleEnv, "step", lambda *given: (math.nan * np.ones(4), *step(*given)[1:]))
            with pytest.raises(NonFiniteError):
                training.advance(1, {})
        model.save(file)
        file.seek(0)
        training.advance(1, {})
        loaded = DistributionalPPO.load(file, env=make_envs(), device="cpu")
        TurnwiseTraining(loaded, 144, "run").advance(1, {})
        assert loaded.num_timesteps == model.num_timesteps > 96
        assert differing(loaded.get_parameters(), model.get_parameters()) == []

    def test_an_environment_that_is_nan_for_a_while_is_reset_afterwards(self, monkeypatch: pytest.MonkeyPatch) -> None:
        training, lost = TurnwiseTraining(make_model(), 144, "run"), np.full(4, math.nan, np.float32)
        training.advance(1, {})
        with monkeypatch.context() as patch:
            patch.setattr(CartPoleEnv, "step", lambda *_: (lost, 1.0, True, False, {}))
            patch.setattr(CartPoleEnv, "reset", lambda *_, **__: (lost, {}))
            for _ in range(2):
                with pytest.raises(NonFiniteError):
                    training.advance(1, {})
        training.advance(1, {})

    def test_own_generators_go_on_where_they_were_and_leave_those_of_the_process(self) -> None:
        own = OwnGenerators(3)
        set_random_seed(99)
        outside = capture_generators()
        with own.in_place():
            first = capture_generators()
            make_model()
            second = capture_generators()
        assert differing(outside, capture_generators()) == []
        assert differing(first, second) != []
        with own.in_place():
            assert differing(second, capture_generators()) == []


class TestResume:
    @pytest.mark.slow
    def test_a_killed_process_is_continued_to_the_same_end(self, tmp_path: Path, finished: SimpleNamespace) -> None:
        """The kill comes when models and lineage of an exploit are written and the state that counts them is not."""
        command = [sys.executable, "-m", "tests.support.population_run", str(tmp_path), "12"]
        killed = subprocess.run(command, cwd=Path(__file__).parents[3], check=False)
        assert killed.returncode == -signal.SIGKILL
        events = read_lineage(tmp_path / "lineage.jsonl")
        assert [event.event for event in events] == ["start"] * 3 + ["exploit"]
        population = build(tmp_path)
        assert [member.step for member in population.scheduler.population] == [1, 1, 1]
        assert population.scheduler.exploitation_count == 0
        population.train(UPDATES)
        assert differing(outcome(population), finished.outcome) == []

    @pytest.mark.parametrize("write", [6, 12, 13])
    def test_an_interruption_at_any_write_is_made_good(
        self, write: int, tmp_path: Path, finished: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        done, replace = 0, os.replace

        def interrupted(source: Any, target: Any) -> None:
            nonlocal done
            done += 1
            if done == write:
                raise KeyboardInterrupt
            replace(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", interrupted)
            with pytest.raises(KeyboardInterrupt):
                build(tmp_path).train(UPDATES)
        population = build(tmp_path)
        population.train(UPDATES)
        assert differing(outcome(population), finished.outcome) == []

    @pytest.mark.parametrize("is_same", [True, False])
    def test_a_run_asked_for_more_makes_up_for_the_exploits_left_out(
        self, is_same: bool, tmp_path: Path, finished: SimpleNamespace
    ) -> None:
        population = build(tmp_path / "first")
        population.train(2)
        if not is_same:
            (tmp_path / "first").rename(tmp_path / "moved")
            population = build(tmp_path / "moved")
        result = population.train(UPDATES)
        assert differing(outcome(population), finished.outcome) == []
        assert population.train(1) == result

    @pytest.mark.parametrize(("strategy", "starts_again"), [("reset", True), ("copy", False)])
    def test_an_exploit_resets_or_copies_the_optimizer(self, strategy: str, starts_again: bool, tmp_path: Path) -> None:
        population = build(tmp_path, optimizer_exploit_strategy=strategy)
        population.train(3)
        exploits = sum(member.exploits for member in population.scheduler.population)
        assert population.scheduler.exploitation_count == exploits > 1
        states = [model.policy.optimizer.state.values() for model in population.models]
        steps = {max(each["step"] for each in state) for state in states}
        assert (len(steps) > 1) == starts_again

    def test_checkpoints_lie_where_the_configuration_says(self, tmp_path: Path) -> None:
        build(tmp_path / "run", checkpoint_dir=tmp_path / "elsewhere").train(1)
        assert len(list((tmp_path / "elsewhere").iterdir())) == 3
        assert not (tmp_path / "run/checkpoints").exists()

    def test_a_checkpoint_lost_in_between_leaves_who_would_copy_it_as_it_was(self, tmp_path: Path) -> None:
        best = build(tmp_path).train(1).best
        path = tmp_path / "checkpoints" / f"member_{best.member_id}_step_1.pt"
        path.unlink()
        population = build(tmp_path)
        with pytest.warns(ResumeWarning) as caught:
            population.train(2)
        assert [str(path) in str(warning.message) for warning in caught] == [True]
        assert [member.exploits for member in population.scheduler.population] == [0] * 3

    def test_each_member_has_one_model_file_and_the_best_one_can_be_loaded(self, finished: SimpleNamespace) -> None:
        result, population = finished.result, finished.population
        assert len(list((population.folder / "members").iterdir())) == 3
        assert result.table[0] == result.best
        assert list(result.table) == population.scheduler.ranked()
        loaded = DistributionalPPO.load(result.model_file, device="cpu")
        best = population.models[result.best.member_id]
        assert differing(loaded.get_parameters()["policy"], best.get_parameters()["policy"]) == []


class TestExploits:
    def test_reports_and_lineage_tell_the_same_story(self, finished: SimpleNamespace) -> None:
        exploits = [report for report in finished.reports if report.copied_from is not None]
        events = read_lineage(finished.population.folder / "lineage.jsonl")
        assert [(event.event, event.member, event.step) for event in events[:3]] == [("start", i, 0) for i in range(3)]
        assert len(exploits) == 2
        trained = [event.hyperparams for event in events[:3]]
        for report, event in zip(exploits, events[3:], strict=True):
            assert event.hyperparams_before == trained[event.member]
            trained[event.member] = event.hyperparams
            expected = report.member_id, report.copied_from, report.step, report.step, report.performance
            assert (event.member, event.source, event.step, event.source_step, event.performance) == expected
            assert event.hyperparams == report.hyperparams != event.hyperparams_before
            assert (event.event, event.format) == ("exploit", "v2_full_parameters")

    def test_a_member_goes_on_with_the_weights_and_statistics_of_its_source(self, finished: SimpleNamespace) -> None:
        trained = {}
        for report, seen in zip(finished.reports, finished.seen, strict=True):
            if report.copied_from is None:
                trained[report.member_id, report.step] = seen
                continue
            source = trained[report.copied_from, report.step]
            for key in ("policy", "vgs_state", "normalizer_state"):
                assert source[key] is not None
                assert differing(seen[key], source[key]) == []

    def test_a_member_goes_on_with_the_explored_hyperparameters_and_no_old_episodes(
        self, finished: SimpleNamespace
    ) -> None:
        for report, seen in zip(finished.reports, finished.seen, strict=True):
            optimizer, has_copied = seen["policy.optimizer"], report.copied_from is not None
            explored = report.hyperparams["learning_rate"], report.hyperparams["sigma"]
            assert [(group["lr"], group["sigma"]) for group in optimizer["param_groups"]] == [explored] * 2
            assert seen["lr"] == explored[0]
            assert (optimizer["state"] == {}, seen["window"] == 0) == (has_copied, has_copied)

    def test_every_rollout_logs_what_the_population_did(self, tmp_path: Path) -> None:
        logged: list[dict[str, Any]] = []
        memory = mock.Mock(KVWriter, write=lambda values, *_: logged.append(dict(values)))

        def listened_to(hyperparams: Mapping[str, Any], seed: int) -> DistributionalPPO:
            model = build_model(hyperparams, seed)
            model.set_logger(Logger(folder=None, output_formats=[memory]))
            return model

        population = Population(listened_to, PBTConfig(**CONFIG), folder=tmp_path, seed=6)
        result = population.train(2)
        last = {name: sum(each[name] for each in logged[3:]) for name in ("pbt/exploit_count", "pbt/vgs_transferred")}
        assert last == {"pbt/exploit_count": 1, "pbt/vgs_transferred": 1}
        assert sum(member.exploits for member in result.table) == 1
        assert [each["pbt/exploitation_count"] for each in logged] == [0, 0, 0, 1, 1, 1]
        assert logged[-1]["rollout/ep_rew_mean"] > 0

    def test_members_that_copied_nobody_explore_if_asked_to(self, tmp_path: Path) -> None:
        population = build(tmp_path, explore_without_exploit=True, explore_method="resample")
        population.train(2)
        events = read_lineage(tmp_path / "lineage.jsonl")[3:]
        assert sorted(event.event for event in events) == ["exploit", "explore", "explore"]
        for event in events:
            assert population.models[event.member].learning_rate == event.hyperparams["learning_rate"]

    @pytest.mark.parametrize(("what", "steps"), [("reward", 128), ("observation", 104)])
    def test_a_member_that_diverged_ranks_last_and_goes_on_from_what_it_copied(
        self, what: str, steps: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        def made(hyperparams: Mapping[str, Any], seed: int) -> DistributionalPPO:
            env = partial(Faulty, what) if seed == member_seed(6, 0) else "CartPole-v1"
            sizes: dict[str, Any] = {"n_steps": 32, "batch_size": 32, "optimizer_kwargs": {"sigma": 0.01}}
            envs = make_vec_env(env, 2, seed=seed)
            return make_model(envs, seed=seed, learning_rate=hyperparams["learning_rate"], **sizes)

        population = Population(made, PBTConfig(**CONFIG), folder=tmp_path, seed=6)
        reports: list[PopulationMember] = []
        population.train(2, reports.append)
        assert caplog.text.count("has diverged") == caplog.text.count("member 0 has diverged") == 1
        assert math.isnan(reports[0].performance or 0.0)
        assert reports[3].member_id == 0
        assert reports[3].copied_from in (1, 2)
        assert population.scheduler.population[0].step == 2
        assert [model.num_timesteps for model in population.models] == [steps, 128, 128]


def start(member: int) -> LineageEvent:
    return LineageEvent("start", member, 0, None, {"gamma": 0.9})


def copied(member: int, step: int, source: int) -> LineageEvent:
    before: dict[str, Any] = {"gamma": 0.9}
    return LineageEvent("exploit", member, step, -1.5, {"gamma": 0.8}, before, source, step, "v2_full_parameters")


def test_what_is_appended_and_not_cut_off_is_read_back(tmp_path: Path) -> None:
    path, size = tmp_path / "lineage.jsonl", 0
    for events in ([start(0), start(1)], []):
        size = append_lineage(path, size, events)
    append_lineage(path, size, [copied(0, 5, 1), copied(1, 5, 2)])  # is not committed
    assert append_lineage(path, size, [copied(1, 5, 0)]) == path.stat().st_size
    assert read_lineage(path) == read_lineage(tmp_path) == [start(0), start(1), copied(1, 5, 0)]
    assert read_lineage(path, size) == [start(0), start(1)]
    path.write_bytes(path.read_bytes()[:-7])
    assert read_lineage(path) == [start(0), start(1)]


@pytest.mark.parametrize(
    "line", ["[" * 100_000, '{"event": 1, "of": 2}', "5", "\xff"], ids=["deep", "other", "5", "no text"]
)
def test_a_damaged_lineage_is_one_error_with_its_path(line: str, tmp_path: Path) -> None:
    (tmp_path / "lineage.jsonl").write_text(f"{line}\n", encoding="latin-1")
    with pytest.raises(CheckpointError, match=r"lineage.jsonl: has a line that is not an event"):
        read_lineage(tmp_path)


def test_a_lineage_that_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lineage.jsonl")
    with pytest.raises(CheckpointError, match="is not a regular file"):
        read_lineage(tmp_path)


def test_ancestors_follow_the_copies_back_to_the_start() -> None:
    """A source that copied another at the same step gives what it had before; an exploration brings no ancestor."""
    explored = LineageEvent("explore", 2, 12, 1.0, {"gamma": 0.5}, {"gamma": 0.8})
    events = [start(0), start(1), start(2), copied(1, 5, 0), copied(3, 5, 1), copied(2, 10, 1), explored]
    found = {member: ancestors(events, member) for member in range(4)}
    assert found == {0: [], 1: [(0, 5)], 2: [(1, 10), (0, 5)], 3: [(1, 5)]}
