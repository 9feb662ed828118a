"""Runs a test session with faults planted: ``pytest -p verification.pytest_plugin --plant FAULT``.

The faults stay in place for the whole session, in the workers of pytest-xdist as well; the summary tells how often each
ran.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import Any

import pytest

from verification.errors import HarnessError
from verification.faults import Planted, null_fault_of, plant
from verification.laboratory import Laboratory

SUMMARY = "planted {name}: executed {executions} times"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of this plugin."""
    group = parser.getgroup("verification")
    group.addoption("--plant", action="append", default=[], metavar="FAULT", help="put this known bug back")
    group.addoption("--plant-null", action="append", default=[], metavar="FAULT", help="replace its target by itself")
    group.addoption("--plant-from", default="verification", metavar="PACKAGE", help="the package that has the faults")


def pytest_configure(config: pytest.Config) -> None:
    """Plant what was asked for, before any test module is imported."""
    if config.getoption("--plant") or config.getoption("--plant-null"):
        config.pluginmanager.register(PlantedSession(config), "planted-session")


class PlantedSession:
    """The faults of one session and what became of them."""

    def __init__(self, config: pytest.Config) -> None:
        laboratory = Laboratory(config.getoption("--plant-from"))
        self.stack = ExitStack()
        self.planted: list[Planted] = []
        self.of_workers: Counter[str] = Counter()
        try:
            faults = [laboratory.fault(name) for name in config.getoption("--plant")]
            faults += [null_fault_of(laboratory.fault(name)) for name in config.getoption("--plant-null")]
            for fault in faults:
                self.planted.append(self.stack.enter_context(plant(fault)))
        except HarnessError as error:
            self.stack.close()
            raise pytest.UsageError(str(error)) from error

    @property
    def executions(self) -> dict[str, int]:
        """How often each fault ran, here and in the workers."""
        return {each.fault.name: each.executions + self.of_workers[each.fault.name] for each in self.planted}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over the counts of a worker that has finished."""
        self.of_workers.update(getattr(node, "workeroutput", {}).get("planted", {}))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand the counts of a worker to the process that started it."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["planted"] = self.executions

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Tell how often each fault ran."""
        for name, executions in self.executions.items():
            terminalreporter.write_line(SUMMARY.format(name=name, executions=executions))

    def pytest_unconfigure(self) -> None:
        """Take the faults out again."""
        self.stack.close()
