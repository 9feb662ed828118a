"""Runs the checks of a command line or of a gate, with progress on stderr, and shows rules and runs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from rlverify.checks import CheckFinding, CheckRecord, Status, check_subject
from rlverify.checks.engine.choosing import chosen_rules, reasons_to_run
from rlverify.checks.engine.rule import RULES
from rlverify.checks.engine.session import TierName
from rlverify.checks.pytest_door import details
from rlverify.checks.targets import Target, import_targets
from rlverify.cli.console import Lines, mention, plain_table
from rlverify.records import process
from rlverify.records.problems import CLAIM_FELL, HARNESS_FAILED, Problem
from rlverify.reporting.check_formats import (
    CheckedSubject,
    CheckRun,
    case_of,
    outcome_words,
    reason_in_words,
    summary_of_checks,
)
from rlverify.reporting.outcome import Case
from rlverify.running.executors import Ended, Executor, InlineExecutor, ProcessExecutor, own_temporary_folder

OnCheck = Callable[[str, str], None]


@dataclass(frozen=True)
class TargetSettings:
    """The settings with which targets were imported, for a worker that imports them again; see `import_targets`."""

    folder: Path
    limit: float | None = None
    tier: TierName | None = None
    strict: bool = False


@dataclass(frozen=True)
class _CheckTask:
    """A target to be checked in a worker.

    :param number: which of the subjects of this text it is
    """

    given: TargetSettings
    text: str
    number: int
    name: str
    chosen: tuple[str, ...]


def run_checks(
    targets: Sequence[Target], chosen: Sequence[Collection[str]], executor: Executor, given: TargetSettings
) -> CheckRun:
    """Run the chosen rules on all subjects.

    :param executor: where; worker processes are used for several targets only, as each check has one in any case
    """
    is_here = isinstance(executor, InlineExecutor) or (isinstance(executor, ProcessExecutor) and len(targets) == 1)
    return _checked_here(targets, chosen) if is_here else _checked_in_workers(targets, chosen, executor, given)


def _checked_in_workers(
    targets: Sequence[Target], chosen: Sequence[Collection[str]], executor: Executor, given: TargetSettings
) -> CheckRun:
    tasks: list[_CheckTask] = []
    for each, own in zip(targets, chosen, strict=True):
        number = sum(task.text == each.text for task in tasks)
        tasks.append(_CheckTask(given, each.text, number, each.subject.name, tuple(own)))
    done = count(1)

    def note(task: _CheckTask, ended: Ended[tuple[CheckRecord, ...]]) -> None:
        mention(f"{next(done)} of {len(tasks)}: {task.text} ({ended.seconds:.0f} s)")

    found = executor.map(_check, tasks, note=note)
    pairs = zip(targets, chosen, found, strict=True)
    return CheckRun(tuple(CheckedSubject(each, ended.result or _lost(each, own, ended)) for each, own, ended in pairs))


def _check(task: _CheckTask) -> tuple[CheckRecord, ...]:
    given = task.given
    target = import_targets([task.text], given.folder, given.limit, given.tier, strict=given.strict)[task.number]
    target = replace(target, subject=replace(target.subject, name=task.name))
    return _records(target, task.chosen, lambda *_: None)


def _lost(target: Target, chosen: Collection[str], ended: Ended[tuple[CheckRecord, ...]]) -> tuple[CheckRecord, ...]:
    """The records of a target whose worker died."""
    seen = ended.reason or f"the process that checks this target ended with exit code {ended.exit_code}"
    rules = [target.subject.rule(name) for name in chosen]
    return tuple(
        CheckRecord(
            target.subject.name,
            rule.name,
            rule.family,
            rule.severity,
            CheckFinding(Status.ERROR, rule.expected, seen),
            reproduction=_command(target, rule.name),
        )
        for rule in rules
    )


def _checked_here(targets: Sequence[Target], chosen: Sequence[Collection[str]]) -> CheckRun:
    with process.raised(), own_temporary_folder():
        lines, done, total = Lines(), count(), sum(map(len, chosen))

        def on_check(subject: str, check: str) -> None:
            lines.checks(next(done), total, f"{subject}: {check}")

        pairs = zip(targets, chosen, strict=True)
        return CheckRun(tuple(CheckedSubject(each, _records(each, own, on_check)) for each, own in pairs))


def _records(target: Target, chosen: Collection[str], on_check: OnCheck) -> tuple[CheckRecord, ...]:
    """The records of a subject, before them those of the rules that explain why others are inconclusive."""
    records = check_subject(target.subject, checks=chosen, on_check=on_check)
    reasons = reasons_to_run(records, target.subject)
    if reasons:
        records = [*check_subject(target.subject, checks=reasons), *records]
    return tuple(replace(each, reproduction=_command(target, each.check)) for each in records)


def _command(target: Target, check: str) -> str:
    return f"rlverify check {shlex.quote(target.text)} --check {check}"


STYLES_OF_STATUS: Final = {Status.PASS: "green", Status.FAIL: "red", Status.ERROR: "red", Status.INCONCLUSIVE: "yellow"}


def rules_table(names: Sequence[str]) -> Table:
    """One line a rule."""
    table = plain_table("check", "family", "severity", "expected", wrapped=["expected"])
    for name in names:
        rule = RULES[name]
        table.add_row(name, rule.family, rule.severity, Text(rule.expected))
    return table


def check_parts(run: CheckRun, *, all_causes: bool = False) -> Iterator[Any]:
    """A table for each subject, what is wrong in detail, and all in one line."""
    for each in run.subjects:
        yield Text(f"{each.target.subject.name} ({each.target.text})\n")
        yield _table(each)
        yield Text("")
    yield from _wrong(run, all_causes)
    yield Text(summary_of_checks(run))


def _wrong(run: CheckRun, all_causes: bool) -> Iterator[Text]:
    """What is not as expected in detail; of checks that one crash stopped, the first, and the names of the others."""
    stopped: dict[tuple[str, str], list[str]] = {}
    for record in run.records:
        if record.status is Status.ERROR:
            stopped.setdefault((record.subject, record.finding.seen), []).append(record.check)
    for record in run.records:
        own, *others = stopped.get((record.subject, record.finding.seen), [record.check])
        if record.is_unexpected and record.check == own:
            also = f"\nstops as well: {', '.join(others)}" if others else ""
            yield Text(f"{details(record, all_causes=all_causes)}{also}\n")


def _table(checked: CheckedSubject) -> Table:
    table = plain_table("status", "check", "outcome", wrapped=["outcome"])
    for record in checked.records:
        table.add_row(_status(record), record.check, Text(_short(record)))
    return table


def _status(record: CheckRecord) -> Text:
    """The status; its colour says nothing that the words do not."""
    style = STYLES_OF_STATUS.get(record.status, "")
    if record.status is Status.FAIL and not record.is_unexpected and not record.known:
        return Text("known", style="green")
    if record.expected_failure and record.status in (Status.PASS, Status.FAIL):
        style = "red" if record.is_unexpected else "green"
    return Text(record.status.value, style=style)


def _short(record: CheckRecord) -> str:
    """The outcome; of what is shown in detail below the table, only where it was seen."""
    if record.status is Status.FAIL and record.is_unexpected and record.finding.where:
        return record.finding.where
    return outcome_words(record).removeprefix("known ")


def run_suites(names: Sequence[str], folder: Path) -> tuple[tuple[Case, ...], tuple[Problem, ...], str]:
    """Run the suites of a project; return their checks, what is not as expected, and what was run."""
    targets = import_targets(names, folder)
    rules = chosen_rules((), (), [each.subject for each in targets])
    run = run_checks(targets, rules, InlineExecutor(), TargetSettings(folder))
    found = [_problem(each.target, record) for each in run.subjects for record in each.records if record.is_unexpected]
    return tuple(map(case_of, run.records)), tuple(found), f"suites: {summary_of_checks(run)}"


def _problem(target: Target, record: CheckRecord) -> Problem:
    code = HARNESS_FAILED if record.status is Status.ERROR else CLAIM_FELL
    subject = f"{record.subject}: {record.check}"
    remedy = f"`rlverify check {target.text} --check {record.check}` repeats it"
    sentence = f"{reason_in_words(record)}; expected: {record.finding.expected.rstrip('.')}"
    return Problem(subject, code, sentence, "suite", remedy)
