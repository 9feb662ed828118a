"""A population that trains on Ray leaves the bytes that one process leaves, also when a node is lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ray: Any = pytest.importorskip("ray")

from rlcore import DistributionalPPO, ResumeWarning, SettingError  # noqa: E402
from rlcore.errors import CallOrderError, WorkerError  # noqa: E402
from rlcore.pbt import ray_executor as ray_executor_module  # noqa: E402
from rlcore.pbt.executor_options import ExecutorKind, make_executor  # noqa: E402
from rlcore.pbt.exploit import mean_episode_return  # noqa: E402
from rlcore.pbt.ray_executor import RayExecutor  # noqa: E402
from tests.support.population_on_workers import build, contents, trained_inline  # noqa: E402
from tests.support.population_run import UPDATES  # noqa: E402
from tests.support.processes import commands_of, is_running, wait_until  # noqa: E402

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return trained_inline(tmp_path_factory.mktemp("inline"))


def answer(question: str) -> str:
    if question == "warn":
        warnings.warn("the answer is old", ResumeWarning, stacklevel=1)
    elif question == "fail":
        raise SettingError("gamma", "gamma=2 cannot be used")
    elif question == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif question == "sleep":
        time.sleep(600)
    elif question == "take more than one look":
        time.sleep(2.5)
    return question


def test_a_cluster_on_this_machine_and_a_killed_worker(expected: dict[str, bytes], tmp_path: Path) -> None:
    killed = tmp_path / "killed"

    def die_once(model: DistributionalPPO) -> float:
        if model.num_timesteps == 128 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return mean_episode_return(model)

    build("population", executor=RayExecutor(2), performance=die_once).train(UPDATES)
    assert contents("population") == expected
    assert killed.exists()
    assert not ray.is_initialized()


def test_a_node_that_is_lost_in_a_round_changes_nothing(expected: dict[str, bytes], tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    lost_id, reached = second.node_id, tmp_path / "reached"

    def wait_on_the_second_node(model: DistributionalPPO) -> float:
        if ray.get_runtime_context().get_node_id() == lost_id:
            reached.touch()
            time.sleep(600)
        return mean_episode_return(model)

    def lose() -> None:
        wait_until(reached.exists)
        cluster.remove_node(second, allow_graceful=False)

    watching = threading.Thread(target=lose)
    try:
        executor = RayExecutor(2, address=cluster.address)
        watching.start()
        build("population", executor=executor, performance=wait_on_the_second_node).train(UPDATES)
        assert contents("population") == expected
        assert reached.exists()
    finally:
        reached.touch()
        watching.join()
        cluster.shutdown()


def test_a_head_node_that_is_lost_is_one_error_and_a_new_cluster_goes_on(expected: dict[str, bytes]) -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})

    def wait(model: DistributionalPPO) -> float:
        time.sleep(600 if model.num_timesteps == 128 else 0)
        return mean_episode_return(model)

    def lose(_: object) -> None:
        cluster.head_node.kill_gcs_server(check_alive=False)

    try:
        population = build("population", executor=RayExecutor(address=cluster.address), performance=wait)
        with pytest.raises(WorkerError, match=r"the head node of the Ray cluster at .* any more .*refused.*ray start"):
            population.train(UPDATES, lose)
    finally:
        cluster.shutdown()
    build("population").train(UPDATES)
    assert contents("population") == expected


def test_what_has_ended_comes_before_the_error_of_a_lost_head(monkeypatch: pytest.MonkeyPatch) -> None:
    with RayExecutor(2) as executor:

        def refuse_once_one_has_ended(_: str) -> None:
            if len(executor._running) == 1:
                raise ConnectionRefusedError("nobody listens")

        monkeypatch.setattr(ray_executor_module, "_check_port", refuse_once_one_has_ended)
        monkeypatch.setattr(ray_executor_module, "HEAD_TIMEOUT", 0.0)
        results = executor.map(answer, ["sleep", "a"])
        assert next(results) == ("a", "a")
        with pytest.raises(WorkerError, match=r"does not answer any more \(nobody listens\).*after the last turn"):
            next(results)


def test_a_head_is_lost_if_it_has_not_answered_for_half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now, answers = 0.0, False

    def check_for_five_seconds(_: str) -> None:
        nonlocal now
        if not answers:
            now += 5.0
            raise TimeoutError("timed out")

    monkeypatch.setattr(ray_executor_module, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(ray_executor_module, "_check_port", check_for_five_seconds)
    executor = RayExecutor(1)
    assert [executor._loss_of_the_head() for _ in range(5)] == [None] * 5
    answers = True
    assert executor._loss_of_the_head() is None
    answers = False
    assert [executor._loss_of_the_head() for _ in range(5)] == [None] * 5
    assert now == 50.0
    assert isinstance(executor._loss_of_the_head(), WorkerError)


def test_looks_without_an_answer_are_added_up_over_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def refuse(_: str) -> None:
        raise ConnectionRefusedError("nobody listens")

    with RayExecutor(1) as executor:
        monkeypatch.setattr(ray_executor_module, "_check_port", refuse)
        monkeypatch.setattr(ray_executor_module, "time", SimpleNamespace(monotonic=lambda: now))
        assert list(executor.map(answer, ["a"])) == [("a", "a")]
        now = 100.0
        with pytest.raises(WorkerError, match="does not answer any more"):
            list(executor.map(answer, ["take more than one look"]))


def test_the_head_is_not_asked_through_the_client_of_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    # A head node would start the server itself, but at one of the same ports in each cluster of this machine.
    where = ["--address", cluster.address, "--host", "127.0.0.1", "--port", str(port), "--mode", "specific-server"]
    server = subprocess.Popen([sys.executable, "-m", "ray.util.client.server", *where])
    monkeypatch.setenv("RAY_ADDRESS", f"ray://127.0.0.1:{port}")
    asked: list[str] = []
    try:
        with RayExecutor(address="auto") as executor:
            monkeypatch.setattr(ray_executor_module, "_check_port", asked.append)
            assert sorted(executor.map(answer, ["a", "b", "c"])) == [("a", "a"), ("b", "b"), ("c", "c")]
    finally:
        server.kill()
        server.wait()
        cluster.shutdown()
    assert set(asked) == {""}


def test_errors_warnings_and_dead_workers_are_those_of_processes() -> None:
    with RayExecutor(1) as executor:
        assert list(executor.map(answer, ["a", "b"])) == [("a", "a"), ("b", "b")]
        with pytest.warns(ResumeWarning, match="the answer is old"):
            list(executor.map(answer, ["warn"]))
        with pytest.raises(SettingError, match="gamma=2 cannot be used") as caught:
            list(executor.map(answer, ["fail"]))
        assert caught.value.setting == "gamma"
        assert "in answer\n" in caught.value.__notes__[0]
        with pytest.raises(
            WorkerError, match=r"die: 4 worker processes died \(WorkerCrashedError, .*said last: Worker"
        ):
            list(executor.map(answer, ["die"]))


def test_a_task_that_the_memory_monitor_ends_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.0001")
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "100")
    with (
        RayExecutor(1) as executor,
        pytest.raises(WorkerError, match=r"sleep: 4 worker processes died \(OutOfMemoryError, .*give fewer jobs"),
    ):
        list(executor.map(answer, ["sleep"]))


def test_a_task_that_does_not_fit_into_the_object_store_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def remote(self, _: bytes) -> None:
            raise ray.exceptions.ObjectStoreFullError

    with RayExecutor(1) as executor:
        monkeypatch.setattr(executor, "_remote", Full())
        with pytest.raises(WorkerError, match=r"a: Ray cannot start it .ObjectStoreFullError"):
            list(executor.map(answer, ["a"]))


def test_the_next_map_gets_nothing_of_one_that_raised_or_was_left() -> None:
    with RayExecutor(2) as executor:
        with pytest.raises(SettingError, match="gamma=2"):
            list(executor.map(answer, ["sleep", "fail"]))
        assert sorted(executor.map(answer, ["b", "c"])) == [("b", "b"), ("c", "c")]
        left = executor.map(answer, ["sleep", "a", "sleep"])
        assert next(left) == ("a", "a")
        assert sorted(executor.map(answer, ["b", "c"])) == [("b", "b"), ("c", "c")]
        with pytest.raises(CallOrderError, match="begun another map"):
            next(left)


def test_what_has_ended_comes_before_an_error() -> None:
    def one_and_then_an_error() -> Iterator[str]:
        yield "a"
        raise ZeroDivisionError("no second task")

    with RayExecutor(1) as executor:
        results = executor.map(answer, one_and_then_an_error())
        assert next(results) == ("a", "a")
        with pytest.raises(ZeroDivisionError, match="no second task"):
            next(results)


def test_no_process_is_left_behind_by_an_interrupt(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.population_on_workers", str(tmp_path), "ray"]
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as parent:
        wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == 3 or parent.poll() is not None)
        processes = [int(path.stem) for path in tmp_path.glob("*.pid")]
        assert [is_running(process) for process in processes] == [True] * 3
        os.killpg(parent.pid, signal.SIGINT)
        parent.wait()
    wait_until(lambda: not any(is_running(process) for process in processes))


def test_ctrl_c_while_ray_starts_leaves_no_process(tmp_path: Path) -> None:
    script = """
import os, signal
import ray
from ray._private import services
from rlcore.pbt.ray_executor import RayExecutor

def interrupt_once_it_is_there(*arguments, **options):
    made = start_raylet(*arguments, **options)
    os.killpg(0, signal.SIGINT)  # as a terminal does
    print("goes on", flush=True)  # as Ray would leave processes here, but not each time
    return made

start_raylet = services.start_raylet
services.start_raylet = interrupt_once_it_is_there
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    with RayExecutor(1):
        print("not interrupted")
except KeyboardInterrupt:
    print("interrupted", ray.is_initialized())
"""
    variables = os.environ | {"TEST_MARK": str(tmp_path)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=variables, start_new_session=True)
    assert done.stdout == "goes on\ninterrupted False\n"
    wait_until(lambda: commands_of(f"TEST_MARK={tmp_path}") == [], seconds=30)  # Ray itself ends them after a minute


def test_an_address_that_ray_refuses_is_one_error() -> None:
    with (
        pytest.raises(WorkerError, match=r"Ray cannot be reached at address='nonsense' .*ray start"),
        RayExecutor(1, "nonsense"),
    ):
        pass


@pytest.mark.parametrize("is_named_by", ["address", "variable"])
def test_a_closed_port_is_one_error(is_named_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        if is_named_by == "variable":
            monkeypatch.setenv("RAY_ADDRESS", address)
        with (
            pytest.raises(WorkerError, match=f"at address='{address}' .*Connection refused.*ray start"),
            RayExecutor(1, "auto" if is_named_by == "variable" else address),
        ):
            pass


def test_a_cluster_that_is_connected_already_is_used_and_stays() -> None:
    ray.init(address="local", num_cpus=1, include_dashboard=False, logging_level="warning")
    node = ray.get_runtime_context().get_node_id()
    with RayExecutor() as executor:
        assert list(executor.map(answer, ["a", "b"])) == [("a", "a"), ("b", "b")]
    assert ray.is_initialized()
    assert ray.get_runtime_context().get_node_id() == node


def test_the_options_make_an_executor_on_ray() -> None:
    made = make_executor(ExecutorKind.ray, 3, "auto")
    assert isinstance(made, RayExecutor)
    assert (made.jobs, made.address) == (3, "auto")
