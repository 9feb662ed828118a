"""The members' checkpoint files: one for each step that was saved, of which the last two are kept."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable
from pathlib import Path

from rlcore.checkpoint import Checkpoint, load_checkpoint
from rlcore.errors import CheckpointError, ResumeWarning
from rlcore.pbt.member import PopulationMember

KEPT = 2
"""Files kept of a member: the newest, and the one before, which the population's last saved state may still name."""

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


def read_source(source: PopulationMember, *, stacklevel: int = 1) -> Checkpoint | None:
    """What a member last saved, in tensors of its own; None, with one ResumeWarning, where that cannot be read."""
    if source.checkpoint_path is None:
        reason = f"member {source.member_id} has saved no checkpoint; give model_parameters to update_performance"
    else:
        try:
            return load_checkpoint(source.checkpoint_path)
        except CheckpointError as error:
            reason = str(error)
    message = f"nothing was copied from member {source.member_id}, so the parameters stay as they are: {reason}"
    warnings.warn(message, ResumeWarning, stacklevel=stacklevel + 1)
    return None


def prune(folder: Path, member: PopulationMember, population: Iterable[PopulationMember]) -> None:
    """Remove the member's files but the last :data:`KEPT`, and those that another member's path still names."""
    named = {each.checkpoint_path for each in population}
    for step in member.saved_steps[:-KEPT]:
        path = path_of(folder, member, step)
        if str(path) in named:
            continue
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            _logger.warning("%s could not be removed and is tried again later: %s", path, error)
        else:
            member.saved_steps.remove(step)
