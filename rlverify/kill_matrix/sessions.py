"""Test sessions in processes of their own, forked where the system can from one that has imported what they need."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

CAN_FORK = hasattr(os, "fork") and hasattr(os, "killpg")
SESSION_LIMIT = 600.0
# What would make the inner session answer for the outer one: its options, its plugins, its coverage threshold.
OF_THE_OUTER_SESSION = (
    *("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_XDIST", "PYTEST_CURRENT_TEST", "PYTEST_VERSION"),
    *("COV_", "COVERAGE_"),
)
PLUGIN = "rlverify"
"""The name of the entry point, so that a session finds the plugin with automatic loading switched off as well."""

SessionFate: TypeAlias = Literal["killed", "survived", "unreached", "error"]


@dataclass(frozen=True)
class Session:
    """What became of a session."""

    exit_code: int
    output: str


def run_session(arguments: Sequence[str], *, root: Path, environment: Mapping[str, str], limit: float) -> Session:
    """Run pytest in a process of its own.

    The first session of a project and an environment imports everything, and later ones are forked. Every thread has a
    process of its own that forks, so that sessions of several threads run at the same time. Where that process cannot
    start, a fresh process runs the session; stderr has the reason.

    :param limit: seconds after which the session is stopped, together with all that it started
    """
    found = _server_for(root, environment).run(arguments, limit) if CAN_FORK else None
    return found or _run_fresh(arguments, root, environment, limit)


def _run_fresh(arguments: Sequence[str], root: Path, environment: Mapping[str, str], limit: float) -> Session:
    command = [sys.executable, "-m", "pytest", *arguments]
    try:
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=limit
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError from error
    return Session(done.returncode, done.stdout + done.stderr)


class ForkServer:
    """The process that forks the sessions of one project and environment (see `rlverify.kill_matrix.fork_server`)."""

    def __init__(self, root: Path, environment: Mapping[str, str]) -> None:
        self.setting = (root, dict(environment))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rlverify.kill_matrix.fork_server"],
            cwd=root,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked for another session."""
        return self._process.poll() is None

    def run(self, arguments: Sequence[str], limit: float) -> Session | None:
        """Run one session; None if there was none because the fork server itself could not start."""
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
            raise TimeoutError
        return self._process.stdout.readline()

    def close(self) -> None:
        """End it, and all that it started."""
        if self.is_alive:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


_servers: dict[int, ForkServer] = {}
"""The latest one, by thread."""


def _server_for(root: Path, environment: Mapping[str, str]) -> ForkServer:
    thread = threading.get_ident()
    latest = _servers.get(thread)
    if latest is not None and latest.setting == (root, dict(environment)) and latest.is_alive:
        return latest
    if latest is not None:
        latest.close()
    _servers[thread] = ForkServer(root, environment)
    return _servers[thread]


def close() -> None:
    """End the processes that fork sessions; the next session starts another."""
    while _servers:
        _servers.popitem()[1].close()


atexit.register(close)


@dataclass
class SessionOutcome:
    """What became of the tests and of the faults.

    :param passed: ids of the tests that ran to their end; one that is torn down with an error is in ``errors`` as well
    :param skipped: ids of the tests that were skipped, or failed as they were expected to
    :param errors: ids of the tests and files that could not be set up, torn down or collected
    :param mistakes: ids of the tests in which a fault's own code went wrong, whatever became of the test
    """

    passed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    mistakes: list[str] = field(default_factory=list)
    executions: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TestRun:
    """What became of a test session."""

    __test__ = False  # in a test module that imports it

    exit_code: int
    outcome: SessionOutcome | None
    output: str

    @property
    def executions(self) -> int:
        """How often the faults ran."""
        return sum(self.outcome.executions.values()) if self.outcome else 0

    @property
    def failed(self) -> tuple[str, ...]:
        """The ids of the tests that failed themselves."""
        return tuple(self.outcome.failed) if self.outcome else ()

    @property
    def errors(self) -> tuple[str, ...]:
        """The ids of the tests and files that could not be set up, torn down or collected, or met a mistake."""
        return (*self.outcome.errors, *self.outcome.mistakes) if self.outcome else ()

    @property
    def fate(self) -> SessionFate:
        """What became of the faults.

        ``error`` if the session could not be run to its end, failed without a failed test, only met errors outside the
        tests' own code (at set-up, say), or met a mistake in a fault's own code; else ``unreached`` if a fault never
        ran, whether or not a test failed; else ``killed`` if a test failed and ``survived`` if none did.
        """
        if self.outcome is None or self.outcome.mistakes or self.exit_code != int(bool(self.failed)):
            return "error"
        if not all(self.outcome.executions.values()):
            return "unreached"
        return "killed" if self.failed else "survived"


def run_under_faults(
    faults: Sequence[str], tests: Sequence[str], *, root: Path, null: bool = False, limit: float = SESSION_LIMIT
) -> TestRun:
    """Run tests with one or more faults planted, in a process of their own.

    :param null: plant the null faults of the same members instead
    :param limit: seconds after which the session is stopped, which is an ``error``
    """
    option = "--plant-null" if null else "--plant"
    return run_tests([*(part for fault in faults for part in (option, fault)), *tests], root=root, limit=limit)


def run_tests(arguments: Sequence[str], *, root: Path, limit: float = SESSION_LIMIT) -> TestRun:
    """Run tests in a process of their own, with nothing planted but what the arguments ask for."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OF_THE_OUTER_SESSION)}
    # What a stopped session has started may still write while its folder is removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        outcome = Path(folder) / "outcome.json"
        options = ["-p", PLUGIN, "--plant-outcome", str(outcome)]
        options += [f"--basetemp={folder}/tests", "-p", "no:cacheprovider", "-p", "no:randomly"]
        options += ["-q", "-rfE", "--tb=short", "--color=no"]
        try:
            session = run_session([*options, *arguments], root=root, environment=environment, limit=limit)
        except TimeoutError:
            return TestRun(-signal.SIGKILL, None, f"the session was stopped after {limit:g} s")
        found = SessionOutcome(**json.loads(outcome.read_text(encoding="utf-8"))) if outcome.is_file() else None
    return TestRun(session.exit_code, found, session.output)
