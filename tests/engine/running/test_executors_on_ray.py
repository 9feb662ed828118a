"""Tasks on Ray give the results of worker processes, also after a worker, an actor or a node was lost."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="needs `pip install 'rlverify[ray]'`")

from troubleproject.tasks import act

from rlverify.project.content import Project
from rlverify.records.errors import HarnessError, UsageError
from rlverify.running.executors import Ended, ProcessExecutor
from rlverify.running.ray_executor import RayExecutor
from rlverify.running.runner import how_it_died, run_claims
from tests.support.repository_copy import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),  # sockets of Ray's own processes
]


@pytest.fixture(scope="module")
def executor() -> Iterator[RayExecutor]:
    """On a cluster of this machine."""
    made = RayExecutor(2, "")
    yield made
    made.close()


def first_words(ended: list[Ended[str]]) -> list[str]:
    return [str(each.result).split()[0] for each in ended]


def test_results_are_in_the_order_of_the_tasks_and_each_is_noted_once(executor: RayExecutor) -> None:
    noted: list[str] = []
    ended = executor.map(act, ["a", "b", "c", "d"], note=lambda task, _: noted.append(task))
    assert (first_words(ended), sorted(noted)) == (["a", "b", "c", "d"], ["a", "b", "c", "d"])
    assert str(os.getpid()) not in {str(each.result).split()[1] for each in ended}
    assert executor.map(act, []) == []


@pytest.mark.parametrize(("task", "code"), [("exit", 0), ("kill", -signal.SIGKILL), ("raise", 1)])
def test_a_task_whose_process_died_has_its_exit_code_and_the_others_go_on(
    task: str, code: int, executor: RayExecutor
) -> None:
    first, died, last = executor.map(act, ["a", task, "b"])
    assert (died.result, died.exit_code, died.reason) == (None, code, "")
    assert first_words([first, last]) == ["a", "b"]
    (here,) = ProcessExecutor(1).map(act, [task])
    assert how_it_died(died, 60.0) == how_it_died(here, 60.0)


def kill_grandparent(folder: str, task: str) -> str:
    """Kill the process of Ray above the worker, at the first two times for ``twice`` and every time for ``always``."""
    marks = Path(folder)
    tries = len(list(marks.glob(f"{task}-*")))
    (marks / f"{task}-{tries}").touch()
    if (task == "twice" and tries < 2) or task == "always":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    return task


def test_a_lost_process_of_ray_costs_a_try_and_three_are_reported(tmp_path: Path, executor: RayExecutor) -> None:
    noted: list[str] = []
    tasks = ["a", "twice", "always", "b"]
    function = partial(kill_grandparent, str(tmp_path))
    ended = executor.map(function, tasks, note=lambda task, _: noted.append(task))
    assert [each.result for each in ended] == ["a", "twice", None, "b"]
    assert sorted(noted) == sorted(tasks)
    assert ended[2].reason.startswith("Ray lost this run 3 times; the last time: ")
    assert how_it_died(ended[2], 60.0) == ended[2].reason
    assert len(list(tmp_path.glob("always-*"))) == 3


@pytest.mark.parametrize("name", ["toyproject", "troubleproject"])
def test_runs_of_claims_are_those_of_processes(
    name: str, executor: RayExecutor, request: pytest.FixtureRequest
) -> None:
    project: Project = request.getfixturevalue(name)

    def runs(where: Any) -> list[tuple[object, ...]]:
        found = run_claims(project, project.claims, executor=where, on_progress=lambda *_: None, limit=2.0)
        return [(key, run.variant, run.seed, run.observations, run.error) for key in found for run in found[key]]

    assert runs(executor) == runs(ProcessExecutor(2))


def environment(temporary: Path | None = None) -> dict[str, str]:
    """Variables for a process that imports the modules of these tests.

    :param temporary: the folder for temporary files, except those of Ray
    """
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(__file__).parents[1] / "projects")])}
    return variables if temporary is None else {**variables, "TMPDIR": str(temporary), "RAY_TMPDIR": "/tmp"}


def in_a_process(script: str, limit: float = 400, temporary: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script]
    variables = environment(temporary)
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit, env=variables)


class NotThere:
    """Can be pickled here, and on no worker."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return __import__, ("a_module_that_is_not_there",)


def test_a_task_that_a_worker_cannot_read_is_one_clear_error(executor: RayExecutor) -> None:
    with pytest.raises(HarnessError, match=r"could not run a task: .*a_module_that_is_not_there.*nodes need the same"):
        executor.map(act, [NotThere()])


def test_what_note_raises_ends_the_map_and_the_executor_can_be_used_again(executor: RayExecutor) -> None:
    def note(*_: object) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        executor.map(act, ["a"] * 50, note=note)
    assert first_words(executor.map(act, ["b"])) == ["b"]


def test_a_cluster_that_is_not_there_is_one_clear_error() -> None:
    script = "from rlverify.running.ray_executor import RayExecutor; RayExecutor(1, 'ray://127.0.0.1:1')"
    done = in_a_process(script)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"{UsageError.__module__}.UsageError: no Ray cluster could be used at ray://127.0.0.1:1: ")
    assert "start one with `ray start --head`" in last


def test_a_closed_port_is_one_clear_error_within_seconds() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        done = in_a_process(f"from rlverify.running.ray_executor import RayExecutor; RayExecutor(1, {address!r})", 30)
    last = done.stderr.strip().splitlines()[-1]
    assert f"UsageError: no Ray cluster could be used at {address}: " in last
    assert "Connection refused" in last
    assert "start one with `ray start --head`" in last


def nap(number: int) -> int:
    time.sleep(0.2)
    return number


def test_more_jobs_than_cpus_end_all_tasks() -> None:
    script = """
import ray
from rlverify.running.ray_executor import RayExecutor
from tests.engine.running.test_executors_on_ray import nap
ray.init("local", num_cpus=1, include_dashboard=False)
print([each.result for each in RayExecutor(4, '').map(nap, range(3))])
"""
    done = in_a_process(script, 90)
    assert "[0, 1, 2]" in done.stdout.splitlines(), done.stderr


def nap_until_removed(folder: str, number: int) -> tuple[int, str]:
    """Take longer than Ray needs to notice that a node is lost."""
    node = os.environ.get("RLVERIFY_TEST_NODE", "")
    (Path(folder) / f"started-{number}-{node}").touch()
    time.sleep(120 if node else 6)
    return number, node


def test_a_lost_node_loses_no_task(tmp_path: Path) -> None:
    script = f"""
import threading, time
from functools import partial
from pathlib import Path
from ray.cluster_utils import Cluster
from rlverify.running.ray_executor import RayExecutor
from tests.engine.running.test_executors_on_ray import nap_until_removed
folder = Path({str(tmp_path)!r})
cluster = Cluster(initialize_head=True, head_node_args={{"num_cpus": 1, "include_dashboard": False}})
second = cluster.add_node(num_cpus=1, env_vars={{"RLVERIFY_TEST_NODE": "second"}})
cluster.wait_for_nodes()
def remove():
    while not list(folder.glob("started-*-second*")):
        time.sleep(0.1)
    cluster.remove_node(second, allow_graceful=False)
threading.Thread(target=remove, daemon=True).start()
executor = RayExecutor(2, cluster.address)
noted = []
ended = executor.map(partial(nap_until_removed, str(folder)), range(4), note=lambda task, _: noted.append(task))
print([each.result[0] for each in ended], sorted(noted), {{each.result[1] for each in ended}})
executor.close()
cluster.shutdown()
"""
    done = in_a_process(script, 150)
    assert "[0, 1, 2, 3] [0, 1, 2, 3] {''}" in done.stdout.splitlines(), done.stderr
    assert list(tmp_path.glob("started-*-second"))


def test_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    marks, temporary = tmp_path / "marks", tmp_path / "temporary"
    marks.mkdir()
    temporary.mkdir()
    script = f"""
from functools import partial
from rlverify.running.ray_executor import RayExecutor
from tests.engine.running.test_executors_on_ray import write_pid_and_sleep
executor = RayExecutor(2, '')
try:
    executor.map(partial(write_pid_and_sleep, {str(marks)!r}), range(4))
except KeyboardInterrupt:
    executor.close()
    print("interrupted")
"""
    variables = environment(temporary)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=variables)
    until(lambda: len(list(marks.iterdir())) == 2)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert output == "interrupted\n"
    pids = [int(pid) for file in marks.iterdir() for pid in json.loads(file.read_text())]
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def write_pid_and_sleep(folder: str, number: int) -> None:
    """Write the pids of this worker and of the process of Ray above it."""
    path = Path(folder) / str(number)
    path.with_suffix(".pending").write_text(json.dumps([os.getpid(), os.getppid()]))
    path.with_suffix(".pending").rename(path)
    time.sleep(120)


def until(condition: Callable[[], bool]) -> None:
    ended = threading.Event()
    for _ in range(1200):
        if condition():
            return
        ended.wait(0.1)
    pytest.fail("waited for two minutes")
