"""Rules run in this process, as on systems without fork: ten times as fast, and seen by coverage and by mutants."""

from __future__ import annotations

import os

import pytest

FORK = os.fork
ABOUT_PROCESSES = ("isolation", "one_pair", "random_state", "search", "shared_start")
"""Files of tests that are about processes, or about what a process keeps from another."""


@pytest.fixture(autouse=True)
def _in_this_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.module.__name__.endswith(ABOUT_PROCESSES):
        monkeypatch.delattr(os, "fork")


@pytest.fixture
def processes(_in_this_process: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rules run in processes of their own in spite of that."""
    monkeypatch.setattr(os, "fork", FORK, raising=False)
