"""The files of a population: of each member one for every step that was saved, the last two of which are kept."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rlcore.checkpoint import Checkpoint, load_checkpoint
from rlcore.errors import CheckpointError, ResumeWarning
from rlcore.pbt.member import PopulationMember
from rlcore.warn import warn_caller

if sys.platform != "win32":
    import fcntl

KEPT = 2
"""Files kept of a member: the newest, and the one before, which the population's last saved state may still name."""

LOCK_FILE = "lock"

_logger = logging.getLogger("rlcore.pbt")


def path_of(folder: Path, member: PopulationMember, step: int) -> Path:
    """Where a member's parameters of a step are saved."""
    return folder / f"member_{member.member_id}_step_{step}.pt"


def make_folder(folder: Path) -> None:
    """Make the folder and its parents where they are missing.

    :raises CheckpointError: if it cannot be made
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(folder, f"cannot be made a folder for checkpoints ({error.strerror})") from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from training in the folder meanwhile; the lock ends with the process, a killed one too.

    :raises CheckpointError: if another process has it, or it cannot be had
    """
    path = folder / LOCK_FILE
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


def require_unused(members: Path, state_file: str) -> None:
    """Models of members are there only where a state was written before them.

    :raises CheckpointError: if there are any without it, which a new population would overwrite
    """
    found = sorted(path.name for path in members.glob("*.zip"))
    if found:
        raise CheckpointError(
            members,
            f"holds {', '.join(found[:3])} of a population whose {state_file} is missing, so it cannot go on and would "
            "be overwritten; give another folder, or move this one away",
        )


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
