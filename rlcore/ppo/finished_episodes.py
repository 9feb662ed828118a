"""What Monitor noted of finished episodes, without what no file can hold."""

from __future__ import annotations

from typing import Any

from rlcore.checkpoint.refusal import RefusedError
from rlcore.checkpoint.values import plain
from rlcore.errors import ResumeWarning
from rlcore.types import StateDict
from rlcore.warn import warn_caller


def storable(progress: StateDict) -> StateDict:
    """A copy of ``progress_state`` whose episodes keep only what a model file holds; one warning names the rest.

    Monitor's ``info_keywords`` let an environment put any object there, and a run must not be lost for one.
    """
    episodes: Any = progress["ep_info_buffer"]
    if episodes is None:
        return progress
    dropped = {key: value for episode in episodes for key, value in episode.items() if not _fits({key: value})}
    if not dropped:
        return progress
    kinds = {key: type(value).__name__ for key, value in dropped.items()}
    warn_caller(
        f"info_keywords of finished episodes hold {kinds}, which no file can: it is left out; note numbers, texts, "
        "arrays or lists of them",
        ResumeWarning,
    )
    kept: Any = [{key: value for key, value in episode.items() if key not in dropped} for episode in episodes]
    return {**progress, "ep_info_buffer": kept}


def _fits(note: dict[Any, Any]) -> bool:
    try:
        plain(note)
    except RefusedError:
        return False
    return True
