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
import select
import signal
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from rlverify.records.attempts import Crash, attempt
from rlverify.records.process import pin_threads

Result = TypeVar("Result")

CHUNK: Final = 1 << 20
"""Bytes that are read at once."""
HEADER: Final = 8
"""Bytes that hold the length of what follows."""
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
    child, reading = _started(lambda writing: _run_and_exit(action, writing))
    content = b""
    try:
        content, in_time = _read(reading, child, time.monotonic() + seconds)
    finally:
        status = _ended(child, is_done=bool(content))
        os.close(reading)
    found: Result | Failed = _received(content, in_time, seconds, status)
    return found


class Server:
    """A process that answers requests until it is ended; what it keeps between them never reaches the caller.

    :param answer: called in the process with the arguments of `ask`, which have to be picklable, as its answer has
    """

    def __init__(self, answer: Callable[..., Any]) -> None:
        requests, self._writing = os.pipe()
        self.child, self._reading = _started(lambda writing: self._serve(answer, requests, writing))
        os.close(requests)
        self.end = weakref.finalize(self, _end_server, self.child, os.getpid(), (self._writing, self._reading))

    def _serve(self, answer: Callable[..., Any], requests: int, writing: int) -> None:
        """Be the process."""
        os.close(self._writing)
        _become_child()
        with os.fdopen(requests, "rb") as file:
            while True:
                request = pickle.load(file)  # noqa: S301  # from our own parent
                _send(writing, _framed(_pickled(_outcome(lambda request=request: answer(*request)))))  # type: ignore[misc]

    def ask(self, *request: Any, seconds: float = math.inf) -> Any:
        """The answer, or `Failed` after which the process has ended."""
        content, in_time, status = b"", True, 0
        try:
            _send(self._writing, pickle.dumps(request))
            content, in_time = _read(self._reading, self.child, time.monotonic() + seconds)
        finally:
            if not content:
                status = self.end() or 0
        return _received(content, in_time, seconds, status)


def _end_server(child: int, owner: int, pipes: Sequence[int]) -> int:
    if os.getpid() != owner:  # a fork of the process that it belongs to
        return 0
    for each in pipes:
        os.close(each)
    return _ended(child, is_done=False)


def _started(be_child: Callable[[int], object]) -> tuple[int, int]:
    """A fork that is the child of a pipe, and where to read what it writes."""
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    with _no_interrupt():  # until the process is known to who has to end it
        child = _forked()
        if child == 0:
            try:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
                os.close(reading)
                be_child(writing)
            finally:  # nothing may return into the parent's code
                os._exit(1)
    os.close(writing)
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
    can_fork = sys.platform == "linux"  # elsewhere it is not known which processes a process has started
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


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Ctrl-C has its effect after the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _forked() -> int:
    """Fork; Python 3.12 warns of threads, of which those of libraries wait for work and hold no lock."""
    with _FORKING, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _ended(child: int, *, is_done: bool) -> int:
    """Kill a process with all that it started."""
    if not is_done:
        end_descendants(child)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    with suppress(ChildProcessError):
        return os.waitpid(child, 0)[1]
    return 0


def _run_and_exit(action: Callable[[], object], writing: int) -> None:
    """Be the child: run, send, and end without the cleanup of the parent's objects."""
    own, content = os.getpid(), b""
    try:
        _become_child()
        content = _pickled(_outcome(action))
    finally:  # nothing may return into the parent's code
        error = sys.exception()  # such as KeyboardInterrupt, which is no crash
        content = content or pickle.dumps(Failed(f"{type(error).__name__}: {error}"))
        if os.getpid() == own:  # else the action forked, and this is its child
            attempt(sys.stderr.flush)
            end_own_descendants()
            _send(writing, _framed(content))
        os._exit(0 if error is None else 1)


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


def _framed(content: bytes) -> bytes:
    return len(content).to_bytes(HEADER, "big") + content


def _send(writing: int, content: bytes) -> None:
    view = memoryview(content)
    with suppress(OSError):  # the parent gave up
        while view:
            view = view[os.write(writing, view[:CHUNK]) :]


def _separate_streams() -> None:
    """Print to the error output, and read nothing of what the caller would read."""
    sys.stdout = sys.stderr
    with suppress(OSError):
        os.dup2(2, 1)
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


def _outcome(action: Callable[[], Result]) -> Result | Failed:
    found = attempt(action)
    return Failed(found.line, found.own_calls) if isinstance(found, Crash) else found


def _pickled(found: object) -> bytes:
    content = attempt(lambda: pickle.dumps(found))
    if isinstance(content, bytes):
        return content
    return pickle.dumps(Failed(f"what it returned cannot be sent: {content.line}"))


def _read(reading: int, child: int, end: float) -> tuple[bytes, bool]:
    """What the child sent, and whether it came before ``end``; empty if the child ended without sending."""
    content = bytearray()
    while len(content) < HEADER or len(content) < HEADER + int.from_bytes(content[:HEADER], "big"):
        ready, _, _ = select.select([reading], [], [], max(0.0, min(INTERVAL, end - time.monotonic())))
        if ready:
            part = os.read(reading, CHUNK)
            if not part:
                return b"", True
            content += part
        elif _has_ended(child):
            if not select.select([reading], [], [], 0)[0]:
                return b"", True
        elif time.monotonic() >= end:
            return b"", False
    return bytes(content[HEADER:]), True


def _has_ended(child: int) -> bool:
    """Whether a process has ended; it can still be waited for."""
    try:
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


DEATH_SIGNAL: Final = 1
CHILD_SUBREAPER: Final = 36
"""Options of ``prctl``."""
SECONDS: Final = 2.0
"""How long killed processes may take to end."""


def adopt_orphans() -> None:
    """Make this process the parent of the orphans below it, and let it be killed if its own parent ends."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            prctl = ctypes.CDLL(None).prctl
            prctl(CHILD_SUBREAPER, 1, 0, 0, 0)
            prctl(DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)


def end_descendants(root: int) -> None:
    """Kill all processes below one, which stays."""
    for process in descendants(root):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)


def end_own_descendants() -> None:
    """Kill all processes below this one, and collect them."""
    until = time.monotonic() + SECONDS
    with suppress(ChildProcessError):
        while time.monotonic() < until:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                end_descendants(os.getpid())
                time.sleep(1e-3)


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
