"""Whether tests kill a fault: they run in a session of their own, with the fault planted."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from rlverify.kill_matrix.planted_session import SessionOutcome, read_outcome
from rlverify.kill_matrix.sessions import SessionTimeoutError, run_session

SessionFate: TypeAlias = Literal["killed", "survived", "unreached", "error"]

PASSED, FAILED = 0, 1
STOPPED = -9
# What would make the inner session answer for the outer one: its options, its plugins, its coverage threshold.
OF_THE_OUTER_SESSION = (
    *("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_XDIST", "PYTEST_CURRENT_TEST", "PYTEST_VERSION"),
    *("COV_", "COVERAGE_"),
)

PLUGIN = "rlverify"
"""The name of the entry point, so that a session finds the plugin with automatic loading switched off as well."""

SESSION_LIMIT = 600.0


@dataclass(frozen=True)
class TestRun:
    """What became of a test session.

    :param exit_code: pytest's, or negative for a signal
    :param outcome: the results of its tests; None if the session ended before it wrote them
    :param output: all that it printed
    """

    __test__ = False  # in a test module that imports it

    exit_code: int
    outcome: SessionOutcome | None
    output: str


@dataclass(frozen=True)
class Kill:
    """What became of the faults in a test session.

    :param fate: ``error`` if the session could not be run to its end, failed without a failed test, only met errors
        outside the tests' own code (at set-up, say), or met a mistake in a fault's own code; else ``unreached`` if a
        fault never ran, whether or not a test failed; else ``killed`` if a test failed and ``survived`` if none did
    :param executions: how often the faults ran
    :param failed: ids of the tests that failed themselves
    :param errors: ids of the tests and files that could not be set up, torn down or collected, or met a mistake
    :param output: all that the session printed
    """

    fate: SessionFate
    executions: int
    failed: tuple[str, ...]
    errors: tuple[str, ...]
    output: str


def run_under_faults(
    faults: Sequence[str],
    tests: Sequence[str],
    *,
    root: Path,
    null: bool = False,
    limit: float = SESSION_LIMIT,
) -> Kill:
    """Run tests with one or more faults planted, in a process of their own.

    :param faults: names of faults of different members
    :param tests: ids or files, relative to ``root``
    :param root: the folder of the project
    :param null: plant the null faults of the same members instead
    :param limit: seconds after which the session is stopped, which is an ``error``
    """
    option = "--plant-null" if null else "--plant"
    planted = [part for fault in faults for part in (option, fault)]
    return _judge(run_tests([*planted, *tests], root=root, limit=limit))


def run_tests(arguments: Sequence[str], *, root: Path, limit: float = SESSION_LIMIT) -> TestRun:
    """Run tests in a process of their own, with nothing planted but what the arguments ask for.

    :param arguments: of pytest, the ids or files last, relative to ``root``
    """
    # What a stopped session has started may still write while its folder is removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        outcome = Path(folder) / "outcome.json"
        options = ["-p", PLUGIN, "--plant-outcome", str(outcome)]
        options += [f"--basetemp={folder}/tests", "-p", "no:cacheprovider", "-p", "no:randomly"]
        options += ["-q", "-rfE", "--tb=short", "--color=no"]
        try:
            session = run_session([*options, *arguments], root=root, environment=_environment(), limit=limit)
        except SessionTimeoutError:
            return TestRun(STOPPED, None, f"the session was stopped after {limit:g} s")
        found = read_outcome(outcome) if outcome.is_file() else None
    return TestRun(session.exit_code, found, session.output)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(OF_THE_OUTER_SESSION)}


def _judge(run: TestRun) -> Kill:
    outcome = run.outcome
    if outcome is None:
        return Kill("error", 0, (), (), run.output)
    failed, errors = tuple(outcome.failed), (*outcome.errors, *outcome.mistakes)
    return Kill(_fate(run.exit_code, outcome), sum(outcome.executions.values()), failed, errors, run.output)


def _fate(code: int, outcome: SessionOutcome) -> SessionFate:
    told = FAILED if outcome.failed or outcome.errors else PASSED
    if outcome.mistakes or code != told or (outcome.errors and not outcome.failed):
        return "error"
    if not all(outcome.executions.values()):
        return "unreached"
    return "killed" if outcome.failed else "survived"
