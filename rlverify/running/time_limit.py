"""Ends what takes too long: a probe that never returns must not hold the gate for ever."""

from __future__ import annotations

import faulthandler
import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TypeVar

from rlverify.records.errors import TimeLimitError

Result = TypeVar("Result")

TIME_LIMIT = 120.0
PATIENCE = 10.0
"""Seconds that code has for ending after its limit, or as many as the limit has where that is shorter."""
AGAIN = 1.0
"""Seconds after which code that swallowed the first error gets the next one."""


class _TimeIsUp(BaseException):
    """Raised inside the code that takes too long; ``except Exception`` does not catch it."""


def hard_limit(seconds: float) -> float:
    """Seconds after which a worker process ends itself, whatever it runs."""
    return seconds + min(seconds, PATIENCE)


def run_within(seconds: float, action: Callable[[], Result]) -> Result:
    """Whatever the action returns; TimeLimitError if the time was up before it ended, whatever it swallowed.

    The alarm reaches Python code, in the main thread, of systems that have SIGALRM (not Windows); elsewhere there is no
    limit. It is repeated until the action ends. A worker process that does not end, because it waits in compiled code
    or swallows every error, ends itself at its `hard_limit` with a traceback on stderr.

    This is a function because an alarm between the end of a ``with`` block and its ``__exit__`` would leave the alarm
    on.

    :param seconds: above 0, of wall-clock time
    :raises TimeLimitError: when they are over
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        return action()
    places: list[str] = []

    def give_up(_signal: int, frame: FrameType | None) -> None:
        places.append(f"{'/'.join(Path(frame.f_code.co_filename).parts[-2:])}:{frame.f_lineno}" if frame else "")
        raise _TimeIsUp

    before = signal.signal(signal.SIGALRM, give_up)
    in_worker = multiprocessing.parent_process() is not None
    if in_worker:
        faulthandler.dump_traceback_later(hard_limit(seconds), exit=True)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
            return action()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)  # again: the alarm may have come right before the first
        signal.signal(signal.SIGALRM, before)
        if in_worker:
            faulthandler.cancel_dump_traceback_later()
        if places and not isinstance(sys.exception(), KeyboardInterrupt):
            raise TimeLimitError(f"did not end within {seconds:g} seconds and stood at {places[0] or 'no Python code'}")
