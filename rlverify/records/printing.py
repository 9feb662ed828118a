"""Keeps what content packages print out of stdout, which is for the program's own answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Final

STDOUT: Final = 1
STDERR: Final = 2


def send_stdout_to_stderr() -> None:
    """From now on, what this process and those that it starts write to stdout goes to stderr."""
    if sys.__stdout__ and sys.__stderr__:  # where one was closed at the start, another file may have its descriptor
        os.dup2(STDERR, STDOUT)


@contextmanager
def stdout_sent_to_stderr() -> Iterator[None]:
    """What this process and those that it starts write to stdout inside goes to stderr."""
    if sys.stdout:
        sys.stdout.flush()
    with redirect_stdout(sys.stderr):
        if not sys.__stdout__:
            yield
            return
        before = os.dup(STDOUT)
        try:
            send_stdout_to_stderr()
            yield
        finally:
            os.dup2(before, STDOUT)
            os.close(before)
