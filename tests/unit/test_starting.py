"""Ctrl-C while a command still imports ends it without a traceback, and raises KeyboardInterrupt later."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest

from rlcore.starting import is_command
from tests.support.repository_copy import ROOT, environment


def with_interrupts() -> None:
    """In a new process: what a shell in the background ignores is not ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def without_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["python", "-m", "rlcore.train", "run.yaml"], True),
        (["python", "-W", "error", "-m", "rlcore.pbt"], True),
        (["python", "-m", "pytest", "rlcore.train"], False),
        (["python", "train.py", "rlcore.pbt"], False),
        (["python", "-m"], False),
    ],
)
def test_only_the_commands_of_this_package_are_commands(arguments: Sequence[str], expected: bool) -> None:
    assert is_command(arguments) is expected


@pytest.mark.parametrize("command", ["rlcore.train", "rlcore.pbt"])
def test_ctrl_c_during_the_imports_ends_a_command_without_a_traceback(command: str) -> None:
    """``python -v`` names every module on stderr once it is imported, so that the moment does not depend on speed."""
    with subprocess.Popen(
        [sys.executable, "-v", "-m", command, "--help"],
        cwd=ROOT,
        env=environment(ROOT),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=with_interrupts,
    ) as process:
        assert process.stderr is not None
        assert any(line.startswith("import 'rlcore.starting'") for line in process.stderr)
        process.send_signal(signal.SIGINT)
        output, rest = process.communicate()
    assert process.returncode == -signal.SIGINT
    assert (output, "Traceback" in rest) == ("", False)


@pytest.mark.parametrize("command", ["rlcore.train", "rlcore.pbt"])
@pytest.mark.parametrize(
    ("inherited", "importing", "running"),
    [(with_interrupts, "SIG_DFL", "default_int_handler"), (without_interrupts, "SIG_IGN", "SIG_IGN")],
    ids=["foreground", "background"],
)
def test_a_command_handles_ctrl_c_itself_once_it_runs(
    command: str, inherited: Callable[[], None], importing: str, running: str
) -> None:
    code = (
        "import runpy, signal, sys, typer\n"
        f"sys.orig_argv = ['python', '-m', {command!r}]\n"
        "import rlcore\n"
        f"assert signal.getsignal(signal.SIGINT) is signal.{importing}\n"
        f"typer.Typer.__call__ = lambda *_, **__: sys.exit(signal.getsignal(signal.SIGINT) is not signal.{running})\n"
        f"runpy.run_module({command!r}, run_name='__main__', alter_sys=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=ROOT,
        env=environment(ROOT),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=inherited,
    )
    assert (done.returncode, done.stderr) == (0, "")
