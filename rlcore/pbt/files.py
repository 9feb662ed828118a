"""The files of a population: checkpoints of its members, its lineage, and its state."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import torch
from pydantic import BaseModel, ValidationError

from rlcore.checkpoint import Checkpoint, load_checkpoint, load_container, save_container
from rlcore.errors import CheckpointError, ResumeWarning, SettingError
from rlcore.pbt.hyperparams import Hyperparams, PBTConfig
from rlcore.pbt.selection import PopulationMember
from rlcore.warn import warn_caller

if sys.platform != "win32":
    import fcntl

KEPT = 2
"""Files kept of a member: the newest, and the one before, which the population's last saved state may still name."""
STATE_FILE = "population.pt"
MEMBERS = "members"
LINEAGE_FILE = "lineage.jsonl"
FORMAT: Final = "population_v2"
FORMAT_V1: Final = "population_v1"


def path_of(folder: Path, member: PopulationMember, step: int) -> Path:
    """Return the file of a member's parameters of a step."""
    return folder / f"member_{member.member_id}_step_{step}.pt"


def make_folder(folder: Path) -> None:
    """Make it and its parents, or raise CheckpointError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(folder, f"cannot be made a folder for checkpoints ({error.strerror})") from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from training in the folder meanwhile; the lock ends with the process, a killed one too.

    :raises CheckpointError: if another process trains in it, or it cannot be locked
    """
    with ExitStack() as held:
        try:
            file = held.enter_context((folder / "lock").open("ab"))
            if sys.platform != "win32":  # which has no flock
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CheckpointError(
                folder, "cannot be used, as another process is training in it; wait for it, or give another folder"
            ) from error
        except OSError as error:
            raise CheckpointError(folder, f"cannot be locked ({error.strerror}); give another folder") from error
        yield


def stamp_of(folder: Path) -> tuple[int, ...] | None:
    """Return values that differ after another commit, or None if there is no state."""
    try:
        status = (folder / STATE_FILE).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def read_source(source: PopulationMember) -> Checkpoint | None:
    """Read what a member last saved, in tensors of its own; None, with one ResumeWarning, if it cannot be read."""
    if source.checkpoint_path is None:
        reason = f"member {source.member_id} has saved no checkpoint; give model_parameters to update_performance"
    else:
        try:
            return load_checkpoint(source.checkpoint_path)
        except CheckpointError as error:
            reason = str(error)
    message = f"nothing was copied from member {source.member_id}, so the parameters stay as they are: {reason}"
    warn_caller(message, ResumeWarning)
    return None


def prune(folder: Path, member: PopulationMember) -> None:
    """Remove the member's files but the last :data:`KEPT`."""
    for step in member.saved_steps[:-KEPT]:
        path_of(folder, member, step).unlink(missing_ok=True)
        member.saved_steps.remove(step)


@dataclass(frozen=True)
class LineageEvent:
    """An event in the life of one member.

    :param event: ``start``; ``exploit`` if it copied another, ``explore`` if only its hyperparameters changed
    :param step: updates that the member had made
    :param performance: its score then; None for none, or none that is finite
    :param hyperparams: those that train from here on
    :param hyperparams_before: those that trained until here; None at the start
    :param source: the member that was copied
    :param source_step: updates that the source had made
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


class Ancestor(NamedTuple):
    """The member that weights were copied from, and the number of updates that it had made."""

    member: int
    step: int


class LineageFile:
    """Appends events so that the file of an interrupted run that goes on holds each of them once.

    :param path: a file that is made when the first event is appended
    :param size: bytes that are committed; :meth:`append` cuts off the rest first
    """

    def __init__(self, path: Path, size: int = 0) -> None:
        self.path = path
        self.size = size

    def append(self, events: Iterable[LineageEvent]) -> None:
        """Write the events and wait until the disk has them.

        :raises CheckpointError: if they cannot be written
        """
        known = [{name: value for name, value in asdict(event).items() if value is not None} for event in events]
        lines = "".join(f"{json.dumps(event, allow_nan=False)}\n" for event in known).encode()
        if not lines:
            return
        try:
            with self.path.open("r+b" if self.size else "w+b") as file:
                file.truncate(self.size)
                file.seek(self.size)
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise CheckpointError(self.path, f"cannot be written ({error.strerror})") from error
        self.size += len(lines)


def read_lineage(path: str | Path, size: int | None = None) -> list[LineageEvent]:
    """Read the events of a file, oldest first; a last line that was cut off while it was written is left out.

    :param path: the file, or the folder of the population that it is in
    :param size: bytes to read; default all
    :raises CheckpointError: if the file cannot be read or a line is no event
    """
    path = Path(path)
    path = path / LINEAGE_FILE if path.is_dir() else path
    events = []
    try:
        for line in path.read_bytes()[:size].split(b"\n")[:-1]:
            events.append(LineageEvent(**{"performance": None, **json.loads(line)}))
    except OSError as error:
        raise CheckpointError(path, f"cannot be read ({error.strerror})") from error
    except (ValueError, TypeError) as error:
        raise CheckpointError(path, f"line {len(events) + 1} is no event of a lineage ({error})") from error
    return events


def ancestors(events: Sequence[LineageEvent], member: int) -> list[Ancestor]:
    """Return the members that a member's weights come from, latest first; empty if it never copied another.

    If the source copied another member at the same step, its weights from before that were copied.
    """
    found: list[Ancestor] = []
    step = math.inf
    while True:
        copies = [each for each in events if each.event == "exploit" and each.member == member and each.step < step]
        if not copies or copies[-1].source is None or copies[-1].source_step is None:
            return found
        member, step = copies[-1].source, copies[-1].source_step
        found.append(Ancestor(member, copies[-1].source_step))


class SavedMember(BaseModel):
    """The part of a member that its scheduler does not know; ``file`` is its model, by name."""

    file: str | None = None
    exploits: int = 0
    vgs_transfers: int = 0


class SavedPopulation(BaseModel):
    """The state of a population that a run commits after every turn."""

    seed: int
    config: dict[str, Any]
    explored_step: int
    lineage_size: int
    scheduler: dict[Any, Any]
    members: list[SavedMember]


def read_state(folder: Path) -> SavedPopulation | None:
    """Read the state that a run last committed, or return None if none was begun.

    :raises CheckpointError: if the file is damaged or no state of a population, or is missing where members have models
    """
    path, members = folder / STATE_FILE, folder / MEMBERS
    if not path.exists():
        if any(members.glob("*.zip")):
            raise CheckpointError(members, f"holds models whose {STATE_FILE} is missing; give another folder")
        return None
    fields: dict[Any, Any] = {**load_container(path, require_digest=True)}
    version = fields.pop("format_version", None)
    if version not in (FORMAT, FORMAT_V1):
        raise CheckpointError(path, f"is no state of a population ({FORMAT}); give another folder")
    try:
        state = fields if version == FORMAT_V1 else json.loads(fields["state"].numpy().tobytes())
        return SavedPopulation.model_validate(state)
    except (KeyError, AttributeError, ValueError) as error:
        raise CheckpointError(path, f"is damaged, or of another version: {first_problem(error)}") from error


def first_problem(error: Exception) -> str:
    """Return the text of an error; only the first problem if pydantic found several."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_context=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'state'}: {first['msg'].lower()}"


def write_state(state: SavedPopulation, folder: Path) -> None:
    """Make this the state that a run goes on from.

    The state is one tensor, the bytes of a text in JSON: plain values take ten pickle instructions for each turn and
    member, and a reader of pickles has to limit them.

    :raises CheckpointError: if it cannot be written
    """
    text = json.dumps(state.model_dump(), separators=(",", ":")).encode()
    encoded = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    save_container(folder / STATE_FILE, {"format_version": FORMAT, "state": encoded})


def described(config: PBTConfig) -> dict[str, Any]:
    """Return the settings that must not change when a run goes on, in plain Python."""
    return config.model_dump(mode="json", exclude={"checkpoint_dir", "seed"})


def require_same_config(config: PBTConfig, state: SavedPopulation, folder: Path) -> None:
    """Raise SettingError for the first setting in which ``config`` differs from the state's."""
    for name, value in described(config).items():
        if state.config.get(name) != value:
            raise SettingError(
                f"PBTConfig[{name!r}]",
                f"{name}={value!r}, and the population in {folder} was begun with {state.config.get(name)!r}; give the "
                "same, or another folder",
            )
