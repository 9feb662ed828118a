"""What a process does with its threads, its output and its signals while it measures."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from types import FrameType
from typing import Final

THREAD_LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def pin_threads() -> None:
    """Use one thread: sums in another order give other bits, and worker processes fill the cores already."""
    for name in THREAD_LIMITS:
        os.environ[name] = "1"
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


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


SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
"""Both end the program in the same way."""


@contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the end.

    Processes started inside never see Ctrl-C, so that the parent alone answers. They see SIGTERM after
    `allow_termination`.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def allow_termination() -> None:
    """SIGTERM ends this process, though it was started while the signal was held back."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Ctrl-C and SIGTERM call a handler inside; does nothing off the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [signal.signal(number, handler) for number in SIGNALS]
    try:
        yield
    finally:
        for number, own in zip(SIGNALS, before, strict=True):
            signal.signal(number, own)


@contextmanager
def raised_at_the_end() -> Iterator[None]:
    """Ctrl-C and SIGTERM raise KeyboardInterrupt when all inside is done; does nothing off the main thread.

    Unlike with `held_back`, processes started inside see both signals.
    """
    came: list[int] = []
    with _handled(lambda number, _: came.append(number)):
        yield
    if came:
        raise KeyboardInterrupt


def raised() -> AbstractContextManager[None]:
    """Ctrl-C and SIGTERM raise KeyboardInterrupt inside, whatever they do outside; does nothing off the main thread."""
    return _handled(signal.default_int_handler)
