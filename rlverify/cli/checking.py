"""Runs the checks of a command line, with progress on stderr."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from rlverify.checks import CheckRecord, check_subject
from rlverify.checks.choosing import reasons_to_run
from rlverify.checks.targets import Target
from rlverify.cli.console import SECONDS_BETWEEN_LINES, mention
from rlverify.records import interrupts
from rlverify.reporting.check_run.check_outcome import CheckedSubject, CheckRun

OnCheck = Callable[[str, str], None]


def run_checks(targets: Sequence[Target], chosen: Sequence[Collection[str]]) -> CheckRun:
    """Run the chosen rules on all subjects.

    :param chosen: names of rules, for each target
    :raises KeyboardInterrupt: after the process of the running check has been stopped
    """
    with interrupts.raised(), progress(sum(map(len, chosen))) as on_check:
        checked = [
            CheckedSubject(each, _records(each, own, on_check)) for each, own in zip(targets, chosen, strict=True)
        ]
        return CheckRun(tuple(checked))


def _records(target: Target, chosen: Collection[str], on_check: OnCheck) -> tuple[CheckRecord, ...]:
    """The records of a subject, before them those of the rules that explain why others are inconclusive."""
    records = check_subject(target.subject, checks=chosen, on_check=on_check)
    reasons = reasons_to_run(records, target.subject)
    if reasons:
        records = [*check_subject(target.subject, checks=reasons), *records]
    return tuple(replace(each, reproduction=_command(target, each.check)) for each in records)


def _command(target: Target, check: str) -> str:
    return f"rlverify check {shlex.quote(target.text)} --check {check}"


@contextmanager
def progress(total: int, clock: Callable[[], float] = time.monotonic) -> Iterator[OnCheck]:
    """Shows on stderr which check runs: as a bar, or as a line every ten seconds where there is no terminal.

    Nothing is drawn from a thread, because checks fork: a child could inherit a lock that the thread holds.

    :param total: how many checks there are
    :param clock: seconds from any start
    """
    console = Console(stderr=True)
    columns = (TextColumn("checking {task.description}"), BarColumn(), MofNCompleteColumn())
    bar = Progress(
        *columns,
        console=console,
        transient=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
        disable=not console.is_terminal,
    )
    task = bar.add_task("", total=total)
    last, done = clock(), count()

    def on_check(subject: str, check: str) -> None:
        nonlocal last
        number, name = next(done), f"{subject}: {check}"
        bar.update(task, completed=number, description=name, refresh=True)
        if bar.disable and clock() - last >= SECONDS_BETWEEN_LINES:
            last = clock()
            mention(f"checking {name} ({number} of {total} done)")

    with bar:
        yield on_check
