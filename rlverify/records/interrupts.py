"""What Ctrl-C and SIGTERM do for a while."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
"""Both end the program in the same way."""


@contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the end.

    Processes started inside never see Ctrl-C, so that the parent alone answers. They see SIGTERM after
    `allow_termination`.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def allow_termination() -> None:
    """SIGTERM ends this process, though it was started while the signal was held back."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


@contextmanager
def raised_at_the_end() -> Iterator[None]:
    """Ctrl-C and SIGTERM raise KeyboardInterrupt when all inside is done; does nothing off the main thread.

    Unlike with `held_back`, processes started inside see both signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = [signal.signal(number, lambda number, _: came.append(number)) for number in SIGNALS]
    try:
        yield
    finally:
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


@contextmanager
def raised() -> Iterator[None]:
    """Ctrl-C and SIGTERM raise KeyboardInterrupt inside, whatever they do outside; does nothing off the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [signal.signal(number, signal.default_int_handler) for number in SIGNALS]
    try:
        yield
    finally:
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)
