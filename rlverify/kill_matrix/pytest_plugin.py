"""Runs a test session with faults planted: ``pytest --plant FAULT``; or shows all causes of failed checks.

The faults stay planted for the whole session, in the workers of pytest-xdist as well; the summary says how often each
was executed. This module is the entry point that pytest imports in every session, so it imports nothing until a fault
is asked for.
"""

from __future__ import annotations

import os

import pytest

OPTIONS = ("--plant", "--plant-null", "--plant-outcome")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of this plugin."""
    group = parser.getgroup("rlverify", "rlverify: tests with known bugs re-injected")
    group.addoption("--plant", action="append", default=[], metavar="FAULT", help="re-inject this known bug")
    group.addoption(
        "--plant-null", action="append", default=[], metavar="FAULT", help="replace what it replaces by itself"
    )
    group.addoption("--rlverify-all-causes", action="store_true", help="list all causes of a failed check")
    group.addoption("--plant-outcome", metavar="FILE", help="write what became of tests and faults as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Plant what was asked for, before any test module is imported."""
    if config.getoption("--rlverify-all-causes"):
        from rlverify.checks.pytest_door import ALL_CAUSES

        os.environ[ALL_CAUSES] = "1"
    if any(config.getoption(option) for option in OPTIONS):
        from rlverify.kill_matrix.planted_session import PlantedSession

        config.pluginmanager.register(PlantedSession(config), "planted-session")
