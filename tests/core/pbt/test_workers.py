"""A population leaves the same bytes in one process and in several, and what happens to workers changes nothing."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from rlcore import DistributionalPPO, SettingError
from rlcore.checkpoint.container import locked
from rlcore.errors import WorkerError
from rlcore.pbt.population import member_seed
from rlcore.pbt.turns import mean_episode_return
from rlcore.pbt.workers import Executor, InlineExecutor, ProcessExecutor
from tests.support.population_on_workers import FromFiles, LastFirst, build, build_model, contents, trained_inline
from tests.support.population_run import UPDATES
from tests.support.processes import is_running, wait_until
from tests.support.training import differing

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return trained_inline(tmp_path_factory.mktemp("inline"))


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def trained(executor: Executor, **options: Any) -> dict[str, bytes]:
    build("population", executor=executor, **options).train(UPDATES)
    return contents("population")


@pytest.mark.parametrize("executor", [FromFiles(), LastFirst()], ids=["from files", "last first"])
def test_neither_files_nor_the_order_in_which_turns_end_show(executor: Executor, expected: dict[str, bytes]) -> None:
    assert len(expected) == 3 + 6 + 3  # with the lock
    assert trained(executor) == expected


def test_a_worker_that_dies_when_its_task_is_done_does_it_again(tmp_path: Path) -> None:
    died = tmp_path / "died"

    def doubled(number: int) -> int:
        def die(path: Path) -> None:
            path.rename(died)
            os.kill(os.getpid(), signal.SIGKILL)

        if not died.exists():
            Path.unlink = die  # type: ignore[assignment, method-assign]
        return 2 * number

    with ProcessExecutor(1) as executor:
        assert list(executor.map(doubled, [1, 2])) == [(1, 2), (2, 4)]


@pytest.mark.slow
def test_processes_leave_what_one_process_leaves_also_if_a_worker_is_killed(
    expected: dict[str, bytes], tmp_path: Path
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
def test_workers_that_die_again_and_again_leave_the_last_turn(expected: dict[str, bytes]) -> None:
    """The error names the member, whoever trained next to it."""
    deadly = member_seed(6, 1)

    def die_in_the_second(model: DistributionalPPO) -> float:
        if model.num_timesteps == 128 and model.seed == deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return mean_episode_return(model)

    with pytest.raises(WorkerError, match=r"member 1, turn of 1 .*: 4 worker processes died"):
        trained(ProcessExecutor(2), performance=die_in_the_second)
    population = build("population")
    assert population.scheduler.population[1].step == 1
    population.train(UPDATES)
    assert contents("population") == expected


def test_models_of_workers_are_made_from_their_files_and_one_to_check_the_settings() -> None:
    built: list[int] = []

    def counted(hyperparams: Mapping[str, Any], seed: int) -> DistributionalPPO:
        built.append(seed)
        return build_model(hyperparams, seed)

    population, inline = build("population", make_model=counted, executor=FromFiles()), build("other")
    assert len(built) == 1
    population.train(2)
    inline.train(2)
    for found, wanted in zip(population.models, inline.models, strict=True):
        assert differing(found.get_parameters(), wanted.get_parameters()) == []


def test_an_error_names_the_member_and_figures_are_those_of_the_start_of_the_round() -> None:
    seen: list[Any] = []

    class Listening(InlineExecutor):
        def map(self, function: Any, tasks: Any) -> Any:
            return super().map(function, (seen.append(task.figures) or task for task in tasks))

    def fails_last(_: DistributionalPPO) -> float:
        return 1 / (3 - len(seen))

    with pytest.raises(ZeroDivisionError) as caught:
        build("population", executor=Listening(), performance=fails_last).train(1)
    assert caught.value.__notes__ == ["in member 2, turn of 1 updates"]
    assert [figures["pbt/ready_members"] for figures in seen] == [0, 0, 0]


OF_THE_PARENT: list[int] = []


def answer(question: Any) -> Any:
    """What a worker does that is asked."""
    answers: dict[str, Callable[[], Any]] = {
        "is prepared": lambda: (torch.get_num_threads(), signal.getsignal(signal.SIGINT) == signal.SIG_IGN),
        "sleep": lambda: time.sleep(600),
        "pid": os.getpid,
        "is forked": lambda: bool(OF_THE_PARENT),
    }
    return answers[question]() if question in answers else 2 // question


def touch_and_die_at(folder: str, number: int) -> int:
    with Path(folder, str(number)).open("a") as file:
        file.write("x")
    if number == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    deadly, limit = Path(folder, "0"), time.monotonic() + 3
    begun = Path(folder, str(number)).stat().st_size
    while (deadly.stat().st_size if deadly.exists() else 0) < begun and time.monotonic() < limit:
        time.sleep(0.05)  # so that a task next to the deadly one does not end before it
    time.sleep(1)
    return number


@pytest.mark.slow
class TestProcesses:
    def test_results_and_errors_come_with_their_tasks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys.modules[__name__], "OF_THE_PARENT", [1])
        with ProcessExecutor(2) as executor:
            assert sorted(executor.map(answer, [1, 2])) == [(1, 2), (2, 1)]
            assert list(executor.map(answer, [])) == []
            assert list(executor.map(lambda number: number + 1, [1])) == [(1, 2)]
            assert list(executor.map(bytes.upper, [b"a" * 2**24])) == [(b"a" * 2**24, b"A" * 2**24)]
            assert list(executor.map(answer, ["is prepared"])) == [("is prepared", (1, True))]
            assert list(executor.map(answer, ["is forked"])) == [("is forked", False)]
            with pytest.raises(ZeroDivisionError, match="division") as caught:
                list(executor.map(answer, [0]))
            assert caught.value.__notes__ == ["in 0"]

    def test_the_next_map_gets_nothing_of_one_that_raised_or_was_left(self) -> None:
        with ProcessExecutor(2) as executor:
            with pytest.raises(ZeroDivisionError):
                list(executor.map(answer, ["sleep", 0]))
            assert list(executor.map(answer, [1])) == [(1, 2)]
            left = executor.map(answer, ["sleep", "pid", "sleep"])
            _, pid = next(left)
            left.close()  # type: ignore[attr-defined]
            assert not is_running(pid)
            assert list(executor.map(answer, [2])) == [(2, 1)]

    def test_an_idle_worker_that_dies_is_no_death_of_a_task(self, tmp_path: Path) -> None:
        with ProcessExecutor(1) as executor:
            ((_, pid),) = executor.map(answer, ["pid"])
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not multiprocessing.active_children())
            time.sleep(0.5)  # until the pool knows
            with pytest.raises(WorkerError, match="4 worker processes died"):
                list(executor.map(partial(touch_and_die_at, str(tmp_path)), [0]))
            assert list(executor.map(answer, [1])) == [(1, 2)]
        assert (tmp_path / "0").read_text() == 4 * "x"

    def test_the_error_names_the_task_that_kills_workers_and_its_neighbours_end(self, tmp_path: Path) -> None:
        with ProcessExecutor(3) as executor:
            results = executor.map(partial(touch_and_die_at, str(tmp_path)), [1, 2, 0])
            assert sorted(next(results)[0] for _ in range(2)) == [1, 2]
            with pytest.raises(WorkerError, match=r"^0: 4 worker processes died.*lack of memory"):
                next(results)

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
        assert said.count("\nKeyboardInterrupt") == (number == signal.SIGINT), said


@pytest.mark.parametrize("jobs", [0, 1.5])
def test_jobs_must_be_at_least_one(jobs: Any) -> None:
    with pytest.raises(SettingError, match=f"jobs={jobs}"):
        ProcessExecutor(jobs)


def test_a_worker_that_imports_a_script_which_trains_says_how_to_write_it(monkeypatch: pytest.MonkeyPatch) -> None:
    population = build("population", executor=ProcessExecutor(1))
    population.folder.mkdir()
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with locked(population.folder / "lock"), pytest.raises(RuntimeError, match=r"if __name__ == '__main__':"):
        population.train(1)
