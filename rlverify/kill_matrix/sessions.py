"""Test sessions in processes of their own, forked where the system can from one that has imported what they need."""

from __future__ import annotations

import atexit
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

CAN_FORK = hasattr(os, "fork") and hasattr(os, "killpg")
NO_SERVER = "this session ran in a fresh process, because the fork server has ended"
REMEDY = "correct this, or see all of it with `{python} -m rlverify.kill_matrix.fork_server` in {root}"
PLACE = re.compile(r'^  File "(.+)", line (\d+)', re.MULTILINE)


class SessionTimeoutError(Exception):
    """A session was stopped because its time was up."""


@dataclass(frozen=True)
class Session:
    """What became of a session.

    :param exit_code: pytest's, or negative for a signal
    :param output: all that it printed; first the reason, if it could not be forked
    """

    exit_code: int
    output: str


@dataclass(frozen=True)
class SessionSetting:
    """What a session finds when it starts.

    :param root: the project's folder, whose faults are imported beforehand; the working folder
    :param environment: name and value of every variable
    """

    root: Path
    environment: frozenset[tuple[str, str]]


def run_session(arguments: Sequence[str], *, root: Path, environment: Mapping[str, str], limit: float) -> Session:
    """Run pytest in a process of its own.

    The first session of a setting imports everything, and later ones are forked. Another setting starts from scratch.
    Every thread has a process of its own that forks, so that sessions of several threads run at the same time.

    :param limit: seconds after which the session is stopped, together with all that it started
    :raises SessionTimeoutError: when they are over
    """
    if not CAN_FORK:
        return _run_fresh(arguments, root, environment, limit)
    server = _server_for(SessionSetting(root, frozenset(environment.items())))
    session = server.run(arguments, limit)
    if session is None:
        session = _run_fresh(arguments, root, environment, limit)
        remedy = REMEDY.format(python=sys.executable, root=root)
        session = replace(session, output=f"{NO_SERVER}: {server.reason}; {remedy}\n{session.output}")
    return session


def _run_fresh(arguments: Sequence[str], root: Path, environment: Mapping[str, str], limit: float) -> Session:
    command = [sys.executable, "-m", "pytest", *arguments]
    try:
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=limit
        )
    except subprocess.TimeoutExpired as error:
        raise SessionTimeoutError from error
    return Session(done.returncode, done.stdout + done.stderr)


class ForkServer:
    """The process that forks the sessions of one setting (see `rlverify.kill_matrix.fork_server`).

    Once it is closed, ``reason`` says why it has ended, in one line.
    """

    def __init__(self, setting: SessionSetting) -> None:
        self.setting = setting
        self.reason = ""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - open until the process has ended
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rlverify.kill_matrix.fork_server"],
            cwd=setting.root,
            env=dict(setting.environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked for another session."""
        return self._process.poll() is None

    def run(self, arguments: Sequence[str], limit: float) -> Session | None:
        """One session; None if there was none because the fork server itself could not start.

        :raises SessionTimeoutError: after ``limit`` seconds
        """
        answer = None
        with tempfile.TemporaryDirectory() as folder:
            files = {name: str(Path(folder) / name) for name in ("stdout", "stderr")}
            try:
                answer = self._ask({"arguments": list(arguments), **files}, limit)
            finally:
                if not answer:
                    self.close()
            if not answer:
                return None
            printed = [Path(file).read_text(encoding="utf-8", errors="replace") for file in files.values()]
        return Session(int(answer), "".join(printed))

    def _ask(self, request: Mapping[str, object], limit: float) -> bytes:
        """The line of answer; empty if the fork server has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return b""
        if not select.select([self._process.stdout], [], [], limit)[0]:
            raise SessionTimeoutError
        return self._process.stdout.readline()

    def close(self) -> None:
        """End it, and all that it started."""
        if self.is_alive:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if not self._errors.closed:
            self._errors.seek(0)
            printed = self._errors.read().decode(errors="replace")
            self.reason = _last_words(printed) or f"exit code {self._process.returncode}, and no message"
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()


def _last_words(printed: str) -> str:
    """The last line, with the place of the error where a traceback is above it."""
    last = next((line for line in reversed(printed.splitlines()) if line.strip()), "")
    places = PLACE.findall(printed)
    if not places:
        return last
    file, line = places[-1]
    return f"{last} ({'/'.join(Path(file).parts[-2:])}:{line})"


_servers: dict[int, ForkServer] = {}
"""The one of the latest setting, by thread."""


def _server_for(setting: SessionSetting) -> ForkServer:
    thread = threading.get_ident()
    latest = _servers.get(thread)
    if latest is not None and latest.setting == setting and latest.is_alive:
        return latest
    if latest is not None:
        latest.close()
    _servers[thread] = ForkServer(setting)
    return _servers[thread]


def close() -> None:
    """End the processes that fork sessions; the next session starts another."""
    while _servers:
        _servers.popitem()[1].close()


atexit.register(close)


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


@dataclass
class SessionOutcome:
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


def read_outcome(path: Path) -> SessionOutcome:
    """Read the file that ``--plant-outcome`` wrote."""
    return SessionOutcome(**json.loads(path.read_text(encoding="utf-8")))


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
