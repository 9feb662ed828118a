"""Where an import failed, and whether because something does not exist."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path


def place_of(error: BaseException) -> tuple[Path, int]:
    """The file and the line at which an error was raised; of a syntax error, those that it is about."""
    return places_of(error)[0]


def places_of(error: BaseException) -> list[tuple[Path, int]]:
    """The file and line at which an error was raised, then those of each call that led to it, the innermost first."""
    calls = reversed(traceback.extract_tb(error.__traceback__))
    found = [(Path(call.filename), call.lineno or 1) for call in calls]
    if isinstance(error, SyntaxError) and error.filename:
        found.insert(0, (Path(error.filename), error.lineno or 1))
    return found


def names_what_is_gone(error: BaseException, is_searched: Callable[[str], bool]) -> bool:
    """Whether a module does not exist, or has not what was to be imported from it.

    :param is_searched: whether a module, given by its dotted name, is one of those that this is about
    """
    return isinstance(error, ImportError) and is_searched(error.name or "")
