"""Ctrl-C while workers start waits, and then does what it did before."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from rlcore.pbt import interrupts


@pytest.fixture(autouse=True)
def handler_comes_back() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_it_is_raised_when_all_inside_is_done() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    done = []

    def interrupted_twice() -> None:
        with interrupts.raised_at_the_end():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            done.append("all")

    with pytest.raises(KeyboardInterrupt):
        interrupted_twice()
    assert done == ["all"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_comes_first() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupted_and_failed() -> None:
        with interrupts.raised_at_the_end():
            signal.raise_signal(signal.SIGINT)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted_and_failed()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_caller_is_called_once() -> None:
    calls: list[Any] = []
    signal.signal(signal.SIGINT, lambda *_: calls.append("called"))
    with interrupts.raised_at_the_end():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert calls == []
    assert calls == ["called"]


def test_what_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interrupts.raised_at_the_end():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
