"""Runs a test session with faults planted: ``pytest -p verification.pytest_plugin --plant FAULT``.

The faults stay in place for the whole session, in the workers of pytest-xdist as well; the summary tells how often each
ran.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from verification.errors import HarnessError
from verification.faults import Fault, Planted, null_fault_of, plant, registered
from verification.laboratory import Laboratory

MISTAKE = "mistake in a planted fault"
SUMMARY = "planted {name}: executed {executions} times"


@dataclass
class Outcome:
    """What became of the tests and of the faults.

    :param passed: ids of the tests that ran to their end; one that is torn down with an error is in ``errors`` as well
    :param skipped: ids of the tests that were skipped, or failed as they were expected to
    :param failed: ids of the tests that failed themselves
    :param errors: ids of the tests and files that could not be set up, torn down or collected
    :param mistakes: ids of the tests in which a fault's own code went wrong, whatever became of the test
    :param executions: how often each fault ran
    """

    passed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    mistakes: list[str] = field(default_factory=list)
    executions: dict[str, int] = field(default_factory=dict)


def read_outcome(path: Path) -> Outcome:
    """Read the file that ``--plant-outcome`` wrote."""
    return Outcome(**json.loads(path.read_text(encoding="utf-8")))


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of this plugin."""
    group = parser.getgroup("verification")
    group.addoption("--plant", action="append", default=[], metavar="FAULT", help="put this known bug back")
    group.addoption("--plant-null", action="append", default=[], metavar="FAULT", help="replace its target by itself")
    group.addoption("--plant-from", default="verification", metavar="PACKAGE", help="the package that has the faults")
    group.addoption("--plant-outcome", metavar="FILE", help="write what became of tests and faults as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Plant what was asked for, before any test module is imported."""
    if any(config.getoption(option) for option in ("--plant", "--plant-null", "--plant-outcome")):
        config.pluginmanager.register(PlantedSession(config), "planted-session")


def _found(laboratory: Laboratory, name: str) -> Fault:
    """The fault of that name, of the laboratory or of a module that pytest has imported (``-p module``)."""
    return laboratory.faults.get(name) or registered().get(name) or laboratory.fault(name)


class PlantedSession:
    """The faults of one session and what became of them."""

    def __init__(self, config: pytest.Config) -> None:
        self.stack = ExitStack()
        self.planted: list[Planted] = []
        self.mistakes_told = 0
        self.of_workers: Counter[str] = Counter()
        self.outcome = Outcome()
        self.outcome_file: str | None = config.getoption("--plant-outcome")
        try:
            laboratory = Laboratory(config.getoption("--plant-from"))
            faults = [_found(laboratory, name) for name in config.getoption("--plant")]
            faults += [null_fault_of(_found(laboratory, name)) for name in config.getoption("--plant-null")]
            for fault in faults:
                self.planted.append(self.stack.enter_context(plant(fault)))
        except (HarnessError, ImportError) as error:
            self.stack.close()
            raise pytest.UsageError(str(error)) from error

    @property
    def executions(self) -> dict[str, int]:
        """How often each fault ran, here and in the workers."""
        return {each.fault.name: each.executions + self.of_workers[each.fault.name] for each in self.planted}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Mark a test in which a fault's own code went wrong, which proves nothing about the test."""
        report = yield
        mistakes = sum(len(each.mistakes) for each in self.planted)
        if mistakes > self.mistakes_told:
            report.user_properties.append((MISTAKE, True))
        self.mistakes_told = mistakes
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what became of a test, and where it failed, whether it was the test itself."""
        if (MISTAKE, True) in report.user_properties:
            self.outcome.mistakes.append(report.nodeid)
        elif report.failed:
            (self.outcome.failed if report.when == "call" else self.outcome.errors).append(report.nodeid)
        elif report.skipped:
            self.outcome.skipped.append(report.nodeid)
        elif report.when == "call":
            self.outcome.passed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note what could not be collected."""
        if report.failed:
            self.outcome.errors.append(report.nodeid)

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
        """Tell how often each fault ran, and write the outcome where it is asked for."""
        self.outcome.executions = self.executions
        if self.outcome_file is not None:
            Path(self.outcome_file).write_text(json.dumps(asdict(self.outcome)), encoding="utf-8")
        for name, executions in self.executions.items():
            terminalreporter.write_line(SUMMARY.format(name=name, executions=executions))

    def pytest_unconfigure(self) -> None:
        """Take the faults out again."""
        self.stack.close()
