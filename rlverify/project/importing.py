"""Where an import failed, and whether because something does not exist."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path


def place_of(error: BaseException) -> tuple[Path, int]:
    """The file and the line at which an error was raised; of a syntax error, those that it is about."""
    if isinstance(error, SyntaxError) and error.filename:
        return Path(error.filename), error.lineno or 1
    last = traceback.extract_tb(error.__traceback__)[-1]
    return Path(last.filename), last.lineno or 1


def names_what_is_gone(error: BaseException, is_searched: Callable[[str], bool]) -> bool:
    """Whether a module does not exist, or has not what was to be imported from it.

    :param is_searched: whether a module, given by its dotted name, is one of those that this is about
    """
    return isinstance(error, ImportError) and is_searched(error.name or "")
