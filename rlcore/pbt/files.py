"""The files of a population: checkpoints of its members, its lineage, and its state."""

from __future__ import annotations

import json
import logging
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlcore.checkpoint import Checkpoint, load_checkpoint, load_container, save_container
from rlcore.errors import CheckpointError, ResumeWarning, SettingError
from rlcore.pbt.hyperparams import Hyperparams, PBTConfig
from rlcore.pbt.selection import Natural, PopulationMember
from rlcore.types import StateDict
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
BRING_BACK = "bring it back from a copy, or begin anew in another folder"

_logger = logging.getLogger("rlcore.pbt")


def path_of(folder: Path, member: PopulationMember, step: int) -> Path:
    """Where a member's parameters of a step are saved."""
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

    :raises CheckpointError: if another process has it, or it cannot be had
    """
    path = folder / "lock"
    with ExitStack() as held:
        try:
            file = held.enter_context(path.open("ab"))
            if sys.platform != "win32":  # which has no flock
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CheckpointError(
                folder, "cannot be used, as another process is training in it; wait for it, or give another folder"
            ) from error
        except OSError as error:
            raise CheckpointError(path, f"cannot be locked ({error.strerror}); give another folder") from error
        yield


def read_source(source: PopulationMember) -> Checkpoint | None:
    """What a member last saved, in tensors of its own; None, with one ResumeWarning, where that cannot be read."""
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
        path = path_of(folder, member, step)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            _logger.warning("%s could not be removed and is tried again later: %s", path, error)
        else:
            member.saved_steps.remove(step)


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


class Ancestor(NamedTuple):
    """Where weights came from: the member they were copied from, and after how many of its updates."""

    member: int
    step: int


class LineageFile:
    """Appends events so that an interrupted run, cut back to what it had committed, holds each of them once.

    :param path: a file that is made when the first event is appended
    :param size: bytes that are committed; what follows them is cut off before the next event is appended
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
    events = []
    try:
        for line in path.read_bytes().split(b"\n")[:-1]:
            events.append(LineageEvent(**{"performance": None, **json.loads(line)}))
    except OSError as error:
        raise CheckpointError(path, f"cannot be read ({error.strerror})") from error
    except (ValueError, TypeError) as error:
        raise CheckpointError(path, f"line {len(events) + 1} is no event of a lineage ({error})") from error
    return events


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


class _Saved(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class SavedMember(_Saved):
    """What a population knows of a member and its scheduler does not; ``file`` is its model, by name."""

    file: Annotated[str, Field(pattern=r"^[^/\\]+$")] | None = None
    exploits: Natural = 0
    vgs_transfers: Natural = 0


class SavedPopulation(_Saved):
    """The state of a population that a run commits after every turn."""

    seed: int
    config: dict[str, Any]
    explored_step: Natural
    lineage_size: Natural
    scheduler: dict[Any, Any]
    members: list[SavedMember]


def read_state(folder: Path) -> SavedPopulation | None:
    """The state that a run last committed, or None if none was begun.

    :raises CheckpointError: if the file is damaged or no state of a population, or is missing where members have models
    """
    path, members = folder / STATE_FILE, folder / MEMBERS
    if not path.exists():
        found = sorted(path.name for path in members.glob("*.zip"))
        if found:
            raise CheckpointError(
                members,
                f"holds {', '.join(found[:3])} of a population whose {STATE_FILE} is missing, so it cannot go on and "
                "would be overwritten; give another folder, or move this one away",
            )
        return None
    content = load_container(path, require_digest=True)
    try:
        return SavedPopulation.model_validate(_fields(content, path))
    except ValidationError as error:
        wrong = ", ".join(sorted({str(each["loc"][0]) if each["loc"] else "state" for each in error.errors()}))
        raise CheckpointError(
            path, f"has other fields than a population's state ({wrong}); it is damaged or of another version"
        ) from error


def _fields(content: StateDict, path: Path) -> object:
    """What a state file holds: in version 1 next to the format, since version 2 as one text in JSON."""
    version, fields = content.get("format_version"), {**content}
    fields.pop("format_version", None)
    if version == FORMAT_V1:
        return fields
    if version != FORMAT:
        raise CheckpointError(path, f"is no state of a population ({FORMAT}); give another folder")
    state = fields.get("state")
    if set(fields) != {"state"} or not isinstance(state, torch.Tensor) or state.dtype != torch.uint8:
        return None
    try:
        return json.loads(state.numpy().tobytes())
    except (ValueError, RecursionError):
        return None


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
    """What a run that goes on must have in common with the one before, in plain Python."""
    return config.model_dump(mode="json", exclude={"checkpoint_dir", "seed"})


def require_same_config(config: PBTConfig, state: SavedPopulation, file: str) -> None:
    """Raise SettingError for the first setting in which ``config`` differs from the state's."""
    for name, value in described(config).items():
        if state.config.get(name) != value:
            raise SettingError(
                f"PBTConfig[{name!r}]",
                f"{name}={value!r}, and the population in {file} was begun with {state.config.get(name)!r}; give the "
                "same, or another folder",
            )


def require_checkpoints(members: Iterable[PopulationMember], state: SavedPopulation) -> None:
    """
    :param members: as they are restored, with the paths that their parameters are to have now
    :raises CheckpointError: if no checkpoint is there; a single one that is missing brings a warning when it is copied
    """
    pairs = zip(members, state.scheduler["members"], strict=True)
    places = [(Path(member.checkpoint_path), saved) for member, saved in pairs if member.checkpoint_path is not None]
    if places and not any(path.exists() for path, _ in places):
        path, saved = places[0]
        raise CheckpointError(
            path,
            f"is missing, as is every other checkpoint of a member, and the population saved it as "
            f"{saved['checkpoint_path']}; give that checkpoint_dir, or {BRING_BACK}",
        )
