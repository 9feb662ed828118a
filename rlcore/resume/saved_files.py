"""The files of one run in a folder: ``<name>_<timesteps>.zip``."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from rlcore.errors import CheckpointError

_logger = logging.getLogger("rlcore.resume")


def path_of_step(folder: Path, name: str, step: int) -> Path:
    """Where the training is saved at a timestep."""
    return folder / f"{name}_{step}.zip"


def saved_steps(folder: Path, name: str) -> list[int]:
    """Return the timesteps of the files that are there, in ascending order.

    :raises CheckpointError: the folder cannot be listed
    """
    pattern = re.compile(rf"{re.escape(name)}_(\d+)\.zip")
    try:
        found = [pattern.fullmatch(path.name) for path in folder.iterdir()] if folder.exists() else []
    except OSError as error:
        raise CheckpointError(folder, f"cannot be listed ({error.strerror}); give another folder") from error
    return sorted(int(match.group(1)) for match in found if match)


def newest_exact(folder: str | Path, name: str = "exact") -> Path | None:
    """Return the file of the latest timestep that ``SaveExactly(folder, name=name)`` has saved, or None.

    :raises CheckpointError: the folder cannot be listed
    """
    steps = saved_steps(Path(folder), name)
    return path_of_step(Path(folder), name, steps[-1]) if steps else None


def require_none_later(folder: Path, name: str, step: int) -> None:
    """
    :raises CheckpointError: the folder has files of a later timestep, which are of another run and would be mixed up
    """
    later = [each for each in saved_steps(folder, name) if each > step]
    if later:
        raise CheckpointError(
            path_of_step(folder, name, later[-1]),
            f"is of a later timestep than {step}, at which this training begins, so it belongs to another run; "
            "continue it with load_exact, move it away, or give another folder or name",
        )


def prune(folder: Path, name: str, keep: int) -> None:
    """Remove all files but those of the last ``keep`` timesteps."""
    for step in saved_steps(folder, name)[:-keep]:
        path = path_of_step(folder, name, step)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            _logger.warning("%s could not be removed and is tried again later: %s", path, error)
