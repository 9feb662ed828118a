"""The files of a population: its lineage, its state, and the lock of who trains in it."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

import torch

from rlcore.checkpoint import load_container, save_container
from rlcore.errors import CheckpointError
from rlcore.pbt.hyperparams import Hyperparams

if sys.platform != "win32":
    import fcntl

STATE_FILE = "population.pt"
MEMBERS = "members"
LINEAGE_FILE = "lineage.jsonl"
FORMAT: Final = "population_v2"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from training in the folder meanwhile; the lock ends with the process, a killed one too.

    :raises CheckpointError: if another process trains in it
    """
    with (folder / "lock").open("ab") as file:
        try:
            if sys.platform != "win32":  # which has no flock
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            words = "cannot be used, as another process is training in it; wait for it, or give another folder"
            raise CheckpointError(folder, words) from error
        yield


@dataclass(frozen=True)
class LineageEvent:
    """An event in the life of one member.

    :param event: ``exploit`` if it copied another, ``explore`` if only its hyperparameters changed
    :param step: updates that the member had made
    :param performance: its score then; None for none, or none that is finite
    :param hyperparams: those that train from here on
    :param hyperparams_before: those that trained until here; None at the start
    :param source: the member that was copied, after ``source_step`` updates
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


def append_lineage(path: Path, size: int, events: Iterable[LineageEvent]) -> int:
    """Append events so that the file of an interrupted run that goes on holds each of them once.

    :param size: bytes that are committed; what follows them is cut off first
    :return: the bytes with those of the events, which the disk has
    """
    known = [{name: value for name, value in asdict(event).items() if value is not None} for event in events]
    lines = "".join(f"{json.dumps(event, allow_nan=False)}\n" for event in known).encode()
    if lines:
        with path.open("r+b" if size else "w+b") as file:
            file.truncate(size)
            file.seek(size)
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
    return size + len(lines)


def read_lineage(path: str | Path, size: int | None = None) -> list[LineageEvent]:
    """Read the events of a file, oldest first; a last line that was cut off while it was written is left out.

    :param path: the file, or the folder of the population that it is in
    :param size: bytes to read; default all
    :raises OSError: if the file cannot be read
    :raises ValueError: if a line is no JSON
    """
    path = Path(path)
    content = (path / LINEAGE_FILE if path.is_dir() else path).read_bytes()[:size]
    return [LineageEvent(**{"performance": None, **json.loads(line)}) for line in content.split(b"\n")[:-1]]


def ancestors(events: Sequence[LineageEvent], member: int) -> list[tuple[int, int]]:
    """Return the members that a member's weights come from and their updates then, latest first.

    If the source copied another member at the same step, its weights from before that were copied.
    """
    found: list[tuple[int, int]] = []
    step = math.inf
    while copies := [each for each in events if (each.event, each.member) == ("exploit", member) and each.step < step]:
        member, step = cast(int, copies[-1].source), cast(int, copies[-1].source_step)
        found.append((member, step))
    return found


@dataclass(frozen=True)
class SavedPopulation:
    """The state of a population that a run commits after every turn.

    :param members: of each member what its scheduler does not know: ``file``, the name of its model or None, and the
        counts ``exploits`` and ``vgs_transfers``
    """

    seed: int
    config: dict[str, Any]
    explored_step: int
    lineage_size: int
    scheduler: dict[Any, Any]
    members: list[dict[str, Any]]


def read_state(folder: Path) -> SavedPopulation | None:
    """Read the state that a run last committed, or return None if none was begun.

    :raises CheckpointError: if the file is damaged or no state of a population, or is missing where members have models
    """
    path, members = folder / STATE_FILE, folder / MEMBERS
    if not path.exists():
        if any(members.glob("*.zip")):
            raise CheckpointError(members, f"holds models whose {STATE_FILE} is missing; give another folder")
        return None
    content: Any = load_container(path, require_digest=True)
    if content.get("format_version") != FORMAT:
        raise CheckpointError(path, f"is no state of a population ({FORMAT}); give another folder")
    return SavedPopulation(**json.loads(content["state"].numpy().tobytes()))


def write_state(state: SavedPopulation, folder: Path) -> None:
    """Make this the state that a run goes on from.

    The state is one tensor, the bytes of a text in JSON: plain values take ten pickle instructions for each turn and
    member, and a reader of pickles has to limit them.

    :raises CheckpointError: if it cannot be written
    """
    text = json.dumps(vars(state), separators=(",", ":")).encode()
    encoded = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    save_container(folder / STATE_FILE, {"format_version": FORMAT, "state": encoded})
