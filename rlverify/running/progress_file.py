"""The file in which a command that measures says how far it is, and how another process reads it.

There is one file for each process, `<pid>.json` in the folder ``progress`` of the working folder. It is replaced as a
whole, so a reader never sees a part of it, and removed when the command ends.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from pydantic import TypeAdapter, ValidationError

PROGRESS: Final = "progress"
ELSEWHERE: Final = 0
"""The number of a process that is not known here, as one of another machine is."""
SILENT_AFTER: Final = 30.0
"""Seconds without a new file after which the process is probably stopped, or its number belongs to another one."""

RunState: TypeAlias = Literal["running", "silent", "lost"]


@dataclass(frozen=True)
class RunningTask:
    """What a worker process does now.

    :param pid: number of that process, or `ELSEWHERE`
    :param start: in seconds since 1970, as all times here
    """

    text: str
    pid: int
    start: float


@dataclass(frozen=True)
class EndedTask:
    """A task that has ended, and how long it took."""

    text: str
    seconds: float


@dataclass(frozen=True)
class Stage:
    """A part of a command, such as the runs of figures.

    :param done: tasks that have ended, of ``total``
    :param end: when the last is expected to end; None if nothing is known of it
    """

    name: str
    done: int
    total: int
    start: float
    end: float | None


@dataclass(frozen=True)
class RunProgress:
    """How far a command is.

    :param written: when the file was written
    :param stages: those that have begun; the command is in the last
    :param running: what its worker processes do, the first started first
    :param ended: the tasks that ended last, the latest last
    """

    command: str
    pid: int
    start: float
    written: float
    stages: tuple[Stage, ...] = ()
    running: tuple[RunningTask, ...] = ()
    ended: tuple[EndedTask, ...] = ()

    def state(self, now: float) -> RunState:
        """``lost`` if its process is gone, so that it ended without a result; ``silent`` if it has written nothing new.

        :param now: in seconds since 1970
        """
        if not is_alive(self.pid):
            return "lost"
        return "silent" if now - self.written > SILENT_AFTER else "running"


READER: Final = TypeAdapter(RunProgress)


def is_alive(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is another user's
        pass
    return True


def write_progress(folder: Path, progress: RunProgress) -> None:
    """Replace the file of a process.

    :param folder: the working folder
    :raises OSError: if it cannot be written
    """
    path = path_of_run(folder, progress.pid)
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent / ".gitignore").write_text("*\n", encoding="utf-8")
    pending = path.with_suffix(".pending")
    pending.write_text(json.dumps(asdict(progress), allow_nan=False), encoding="utf-8")
    pending.replace(path)


def path_of_run(folder: Path, pid: int) -> Path:
    """The file of a process.

    :param folder: the working folder
    """
    return folder / PROGRESS / f"{pid}.json"


def remove_progress(folder: Path, pid: int) -> None:
    """Remove the file of a process, and each folder that is empty then.

    :param folder: the working folder
    """
    path = path_of_run(folder, pid)
    for each in (path, path.with_suffix(".pending")):
        with suppress(OSError):
            each.unlink(missing_ok=True)
    with suppress(OSError):
        if [each.name for each in path.parent.iterdir()] == [".gitignore"]:
            (path.parent / ".gitignore").unlink()
        path.parent.rmdir()
        folder.rmdir()


def read_runs(folder: Path) -> list[RunProgress]:
    """What the files of a working folder say, the first started first; a file that is removed meanwhile is left out."""
    return sorted(_readable(folder), key=lambda run: (run.start, run.pid))


def _readable(folder: Path) -> Iterator[RunProgress]:
    for path in (folder / PROGRESS).glob("*.json"):
        with suppress(OSError, ValidationError):
            yield READER.validate_json(path.read_bytes())
