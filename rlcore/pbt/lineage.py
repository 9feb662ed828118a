"""Who copied whom: one line of JSON an event, appended as a population trains."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rlcore.errors import CheckpointError
from rlcore.pbt.hyperparams import Hyperparams

LINEAGE_FILE = "lineage.jsonl"
"""Its name in the folder of a population."""


@dataclass(frozen=True)
class LineageEvent:
    """What happened to one member.

    :param event: ``start``; ``exploit`` where it copied another, ``explore`` where only its hyperparameters changed
    :param step: updates that the member had made
    :param performance: its score then; None for none, or none that is finite
    :param hyperparams: what trains from here on
    :param hyperparams_before: what trained until here; None at the start
    :param source: the member that was copied
    :param source_step: updates that had made what was copied
    :param format: of the source's checkpoint
    """

    event: Literal["start", "exploit", "explore"]
    member: int
    step: int
    performance: float | None
    hyperparams: Hyperparams
    hyperparams_before: Hyperparams | None = None
    source: int | None = None
    source_step: int | None = None
    format: str | None = None


@dataclass(frozen=True)
class Ancestor:
    """Where weights came from.

    :param member: whose weights were copied
    :param step: updates that had made them
    """

    member: int
    step: int


class LineageFile:
    """Appends events so that an interrupted run, cut back to what it had committed, holds each of them once.

    :param path: a file that is made when the first event is appended
    :param size: bytes that are committed; what stands behind them is cut off before the next event is appended
    """

    def __init__(self, path: Path, size: int = 0) -> None:
        self.path = path
        self.size = size

    def append(self, events: Iterable[LineageEvent]) -> None:
        """Write the events and wait until the disk has them.

        :raises CheckpointError: if they cannot be written
        """
        lines = "".join(f"{_encoded(event)}\n" for event in events).encode()
        if not lines:
            return
        try:
            with self.path.open("r+b" if self.size else "w+b") as file:
                if os.fstat(file.fileno()).st_size < self.size:
                    raise CheckpointError(self.path, f"has lost some of the {self.size} bytes that were written to it")
                file.truncate(self.size)
                file.seek(self.size)
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise CheckpointError(self.path, f"cannot be written ({error.strerror})") from error
        self.size += len(lines)


def read_lineage(path: str | Path) -> list[LineageEvent]:
    """The events of a file, oldest first; a last line that was cut off while it was written is left out.

    :param path: the file, or the folder of the population that it is in
    :raises CheckpointError: if the file cannot be read or a line is no event
    """
    path = Path(path)
    path = path / LINEAGE_FILE if path.is_dir() else path
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError as error:
        raise CheckpointError(path, f"cannot be read ({error.strerror})") from error
    return [_decoded(path, number, line) for number, line in enumerate(lines, start=1)]


def ancestors(events: Sequence[LineageEvent], member: int) -> list[Ancestor]:
    """Whose weights a member's present ones descend from, latest first; empty if they are its own from the start.

    What was copied is what the source had before it copied anybody itself at the same step.
    """
    found: list[Ancestor] = []
    step = math.inf
    while True:
        copies = [each for each in events if each.event == "exploit" and each.member == member and each.step < step]
        if not copies or copies[-1].source is None or copies[-1].source_step is None:
            return found
        member, step = copies[-1].source, copies[-1].source_step
        found.append(Ancestor(member, copies[-1].source_step))


def _encoded(event: LineageEvent) -> str:
    return json.dumps({name: value for name, value in asdict(event).items() if value is not None}, allow_nan=False)


def _decoded(path: str | Path, number: int, line: bytes) -> LineageEvent:
    try:
        fields: dict[str, Any] = {"performance": None, **json.loads(line)}
        return LineageEvent(**fields)
    except (ValueError, TypeError) as error:
        raise CheckpointError(path, f"line {number} is no event of a lineage ({error})") from error
