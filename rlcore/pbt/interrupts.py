"""What Ctrl-C and SIGTERM do while workers start."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the end; a process that is started inside never sees Ctrl-C.

    On Windows, which cannot hold signals back, this does nothing.
    """
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def raised_at_the_end() -> Iterator[None]:
    """Ctrl-C does what it did before, such as raise KeyboardInterrupt, when all inside is done.

    Unlike with :func:`held_back`, processes that are started inside see the signals. Does nothing off the main thread,
    and if the process ignores Ctrl-C.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before in (signal.SIG_IGN, None):
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        signal.raise_signal(signal.SIGINT)
