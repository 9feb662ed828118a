"""Ends what takes too long: a probe that never returns must not hold the gate for ever."""

from __future__ import annotations

import faulthandler
import multiprocessing
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rlverify.records.errors import TimeLimitError

TIME_LIMIT = 120.0
PATIENCE = 2.0


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeLimitError inside the block once the time is up.

    The alarm reaches Python code, in the main thread, of systems that have SIGALRM (not Windows); elsewhere there is no
    limit. A worker process that does not answer the alarm, because it waits in compiled code, ends itself after
    `PATIENCE` times the limit with a traceback on stderr.

    :param seconds: above 0, of wall-clock time
    :raises TimeLimitError: when they are over
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def give_up(_signal: int, frame: FrameType | None) -> None:
        place = f"{'/'.join(Path(frame.f_code.co_filename).parts[-2:])}:{frame.f_lineno}" if frame else "no Python code"
        raise TimeLimitError(f"did not end within {seconds:g} seconds and stood at {place}")

    before = signal.signal(signal.SIGALRM, give_up)
    in_worker = multiprocessing.parent_process() is not None
    if in_worker:
        faulthandler.dump_traceback_later(PATIENCE * seconds, exit=True)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if in_worker:
            faulthandler.cancel_dump_traceback_later()
