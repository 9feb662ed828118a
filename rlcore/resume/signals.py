"""SIGTERM and Ctrl-C as a request to stop, while a model trains."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable
from types import FrameType
from typing import Any, Final

from rlcore.resume.stack import is_running

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Notes the first SIGTERM or SIGINT that arrives while ``model.learn()`` runs; a second one does what it did.

    :param model: whose ``learn()`` it is
    :param numbers: the signals
    """

    def __init__(self, model: object, numbers: Iterable[int] = SIGNALS) -> None:
        self._model = model
        self._numbers = tuple(numbers)
        self._former: dict[int, Any] = {}
        self.signal: int | None = None

    def install(self) -> None:
        """Take over the signals that are not ignored; do nothing outside the main thread, where Python cannot."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in self._numbers:
            former = signal.getsignal(number)
            if former is not None and former is not signal.SIG_IGN:  # None: not Python's, so it could not be restored
                self._former[number] = signal.signal(number, self._note)

    def remove(self) -> None:
        """Put the former handlers back, except where another handler has been installed since."""
        for number, former in self._former.items():
            if signal.getsignal(number) == self._note:
                signal.signal(number, former)
        self._former.clear()

    def _note(self, number: int, frame: FrameType | None) -> None:
        # Not training: learn() has ended with an error, which no callback hears of.
        if self.signal is not None or frame is None or not is_running(self._model, "learn", frame):
            self.remove()
            signal.raise_signal(number)
        else:
            self.signal = number
