"""A population leaves the same bytes wherever its members train, and what happens to workers changes nothing."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from rlcore import DistributionalPPO, ResumeWarning, SettingError
from rlcore.errors import CallOrderError, WorkerError
from rlcore.pbt.cli import run
from rlcore.pbt.executors import Executor, InlineExecutor
from rlcore.pbt.exploit import mean_episode_return
from rlcore.pbt.process_executor import ProcessExecutor
from rlcore.pbt.ray_executor import RayExecutor
from rlcore.pbt.workers import RETRIES
from rlcore.run import train
from tests.support.population_on_workers import FromFiles, LastFirst, build, build_model, contents, trained_inline
from tests.support.population_run import UPDATES
from tests.support.processes import is_running, wait_until
from tests.support.training import differing

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return trained_inline(tmp_path_factory.mktemp("inline"))


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def trained(executor: Executor, **options: Any) -> dict[str, bytes]:
    build("population", executor=executor, **options).train(UPDATES)
    return contents("population")


class TestSameBytes:
    def test_every_turn_goes_on_from_the_file_as_the_live_model_would(self, expected: dict[str, bytes]) -> None:
        assert len(expected) == 3 + 6 + 2 + 1
        assert trained(FromFiles()) == expected

    def test_the_order_in_which_turns_end_does_not_show(self, expected: dict[str, bytes]) -> None:
        assert trained(LastFirst()) == expected

    @pytest.mark.slow
    def test_processes_leave_what_one_process_leaves(self, expected: dict[str, bytes]) -> None:
        assert trained(ProcessExecutor(2)) == expected

    @pytest.mark.slow
    def test_a_worker_that_is_killed_in_a_turn_changes_nothing(
        self, expected: dict[str, bytes], tmp_path: Path
    ) -> None:
        killed = tmp_path / "killed"

        def die_once(model: DistributionalPPO) -> float:
            if model.num_timesteps == 128 and not killed.exists():
                killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return mean_episode_return(model)

        assert trained(ProcessExecutor(2), performance=die_once) == expected
        assert killed.exists()

    @pytest.mark.slow
    def test_workers_that_die_again_and_again_leave_the_last_turn(self, expected: dict[str, bytes]) -> None:
        def die_in_the_second(model: DistributionalPPO) -> float:
            if model.num_timesteps == 128:
                os.kill(os.getpid(), signal.SIGKILL)
            return mean_episode_return(model)

        with pytest.raises(WorkerError, match=r"member 0, turn of 1 .*: 4 .* died \(exit code -9.* lack of memory"):
            trained(ProcessExecutor(1), performance=die_in_the_second)
        population = build("population")
        assert [status.step for status in population.statuses()] == [1, 1, 1]
        population.train(UPDATES)
        assert contents("population") == expected


class TestPopulation:
    def test_the_parent_builds_one_model_to_check_the_settings(self) -> None:
        built: list[int] = []

        def counted(hyperparams: Mapping[str, Any], seed: int) -> DistributionalPPO:
            built.append(seed)
            return build_model(hyperparams, seed)

        build("population", make_model=counted, executor=FromFiles())
        assert len(built) == 1

    def test_models_of_workers_are_made_from_their_files(self) -> None:
        population, inline = build("population", executor=FromFiles()), build("other")
        population.train(2)
        inline.train(2)
        for found, wanted in zip(population.models, inline.models, strict=True):
            assert differing(found.get_parameters(), wanted.get_parameters()) == []

    def test_what_cannot_be_sent_to_workers_is_refused_before_anything_is_trained(self) -> None:
        lock = Lock()
        with pytest.raises(SettingError, match=r"performance=.* cannot be sent to workers .*executor=InlineExecutor"):
            build("population", performance=lambda _: float(lock.locked()), executor=FromFiles())
        assert not Path("population").exists()

    def test_figures_are_those_of_the_start_of_the_round(self) -> None:
        seen: list[Mapping[str, float]] = []

        class Listening(InlineExecutor):
            def map(self, function: Any, tasks: Any) -> Any:
                for task, result in super().map(function, tasks):
                    seen.append(getattr(task.work, "figures", {}))
                    yield task, result

        build("population", executor=Listening()).train(1)
        assert [figures["pbt/ready_members"] for figures in seen] == [0, 0, 0]


def doubled(number: int) -> int:
    return 2 * number


def fail(how: str) -> None:
    if how == "setting":
        raise SettingError("gamma", "gamma=2 cannot be used")
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "unpicklable":
        error = ValueError("holds a lock")
        error.lock = Lock()  # type: ignore[attr-defined]
        raise error
    raise ZeroDivisionError("by nothing")


def answer(question: str) -> Any:
    if question == "warn":
        warnings.warn("the answer is old", ResumeWarning, stacklevel=1)
        return 1
    if question == "threads":
        return torch.get_num_threads(), os.environ["OMP_NUM_THREADS"], os.environ["OPENBLAS_NUM_THREADS"]
    if question == "signals":
        return signal.pthread_sigmask(signal.SIG_BLOCK, [])
    return Lock()


def die(task: int) -> None:
    if task == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def pid_or_sleep(task: str) -> int:
    if task == "sleep":
        time.sleep(600)
    if task == "fail":
        raise ZeroDivisionError
    return os.getpid()


def divide(folder: str, number: int) -> int:
    Path(folder, str(number)).touch()
    return 2 // number


def die_and_count(path: str) -> None:
    with Path(path).open("a") as file:
        file.write("x")
    os.kill(os.getpid(), signal.SIGKILL)


def one_and_then_an_error() -> Iterator[int]:
    yield 1
    raise ZeroDivisionError("no second task")


@pytest.mark.slow
class TestProcesses:
    def test_results_come_with_their_tasks(self) -> None:
        with ProcessExecutor(2) as executor:
            assert sorted(executor.map(doubled, range(5))) == [(i, 2 * i) for i in range(5)]
            assert list(executor.map(doubled, [])) == []
            assert list(executor.map(lambda number: number + 1, [1])) == [(1, 2)]

    def test_errors_come_with_the_traceback_of_the_worker(self) -> None:
        with ProcessExecutor(1) as executor:
            with pytest.raises(ZeroDivisionError, match="by nothing") as caught:
                list(executor.map(fail, ["division"]))
            assert "in fail\n" in caught.value.__notes__[0]
            with pytest.raises(SettingError, match="gamma=2 cannot be used") as setting:
                list(executor.map(fail, ["setting"]))
            assert setting.value.setting == "gamma"
            with pytest.raises(WorkerError, match=r"cannot send back a ValueError .*holds a lock"):
                list(executor.map(fail, ["unpicklable"]))
            with pytest.raises(KeyboardInterrupt):
                list(executor.map(fail, ["interrupt"]))

    def test_warnings_are_raised_again_and_workers_have_one_thread(self) -> None:
        with ProcessExecutor(1) as executor:
            with pytest.warns(ResumeWarning, match="the answer is old"):
                assert list(executor.map(answer, ["warn"])) == [("warn", 1)]
            assert list(executor.map(answer, ["threads"])) == [("threads", (1, "1", "1"))]
            with pytest.raises(WorkerError, match="cannot send back a lock"):
                list(executor.map(answer, ["lock"]))

    def test_the_next_map_gets_nothing_of_one_that_raised_or_was_left(self) -> None:
        with ProcessExecutor(2) as executor:
            with pytest.raises(ZeroDivisionError):
                list(executor.map(pid_or_sleep, ["sleep", "fail"]))
            assert list(executor.map(doubled, [1])) == [(1, 2)]
            left = executor.map(pid_or_sleep, ["sleep", "pid", "sleep"])
            assert next(left)[0] == "pid"
            left.close()  # type: ignore[attr-defined]
            assert list(executor.map(doubled, [2])) == [(2, 4)]

    def test_a_map_that_is_still_there_gives_its_workers_to_the_next(self) -> None:
        with ProcessExecutor(2) as executor:
            left = executor.map(pid_or_sleep, ["sleep", "pid", "sleep"])
            assert next(left)[0] == "pid"
            later = executor.map(doubled, [1, 2, 3])
            results = [next(later)]
            with pytest.raises(CallOrderError, match="begun another map"):
                next(left)
            assert sorted([*results, *later]) == [(1, 2), (2, 4), (3, 6)]

    def test_an_idle_worker_that_dies_is_no_death_of_a_task(self) -> None:
        with ProcessExecutor(1) as executor:
            ((_, pid),) = executor.map(pid_or_sleep, ["pid"])
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not multiprocessing.active_children())  # its threads have ended too
            with pytest.raises(WorkerError, match=r"4 worker processes died \(exit code -9(, exit code -9){3}\)"):
                list(executor.map(die_and_count, [str(Path("deaths").absolute())]))
        assert Path("deaths").read_text() == 4 * "x"

    def test_what_has_ended_comes_before_an_error(self) -> None:
        with ProcessExecutor(1) as executor:
            results = executor.map(doubled, one_and_then_an_error())
            assert next(results) == (1, 2)
            with pytest.raises(ZeroDivisionError, match="no second task"):
                next(results)

    def test_what_has_ended_comes_before_the_error_of_another_task(self) -> None:
        def failing_then_double(folder: str) -> Iterator[int]:
            yield from (0, 1)
            wait_until(lambda: all(Path(folder, str(task)).exists() for task in (0, 1)))
            time.sleep(1)  # until the workers have sent what they have written

        with ProcessExecutor(3) as executor:
            list(executor.map(time.sleep, [1, 1, 1]))  # three workers are ready
            results = executor.map(partial(divide, str(Path().absolute())), failing_then_double("."))
            assert next(results) == (1, 2)
            with pytest.raises(ZeroDivisionError):
                next(results)

    def test_ctrl_c_reaches_no_worker_and_sigterm_does(self) -> None:
        with ProcessExecutor(1) as executor:
            ((_, blocked),) = executor.map(answer, ["signals"])
        assert {signal.SIGINT, signal.SIGTERM} & blocked == {signal.SIGINT}
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])

    def test_a_task_is_given_to_a_new_worker_three_times(self) -> None:
        assert RETRIES == 3
        with ProcessExecutor(1) as executor:
            with pytest.raises(WorkerError, match="1: 4 worker processes died"):
                list(executor.map(die, [1]))
            assert list(executor.map(die, [0])) == [(0, None)]

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
    def test_no_process_is_left_behind(self, number: int, tmp_path: Path) -> None:
        command = [sys.executable, "-m", "tests.support.population_on_workers", str(tmp_path)]
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True) as parent:
            wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == 2 or parent.poll() is not None)
            workers = [int(path.stem) for path in tmp_path.glob("*.pid")]
            assert [is_running(worker) for worker in workers] == [True, True]
            if number == signal.SIGINT:
                os.killpg(parent.pid, number)  # as the terminal does
            else:
                parent.send_signal(number)
            _, said = parent.communicate(timeout=60)
        wait_until(lambda: not any(is_running(worker) for worker in workers))
        assert said.count("KeyboardInterrupt") == (number == signal.SIGINT)


def test_without_the_extra_one_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SettingError, match=r"on Ray needs the package ray, .*pip install 'rlverify\[ray\]'"):
        RayExecutor(2)


def test_jobs_must_be_at_least_one_and_a_context_is_needed() -> None:
    with pytest.raises(SettingError, match="jobs=0 leaves no worker"):
        ProcessExecutor(0)
    with pytest.raises(SettingError, match=r"jobs=1\.5 is no whole number"):
        ProcessExecutor(1.5)  # type: ignore[arg-type]
    with pytest.raises(CallOrderError, match="with executor"):
        list(ProcessExecutor(1).map(doubled, [1]))


def test_a_script_that_trains_when_a_worker_imports_it_is_one_clear_error(tmp_path: Path) -> None:
    script = """
from rlcore import Population, ProcessExecutor
from tests.support.population_on_workers import build_model
from tests.support.population_run import CONFIG
from rlcore import PBTConfig
executor = ProcessExecutor(1)
GUARD
    Population(build_model, PBTConfig(**CONFIG), folder="population", executor=executor).train(1)
    print("trained")
"""
    for guard, trains in (("if True:", False), ('if __name__ == "__main__":', True)):
        (tmp_path / "script.py").write_text(script.replace("GUARD", guard))
        done = subprocess.run(
            [sys.executable, "script.py"],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert ("trained" in done.stdout) is trains, done.stderr
        told = 'put what trains under: if __name__ == "__main__":' in done.stderr
        assert told is not trains, done.stderr
        assert "another process is training" not in done.stderr
        assert "lack of memory" not in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--executor", "ray", "--ray-address", ""], "--ray-address is empty; give HOST:6379 or auto"),
        (["--folder", ""], "names no folder; give one, or . for the current one"),
        (["--jobs", "2"], "--jobs 2 and --executor inline contradict each other"),
        (["--ray-address", "auto"], "--ray-address auto and --executor inline contradict each other"),
        (["--executor", "processes", "--ray-address", "x"], "--ray-address x and --executor processes contradict"),
        (["--executor", "processes", "--jobs", "0"], "Invalid value for '--jobs'"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--env", "CartPole-v1", "--folder", "population", "--updates", "6", *options]) == 2
    assert words in capsys.readouterr().err
    assert not Path("population").exists()


def test_a_single_model_has_no_members_to_spread(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("environment: {id: CartPole-v1}\ntotal_timesteps: 64\n")
    done = CliRunner().invoke(train.app, ["run.yaml", "--executor", "processes", "--jobs", "2"])
    assert done.exit_code == 2
    assert "run.yaml has no section pbt; leave --executor out" in done.stderr


@pytest.mark.slow
def test_the_command_trains_in_processes(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--env", "CartPole-v1", "--population", "2", "--updates", "2", "--n-envs", "1", "--seed", "3"]
    command += ["--interval", "1", "--hyperparam", "learning_rate=1e-4:1e-3:log"]
    assert run([*command, "--folder", "inline"]) == 0
    expected = capsys.readouterr().out
    assert run([*command, "--folder", "spread", "--executor", "processes", "--jobs", "2"]) == 0
    assert capsys.readouterr().out.replace("spread", "inline") == expected
    lineage = Path("inline", "lineage.jsonl").read_bytes()
    assert Path("spread", "lineage.jsonl").read_bytes() == lineage
    assert lineage.count(b"exploit") == 1


def test_a_single_model_is_not_saved_under_a_url(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("environment: {id: CartPole-v1}\ntotal_timesteps: 64\n")
    done = CliRunner().invoke(train.app, ["run.yaml", "--output", "s3://bucket/model.zip"])
    assert done.exit_code == 2
    assert "--output s3://bucket/model.zip is a URL" in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["run.yaml"]
