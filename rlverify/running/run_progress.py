"""Keeps the progress file of this process up to date; whoever starts and ends tasks reports them here.

Reports count, and the file is written, only inside `progress_reported`.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from rlverify.records import interrupts
from rlverify.running.progress_file import (
    EndedTask,
    RunningTask,
    RunProgress,
    Stage,
    is_alive,
    read_runs,
    remove_progress,
    write_progress,
)

PAUSE: Final = 0.5
"""Seconds between two files."""
HEARTBEAT: Final = 5.0
"""Seconds after which the file is written again though nothing has changed."""
KEPT: Final = 5
"""Tasks that have ended and are in the file."""


class ProgressWriter:
    """Collects how far a command is, and writes it. A file that cannot be written is written later, or never.

    :param folder: the working folder
    :param clock: seconds since 1970
    """

    def __init__(self, folder: Path, command: str, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._command, self._clock = folder, command, clock
        self._start = self._reported = clock()
        self._stages: dict[str, Stage] = {}
        self._running: dict[tuple[str, int], RunningTask] = {}
        self._ended: deque[EndedTask] = deque(maxlen=KEPT)
        self._lock = threading.Lock()
        self._changed = True
        self._written = self._start
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep_writing, name="progress", daemon=True)

    def begin(self) -> None:
        """Remove the files of processes that are gone, and write the first one."""
        for run in read_runs(self._folder):
            if not is_alive(run.pid):
                remove_progress(self._folder, run.pid)
        self.write()
        with interrupts.held_back():  # the thread must not take the signals that the main thread holds back
            self._thread.start()

    def end(self) -> None:
        """Remove the file."""
        self._stopped.set()
        self._thread.join()
        remove_progress(self._folder, os.getpid())

    def task_started(self, text: str, pid: int) -> None:
        """
        :param pid: of the process that runs it
        """
        with self._lock:
            self._running[text, pid] = RunningTask(text, pid, self._clock())
            self._changed = True

    def task_ended(self, text: str, pid: int) -> None:
        """It has ended, or was stopped."""
        with self._lock:
            found = self._running.pop((text, pid), None)
            if found is not None:
                self._ended.append(EndedTask(text, round(self._clock() - found.start, 3)))
                self._changed = True

    def stage(self, name: str, done: int, total: int, seconds_left: float | None) -> None:
        """How much of a stage is done, which may be the first that is heard of it.

        :param seconds_left: None if all that is known is how long the tasks took up to now
        """
        now = self._clock()
        with self._lock:
            known = self._stages.get(name)
            unchanged = known is not None and (known.done, known.total) == (done, total)
            if unchanged and known is not None and (known.end is not None or seconds_left is None):
                self._reported = now
                return  # what is left from now on does not count how long the present tasks have run
            start = self._reported if done else now  # what is done ran since the stage before was last heard of
            if known is not None and known.done <= done:
                start = known.start
            pace = (now - start) / done * (total - done) if done else None
            left = pace if seconds_left is None else seconds_left
            self._stages[name] = Stage(name, done, total, start, None if left is None else now + left)
            self._reported = now
            self._changed = True

    def progress(self) -> RunProgress:
        """What the file says, or will."""
        with self._lock:
            return RunProgress(
                self._command,
                os.getpid(),
                self._start,
                self._clock(),
                tuple(self._stages.values()),
                tuple(self._running.values()),
                tuple(self._ended),
            )

    def write(self) -> None:
        """Write the file."""
        self._changed, self._written = False, self._clock()
        with suppress(OSError):  # a full disk must not end what is measured
            write_progress(self._folder, self.progress())

    def _keep_writing(self) -> None:
        while not self._stopped.wait(PAUSE):
            if self._changed or self._clock() - self._written >= HEARTBEAT:
                self.write()


_writers: list[ProgressWriter] = []
"""That of the command that this process runs."""


@contextmanager
def progress_reported(folder: Path, command: str) -> Iterator[ProgressWriter]:
    """While the block runs, a file says how far it is.

    :param folder: the working folder
    :param command: as it was typed
    """
    writer = ProgressWriter(folder, command)
    writer.begin()
    _writers.append(writer)
    try:
        yield writer
    finally:
        _writers.remove(writer)
        writer.end()


def task_started(task: object, pid: int) -> None:
    """A process has begun a task.

    :param task: a text, or an object with a text as ``label``; other tasks are not reported
    """
    text = _text_of(task)
    for writer in _writers if text else ():
        writer.task_started(text, pid)


def task_ended(task: object, pid: int) -> None:
    """A process has ended a task, or was stopped in it."""
    text = _text_of(task)
    for writer in _writers if text else ():
        writer.task_ended(text, pid)


def stage_progress(name: str, done: int, total: int, seconds_left: float | None = None) -> None:
    """How much of a stage is done; see `ProgressWriter.stage`."""
    for writer in _writers:
        writer.stage(name, done, total, seconds_left)


def _text_of(task: object) -> str:
    return task if isinstance(task, str) else str(getattr(task, "label", ""))
