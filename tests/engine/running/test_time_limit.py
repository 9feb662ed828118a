"""Code that takes too long is a TimeLimitError, whatever it swallows."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from rlverify.records.errors import TimeLimitError
from rlverify.running import runner
from rlverify.running.runner import hard_limit, run_within

LONG = 30.0
"""Seconds after which code under test ends by itself, so that a test that fails ends too."""
WORDS = "did not end within 0.1 seconds and stood at running/test_time_limit.py:"


@pytest.fixture(autouse=True)
def _alarms_follow_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "AGAIN", 0.25)


def _swallows_once() -> None:
    with suppress(BaseException):
        time.sleep(LONG)


def _raises_another() -> None:
    try:
        time.sleep(LONG)
    except BaseException as error:
        raise ValueError("another") from error


def _is_interrupted() -> None:
    try:
        time.sleep(LONG)
    finally:
        raise KeyboardInterrupt


@pytest.mark.parametrize("action", [_swallows_once, _raises_another])
def test_no_handler_escapes_the_limit(action: Callable[[], None]) -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TimeLimitError, match=WORDS):
        run_within(0.1, action)
    assert (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)) == (before, (0.0, 0.0))


def test_the_alarm_is_repeated() -> None:
    ended: list[str] = []

    def stubborn() -> None:
        for attempt in ("first", "second", "third"):
            try:
                time.sleep(LONG)
            except BaseException as error:  # noqa: BLE001 - as a probe may
                ended.append(f"{attempt}: {type(error).__name__}")

    with pytest.raises(TimeLimitError):
        run_within(0.1, stubborn)
    assert ended == ["first: _TimeIsUp", "second: _TimeIsUp", "third: _TimeIsUp"]


def test_a_handler_of_exceptions_does_not_see_the_limit() -> None:
    caught: list[Exception] = []

    def persistent() -> None:
        try:
            time.sleep(LONG)
        except Exception as error:  # noqa: BLE001 - as a probe may
            caught.append(error)

    with pytest.raises(TimeLimitError, match=WORDS):
        run_within(0.1, persistent)
    assert caught == []


def test_an_interrupt_after_the_limit_is_an_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt):
        run_within(0.1, _is_interrupted)


def test_what_ends_in_time_is_returned_and_its_errors_are_raised() -> None:
    assert run_within(LONG, lambda: 3) == 3
    with pytest.raises(ValueError, match="could not convert"):
        run_within(LONG, lambda: float("x"))
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.parametrize(("limit", "longest"), [(0.3, 0.6), (10.0, 20.0), (120.0, 130.0)])
def test_what_swallows_every_error_ends_soon_after_its_limit(limit: float, longest: float) -> None:
    assert hard_limit(limit) == longest
