"""Whatever an action does, its caller gets a result or a reason, and is left as it was."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlverify.checks.engine.isolation import Failed, descendants, in_process

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="finds processes by /proc")
FOREVER = 120.0
LIMIT = 30.0
"""Seconds that no action here takes."""
SHORT = 0.3
BEFORE: set[int] = set()
"""Processes below this one before a test."""


@pytest.fixture(autouse=True)
def _processes_before() -> None:
    BEFORE.clear()
    BEFORE.update(descendants(os.getpid()))


def sleeping_fork() -> int:
    child = os.fork()
    if child == 0:
        time.sleep(FOREVER)
        os._exit(0)
    return child


def reason(action: Callable[[], object], seconds: float = LIMIT) -> str:
    found = in_process(action, seconds)
    assert isinstance(found, Failed)
    return found.reason


def raises() -> None:
    raise ValueError("no such\n  action")


def interrupts() -> None:
    raise KeyboardInterrupt("inside")


class OddError(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)
        self.second = second


class RaisesOnLoad:
    def __reduce__(self) -> Any:
        return int, ("no number",)


def raises_odd() -> None:
    raise OddError("odd", "error")


def is_gone(process: int) -> bool:
    """Whether a process has ended, within some seconds; one that its new parent has not collected yet counts."""
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.01)
    return False


def test_the_result_comes_back() -> None:
    assert in_process(lambda: {"a": np.arange(3).tolist(), "pid": os.getpid()}, LIMIT) != {"pid": os.getpid()}
    assert in_process(lambda: None, LIMIT) is None


def test_fifty_megabytes_come_back() -> None:
    found = in_process(lambda: bytes(50_000_000), LIMIT)
    assert isinstance(found, bytes)
    assert len(found) == 50_000_000


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (raises, "ValueError: no such action (checks/test_isolation.py:"),
        (raises_odd, "OddError: odd (checks/test_isolation.py:"),
        (interrupts, "KeyboardInterrupt: inside"),
        (lambda: sys.exit("over"), "SystemExit: over"),
        (lambda: sys.exit(0), "SystemExit: 0"),
        (lambda: os._exit(0), "its process ended with exit code 0"),
        (lambda: os._exit(3), "its process ended with exit code 3"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "its process was killed by signal 9"),
        (lambda: os.kill(os.getpid(), signal.SIGUSR1), "its process was killed by signal 10"),
        (lambda: lambda: 1, "what it returned cannot be sent: "),
        (threading.Lock, "what it returned cannot be sent: TypeError: cannot pickle"),
        (RaisesOnLoad, "what it returned cannot be read: ValueError: invalid literal for int()"),
    ],
    ids=lambda value: value.split(":")[0] if isinstance(value, str) else "",
)
def test_the_reason_is_given(action: Callable[[], object], expected: str) -> None:
    assert reason(action).startswith(expected)


@pytest.mark.parametrize(
    "action",
    [
        lambda: time.sleep(FOREVER),
        lambda: threading.Event().wait(),
        lambda: ctypes.CDLL(None).sleep(int(FOREVER)),
        lambda: os.kill(os.getpid(), signal.SIGSTOP),
        lambda: [signal.signal(signal.SIGTERM, signal.SIG_IGN), time.sleep(FOREVER)],
    ],
    ids=["sleep", "wait", "C code", "stopped", "ignores signals"],
)
def test_an_action_that_hangs_is_killed(action: Callable[[], object]) -> None:
    assert reason(action, SHORT) == f"did not end within {SHORT:g} seconds"
    assert no_child_is_left()


def test_an_endless_loop_is_killed() -> None:
    def action() -> None:
        while True:
            pass

    assert reason(action, SHORT) == "did not end within 0.3 seconds"


def no_child_is_left() -> bool:
    return not [each for each in set(descendants(os.getpid())) - BEFORE if not is_gone(each)] and not zombies()


def zombies() -> list[int]:
    """Children of this process that ended and were not collected."""
    found = []
    for process in set(descendants(os.getpid())) - BEFORE:
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[:2] == ["Z", str(os.getpid())]:
                found.append(process)
        except FileNotFoundError:
            continue
    return found


def leaves_a_fork() -> int:
    return sleeping_fork()


def leaves_processes_of_multiprocessing() -> int:
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(FOREVER,))
    process.start()
    assert process.pid is not None
    return process.pid


def leaves_a_session() -> int:
    return subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({FOREVER})"], start_new_session=True).pid


def leaves_a_daemon() -> int:
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.write(writing, str(sleeping_fork()).encode())
        os._exit(0)
    return int(os.read(reading, 20))


def leaves_one_that_ignores_signals() -> int:
    child = os.fork()
    if child == 0:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        time.sleep(FOREVER)
    return child


LEAVING = [
    leaves_a_fork,
    leaves_processes_of_multiprocessing,
    leaves_a_session,
    leaves_a_daemon,
    leaves_one_that_ignores_signals,
]


@LINUX
@pytest.mark.parametrize("action", LEAVING)
def test_no_process_is_left(action: Callable[[], int]) -> None:
    process = in_process(action, LIMIT)
    assert isinstance(process, int)
    assert is_gone(process)
    assert no_child_is_left()


@LINUX
@pytest.mark.parametrize("action", [leaves_a_session, leaves_a_daemon])
def test_no_process_is_left_after_a_hang(action: Callable[[], int], tmp_path: Path) -> None:
    def hangs() -> None:
        (tmp_path / "process").write_text(str(action()))
        time.sleep(FOREVER)

    assert reason(hangs, 1.5).startswith("did not end")
    assert is_gone(int((tmp_path / "process").read_text()))
    assert no_child_is_left()


@LINUX
@pytest.mark.parametrize("end", [lambda: os._exit(4), lambda: os.kill(os.getpid(), 9)], ids=["exit", "kill"])
def test_a_child_that_keeps_the_pipe_open_delays_nothing(end: Callable[[], None], tmp_path: Path) -> None:
    def action() -> None:
        (tmp_path / "process").write_text(str(sleeping_fork()))
        end()

    started = time.monotonic()
    assert reason(action, FOREVER) in ("its process ended with exit code 4", "its process was killed by signal 9")
    assert time.monotonic() - started < FOREVER / 2
    assert is_gone(int((tmp_path / "process").read_text()))


def test_a_fork_that_returns_too_sends_nothing() -> None:
    def action() -> str:
        child = os.fork()
        if child == 0:
            return "the fork"
        os.waitpid(child, 0)
        return "the action"

    assert in_process(action, LIMIT) == "the action"


def test_it_reads_nothing_of_what_the_caller_would_read() -> None:
    code = (
        "import os\n"
        "from rlverify.checks.engine.isolation import in_process\n"
        "print([in_process(lambda: os.read(0, 10), 30), os.read(0, 10)])\n"
    )
    found = subprocess.run([sys.executable, "-c", code], input="mine", capture_output=True, text=True, check=True)
    assert found.stdout == "[b'', b'mine']\n"


def test_a_thread_that_goes_on_delays_nothing() -> None:
    def action() -> int:
        threading.Thread(target=time.sleep, args=(FOREVER,)).start()
        return 1

    assert in_process(action, LIMIT) == 1


def test_what_it_prints_goes_to_the_error_output() -> None:
    code = (
        "import os, sys\n"
        "from rlverify.checks.engine.isolation import in_process\n"
        "print('before')\n"
        "in_process(lambda: [print('printed'), sys.stdout.write('written'), os.system('echo from a shell')], 30)\n"
        "print('after')\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "before\nafter\n"
    assert all(text in found.stderr for text in ("printed", "written", "from a shell"))


def test_the_caller_is_as_it_was() -> None:
    def action() -> None:
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        os.chdir("/")
        os.environ["RLVERIFY_TEST"] = "1"
        os.umask(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.path.insert(0, "elsewhere")
        torch.set_num_threads(3)

    def state() -> tuple[object, ...]:
        handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)]
        generators = random.getstate(), np.random.get_state(legacy=False)["state"]["key"].tobytes()
        mask = os.umask(0o22)
        os.umask(mask)
        return (
            generators, torch.get_rng_state().tolist(), Path.cwd(), dict(os.environ), handlers, list(sys.path), mask,
            signal.pthread_sigmask(signal.SIG_BLOCK, []), sys.stdout, torch.get_num_threads(), threading.active_count(),
            len(list(Path("/proc/self/fd").iterdir())) if sys.platform == "linux" else 0,
        )  # fmt: skip

    before = state()
    assert in_process(action, LIMIT) is None
    assert reason(raises)
    assert reason(lambda: time.sleep(FOREVER), SHORT)
    assert state() == before


def test_the_handlers_of_the_caller_do_not_get_its_signals() -> None:
    got: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _frame: got.append(number))
    try:
        assert in_process(lambda: signal.alarm(0), LIMIT) == 0
    finally:
        signal.signal(signal.SIGALRM, before)
    assert got == []


def test_a_caller_that_ignores_the_end_of_children_gets_its_result() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert in_process(lambda: 5, LIMIT) == 5
        assert reason(raises).startswith("ValueError")
        assert reason(lambda: os._exit(3)).startswith("its process ended")
    finally:
        signal.signal(signal.SIGCHLD, before)


INTERRUPTED = """
import os, signal, sys, threading, time
from pathlib import Path
from rlverify.checks.engine.isolation import in_process
signal.signal(signal.SIGINT, signal.default_int_handler)  # which jobs in the background ignore
def action():
    Path(sys.argv[1]).write_text(str(os.getpid()))
    time.sleep(120)
try:
    in_process(action, 120)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@LINUX
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_child_ends_with_its_caller(number: signal.Signals, tmp_path: Path) -> None:
    note = tmp_path / "process"
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED, note], stdout=subprocess.PIPE, text=True) as caller:
        until = time.monotonic() + LIMIT
        while not (note.exists() and note.read_text()) and time.monotonic() < until:
            time.sleep(0.01)
        caller.send_signal(number)
        output, _ = caller.communicate(timeout=LIMIT)
    assert output == ("interrupted\n" if number is signal.SIGINT else "")
    assert is_gone(int(note.read_text()))


def test_actions_may_run_in_threads_at_the_same_time() -> None:
    found: list[object] = []
    threads = [threading.Thread(target=lambda n=n: found.append(in_process(lambda: n, LIMIT))) for n in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(map(str, found)) == ["0", "1", "2", "3"]


def test_an_action_may_run_another() -> None:
    assert in_process(lambda: in_process(lambda: 7, LIMIT), LIMIT) == 7
