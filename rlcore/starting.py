"""Ends a command of this package at once if Ctrl-C comes while it is still importing.

Importing torch takes two seconds. Ctrl-C in that time ends the process without a traceback. The package imports this
module first, so that it covers the other imports.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

COMMANDS: Final = ("rlcore.train", "rlcore.pbt")


def is_command(arguments: Sequence[str]) -> bool:
    """Whether Python was started with ``-m`` and a command of this package.

    :param arguments: as in ``sys.orig_argv``
    """
    return any(option == "-m" and name in COMMANDS for option, name in pairwise(arguments))


def let_interrupts_end() -> None:
    """From now on Ctrl-C ends the process without a traceback, unless the process ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def let_interrupts_raise() -> None:
    """From now on Ctrl-C raises KeyboardInterrupt, unless the process ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if is_command(sys.orig_argv):
    let_interrupts_end()
