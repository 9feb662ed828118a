"""Chooses and runs the checks of a command line or of a gate, with progress on stderr; shows rules and runs."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from rlverify.checks import CheckRecord, Status, Subject, check_subject
from rlverify.checks.engine.rule import RULES, Rule
from rlverify.checks.engine.rule_runs import not_run, rule_named
from rlverify.checks.engine.session import TierName
from rlverify.checks.pytest_door import details
from rlverify.checks.targets import Target, import_targets
from rlverify.cli.console import ProgressLine, mention, plain_table
from rlverify.records.errors import UsageError, suggestion
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
from rlverify.running.executors import Ended, Executor, InlineExecutor


def chosen_rules(
    checks: Sequence[str], families: Sequence[str], subjects: Sequence[Subject] = ()
) -> list[dict[str, Rule]]:
    """For each subject the chosen rules in the order in which they run: those named and those of the families, or all.

    Of a suite, the rules are its checks and claims. One that is named can be that of another subject.

    :param subjects: what is checked; without any, the rules for any algorithm
    """
    every = [RULES if each.rules is None else each.rules for each in subjects] or [RULES]
    known = {name: rule for own in every for name, rule in own.items()}
    families_known = dict.fromkeys(each.family for each in known.values())
    for what, names, options in (("check", checks, [*known]), ("family", families, [*families_known])):
        for name in names:
            if name not in options:
                hint = suggestion(name, options) or f"; choose from {', '.join(options)}"
                raise UsageError(f"no {what} is named {name!r}{hint}")
    is_all = not checks and not families
    chosen = [
        {name: rule for name, rule in own.items() if is_all or name in checks or rule.family in families}
        for own in every
    ]
    for made, own in zip(subjects, chosen, strict=False):
        for name in made.expected_failures:
            rule_named(name, made.known_rules)
        if not own:
            others = "choose others" if made.rules is None else f"it has {', '.join(made.rules) or 'no checks'}"
            raise UsageError(f"no check was chosen for {made.name}, so nothing would be checked; {others}")
    return chosen


def reasons_to_run(records: Sequence[CheckRecord], made: Subject) -> list[str]:
    """The rules that inconclusive records rest on and that have no record themselves."""
    known = {each.check for each in records}
    blocked = [each.check for each in records if each.status is Status.INCONCLUSIVE]
    needed = {name for check in blocked for name in made.known_rules[check].rests_on}
    return [name for name in RULES if name in needed - known]


@dataclass(frozen=True)
class Asked:
    """What is to be checked, and how; small enough to be sent to a worker process, which imports the targets again."""

    targets: tuple[str, ...]
    folder: Path
    checks: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    limit: float | None = None
    tier: TierName | None = None
    strict: bool = False
    as_is: bool = False

    def imported(self) -> list[Target]:
        """The subjects of all targets."""
        return import_targets(self.targets, self.folder, self.limit, self.tier, strict=self.strict, as_is=self.as_is)


@dataclass(frozen=True)
class _CheckTask:
    """A subject to be checked by the chosen rules.

    :param asked: with the target of this subject alone
    :param number: which of the subjects of its target it is
    """

    asked: Asked
    number: int
    name: str
    chosen: tuple[str, ...]


def run_checks(asked: Asked, executor: Executor) -> CheckRun:
    """Run the chosen rules on all subjects."""
    targets = asked.imported()
    chosen = chosen_rules(asked.checks, asked.families, [each.subject for each in targets])
    seen: Counter[str] = Counter()
    tasks: list[_CheckTask] = []
    for each, own in zip(targets, chosen, strict=True):
        alone = replace(asked, targets=(each.text,))
        tasks.append(_CheckTask(alone, seen[each.text], each.subject.name, tuple(own)))
        seen[each.text] += 1
    done = count(1)

    def note(task: _CheckTask, ended: Ended[tuple[CheckRecord, ...]]) -> None:
        if len(tasks) > 1:
            mention(f"{next(done)} of {len(tasks)}: {task.asked.targets[0]} ({ended.seconds:.0f} s)")

    found = executor.map(_check, tasks, note=note)
    pairs = zip(targets, chosen, found, strict=True)
    return CheckRun(tuple(CheckedSubject(each, ended.result or _lost(each, own, ended)) for each, own, ended in pairs))


def _check(task: _CheckTask) -> tuple[CheckRecord, ...]:
    """The records of a subject, before them those of the rules that explain why others are inconclusive."""
    target, lines, done = task.asked.imported()[task.number], ProgressLine(), count()
    target = replace(target, subject=replace(target.subject, name=task.name))
    records = check_subject(
        target.subject,
        checks=task.chosen,
        on_check=lambda subject, check: lines.checks(next(done), len(task.chosen), f"{subject}: {check}"),
    )
    if reasons := reasons_to_run(records, target.subject):
        records = [*check_subject(target.subject, checks=reasons), *records]
    return tuple(replace(each, reproduction=_command(target, each.check)) for each in records)


def _lost(target: Target, chosen: Collection[str], ended: Ended[tuple[CheckRecord, ...]]) -> tuple[CheckRecord, ...]:
    """The records of a target whose worker died."""
    seen = ended.reason or f"the process that checks this target ended with exit code {ended.exit_code}"
    records = (not_run(target.subject.known_rules[name], target.subject, seen) for name in chosen)
    return tuple(replace(each, reproduction=_command(target, each.check)) for each in records)


def _command(target: Target, check: str) -> str:
    own = target.subject
    options = [" --as-is"] * (own.as_is and own.rules is None) + [f" --limit {own.limit:g}"] * (
        own.limit != Subject.limit
    )
    return f"rlverify check {shlex.quote(target.text)} --check {check}{''.join(options)}"


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
        if each.shrunk:
            yield Text(f"{each.shrunk}\n")
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
    run = run_checks(Asked((*names,), folder), InlineExecutor())
    found = [_problem(each.target, record) for each in run.subjects for record in each.records if record.is_unexpected]
    return tuple(map(case_of, run.records)), tuple(found), f"suites: {summary_of_checks(run)}"


def _problem(target: Target, record: CheckRecord) -> Problem:
    code = HARNESS_FAILED if record.status is Status.ERROR else CLAIM_FELL
    subject = f"{record.subject}: {record.check}"
    remedy = f"`rlverify check {target.text} --check {record.check}` repeats it"
    sentence = f"{reason_in_words(record)}; expected: {record.finding.expected.rstrip('.')}"
    return Problem(subject, code, sentence, "suite", remedy)
