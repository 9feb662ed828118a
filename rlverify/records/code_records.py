"""What runs executed, and the digests of what they followed from; frozen records."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Executed:
    """What one or several runs executed of the packages under test and of the content package.

    :param functions: ``package.module:Class.method`` of each function, sorted; of nested functions, the outermost
    :param files: the files of the project that were read as data, relative to its folder, sorted
    :param unseen: whether another process was started, of which nothing is known
    """

    functions: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    unseen: bool = False


@dataclass(frozen=True)
class CodeRecord:
    """All that a measurement followed from, as it was when it was made.

    :param settings: digest of the claim's own settings; empty for a plot
    :param roots: dotted names of the modules from which all that it imports is reached, sorted
    :param executed: what all runs of it executed together, and what their imports execute
    :param parts: (name, digest) of each part, sorted: ``package.module:function``, ``package.module`` for the code
        that runs when it is imported, ``file PATH``, ``library NAME`` (its version)
    :param mentioned: functions that runs of the present code may execute though no recorded run did: those that changed
        functions mention
    :param repeated: the seed of the only run that was made of these parts, where all others are of older code; else
        None
    """

    settings: str
    roots: tuple[str, ...]
    executed: Executed
    parts: tuple[tuple[str, str], ...]
    mentioned: tuple[str, ...] = ()
    repeated: int | None = None


def together(found: list[Executed]) -> Executed:
    """What several runs executed."""
    return Executed(
        tuple(sorted({name for each in found for name in each.functions})),
        tuple(sorted({path for each in found for path in each.files})),
        any(each.unseen for each in found),
    )
