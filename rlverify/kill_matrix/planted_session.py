"""A test session with faults planted: which tests failed, and how often each fault was executed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from rlverify.kill_matrix.sessions import SessionOutcome
from rlverify.project.content import Project, open_project
from rlverify.project.planting import Planted, null_fault_of, plant
from rlverify.project.registry import FAULTS, Fault
from rlverify.records.errors import HarnessError

MISTAKE = "mistake in a planted fault"
SUMMARY = "planted {name}: executed {executions} times"


def _found(project: Project, name: str) -> Fault:
    """The fault of that name, of the project or of a module that pytest has imported (``-p module``)."""
    return project.faults.get(name) or FAULTS.entries.get(name) or project.fault(name)


class PlantedSession:
    """The faults of one session and what became of them."""

    def __init__(self, config: pytest.Config) -> None:
        self.stack = ExitStack()
        self.planted: list[Planted] = []
        self.mistakes_told = 0
        self.of_workers: Counter[str] = Counter()
        self.outcome = SessionOutcome()
        self.outcome_file: str | None = config.getoption("--plant-outcome")
        try:
            project = open_project(config.rootpath)
            faults = [_found(project, name) for name in config.getoption("--plant")]
            faults += [null_fault_of(_found(project, name)) for name in config.getoption("--plant-null")]
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
            nothing = "" if executions else ": this session proves nothing about it"
            terminalreporter.write_line(SUMMARY.format(name=name, executions=executions) + nothing)

    def pytest_unconfigure(self) -> None:
        """Take the faults out again."""
        self.stack.close()
