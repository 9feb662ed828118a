"""Whether an import failed because something does not exist."""

from __future__ import annotations

from collections.abc import Callable


def names_what_is_gone(error: BaseException, is_searched: Callable[[str], bool]) -> bool:
    """Whether a module does not exist, or has not what was to be imported from it.

    :param is_searched: whether a module, given by its dotted name, is one of those that this is about
    """
    return isinstance(error, ImportError) and is_searched(error.name or "")
