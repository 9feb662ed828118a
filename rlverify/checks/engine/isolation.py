"""Runs an action of a check in a process of its own, so that everything that a subject starts ends with it.

The process is a fork, because factories are often lambdas, which cannot be sent to another process. It leads a process
group of its own. When the action has ended, that group and all other processes below it are killed: no child of the
subject is left behind. Systems without fork (Windows) run the action in this process.
"""

from __future__ import annotations

import ctypes
import math
import multiprocessing.util
import os
import pickle
import signal
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Final, TypeVar

from rlverify.records.attempts import Crash, attempt
from rlverify.records.process import SIGNALS, held_back, pin_threads

Result = TypeVar("Result")

_FORKING: Final = threading.Lock()
"""Since the filters of warnings are those of all threads."""
INTERVAL: Final = 0.05
"""Seconds after which a silent process is asked whether it has ended, since its children can keep the pipe open."""


@dataclass(frozen=True)
class Failed:
    """An action that did not return.

    :param reason: one line: the error with its place, the exit code, the signal, or the time limit
    :param trace: of an error, the calls that led to it outside of this package
    """

    reason: str
    trace: str = ""


def in_process(action: Callable[[], Result], seconds: float) -> Result | Failed:
    """What the action returns, run in a process of its own.

    What it prints goes to the error output, and it reads an empty input. What it returns has to be picklable.

    :param seconds: after which the process and all that it started are killed
    """
    if not hasattr(os, "fork"):
        return _outcome(action)
    server = Server(action)
    try:
        found: Result | Failed = server.ask(seconds=seconds)
        return found
    finally:
        server.end()


class Server:
    """A process that answers requests until it is ended; what it keeps between them never reaches the caller.

    :param answer: called in the process with the arguments of `ask`, which have to be picklable, as its answer has
    """

    def __init__(self, answer: Callable[..., Any]) -> None:
        requests, self._writing = Pipe(duplex=False)
        self._child, self._reading = _started(lambda writing: self._serve(answer, requests, writing))
        requests.close()
        self.end = weakref.finalize(self, _end_server, self._child, os.getpid(), self._writing, self._reading)

    def _serve(self, answer: Callable[..., Any], requests: Connection, writing: Connection) -> None:
        """Be the process."""
        own = os.getpid()
        self._writing.close()
        _become_child()
        while True:
            request = requests.recv()
            content = _pickled(_outcome(lambda request=request: answer(*request)))  # type: ignore[misc]
            if os.getpid() != own:  # the action forked, and this is its child
                return
            attempt(sys.stderr.flush)
            writing.send_bytes(content)

    def ask(self, *request: Any, seconds: float = math.inf) -> Any:
        """The answer, or `Failed` after which the process has ended."""
        content, in_time, status = b"", True, 0
        try:
            with suppress(OSError):  # it has ended
                self._writing.send(request)
            content, in_time = _read(self._reading, self._child, time.monotonic() + seconds)
        finally:
            if not content:
                status = self.end() or 0
        return _received(content, in_time, seconds, status)


def _end_server(child: int, owner: int, *pipes: Connection) -> int:
    if os.getpid() != owner:  # a fork of the process that it belongs to
        return 0
    status = _ended(child)
    for each in pipes:  # not before, as the process would end and leave what it started
        each.close()
    return status


def _started(be_child: Callable[[Connection], object]) -> tuple[int, Connection]:
    """A fork that is the child of a pipe, and where to read what it writes."""
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = Pipe(duplex=False)
    with held_back():  # until the process is known to who has to end it
        child = _forked()
        if child == 0:
            try:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
                reading.close()
                be_child(writing)
            finally:  # nothing may return into the parent's code
                os._exit(1)
    writing.close()
    return child, reading


def _received(content: bytes, in_time: bool, seconds: float, status: int) -> Any:
    """What a process sent, or why it did not."""
    if content:
        found = attempt(lambda: pickle.loads(content))  # noqa: S301  # from our own child
        return Failed(f"what it returned cannot be read: {found.line}") if isinstance(found, Crash) else found
    if not in_time:
        return Failed(f"did not end within {seconds:g} seconds")
    code = os.waitstatus_to_exitcode(status)
    return Failed(f"its process {f'was killed by signal {-code}' if code < 0 else f'ended with exit code {code}'}")


def is_copied_by_fork() -> bool:
    """Whether a fork of this process has all that it has.

    Other processes, threads and devices are not copied. Two forks share connections and shared memory.
    """
    # Elsewhere it is not known which processes a process has started.
    can_fork = sys.platform == "linux" and hasattr(os, "fork")
    return (
        can_fork
        and threading.active_count() == 1
        and not _has_device()
        and not descendants(os.getpid())
        and _shared_by_forks() <= INHERITED
    )


INHERITED: Final[set[str]] = set()
"""Connections and shared memory that this process had at its start."""


def _shared_by_forks() -> set[str]:
    """The sockets of this process, and the memory that it can write and that others see."""
    found: set[str] = set()
    with suppress(OSError):
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
        found = {line for line in lines if line.split(maxsplit=2)[1] == "rw-s"}
        for each in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                found.add(str(each.readlink()))
    return {each for each in found if not each.startswith(("/", "pipe:", "anon_inode:"))}


def _has_device() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """End this process if the block takes longer; only where `is_copied_by_fork` can be true."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _forked() -> int:
    """Fork; Python 3.12 warns of threads, of which those of libraries wait for work and hold no lock."""
    with _FORKING, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _ended(child: int) -> int:
    """Kill a process with all that it started."""
    ended = end_descendants(child)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    status = 0
    with suppress(ChildProcessError):
        status = os.waitpid(child, 0)[1]
    for each in ended:  # of which this process can be the parent now
        with suppress(ChildProcessError):
            os.waitpid(each, os.WNOHANG)
    return status


def _become_child() -> None:
    os.setpgid(0, 0)
    adopt_orphans()
    _separate_streams()
    pin_threads()
    _fork_workers()
    INHERITED.update(_shared_by_forks())


def _fork_workers() -> None:
    """From now on, processes that a fork server would start are forks: each such server has to import everything."""
    contexts = multiprocessing.get_context

    def context(method: str | None = None) -> Any:
        is_server = (method or multiprocessing.get_start_method()) == "forkserver"
        if not is_server or sys.platform != "linux" or threading.active_count() > 1 or _has_device():
            return contexts(method)
        multiprocessing.util.register_after_fork(_seed_as_new, _seed_as_new)
        return contexts("fork")

    multiprocessing.get_context = context


def _seed_as_new(_own: object) -> None:
    """Give NumPy's global generator the state that it has in a new process: another one each time."""
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


def _separate_streams() -> None:
    """Print to the error output, and read nothing of what the caller would read."""
    sys.stdout = sys.stderr
    with suppress(OSError):
        os.dup2(2, 1)
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


def _outcome(action: Callable[[], Result]) -> Result | Failed:
    try:
        found = attempt(action)
    except (KeyboardInterrupt, GeneratorExit) as error:  # which are no crash
        return Failed(f"{type(error).__name__}: {error}")
    return Failed(found.line, found.own_calls) if isinstance(found, Crash) else found


def _pickled(found: object) -> bytes:
    content = attempt(lambda: pickle.dumps(found))
    if isinstance(content, bytes):
        return content
    return pickle.dumps(Failed(f"what it returned cannot be sent: {content.line}"))


def _read(reading: Connection, child: int, end: float) -> tuple[bytes, bool]:
    """What the child sent, and whether it came before ``end``; empty if the child ended without sending."""
    while not reading.poll(max(0.0, min(INTERVAL, end - time.monotonic()))):
        if time.monotonic() >= end:
            return b"", False
        if _has_ended(child) and not reading.poll():
            return b"", True
    try:
        return reading.recv_bytes(), True
    except EOFError:
        return b"", True


def _has_ended(child: int) -> bool:
    """Whether a process has ended; it can still be waited for."""
    try:
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


DEATH_SIGNAL: Final = 1
CHILD_SUBREAPER: Final = 36
"""Options of ``prctl``."""


def adopt_orphans() -> None:
    """Make this process the parent of the orphans below it, and let it be killed if its own parent ends."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            prctl = ctypes.CDLL(None).prctl
            prctl(CHILD_SUBREAPER, 1, 0, 0, 0)
            prctl(DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)


def end_descendants(root: int) -> set[int]:
    """Kill all processes below one, which stays, and say which."""
    ended: set[int] = set()
    while new := {*descendants(root)} - ended:
        for process in new:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        ended |= new
    return ended


def descendants(root: int) -> list[int]:
    """The processes below one, by what Linux says about every process; empty elsewhere."""
    below: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            text = (folder / "stat").read_text(errors="replace")
            below.setdefault(int(text.rpartition(")")[2].split()[1]), []).append(int(folder.name))
    found = list(below.get(root, ()))
    for process in found:
        found += below.get(process, ())
    return found
