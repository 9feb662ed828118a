"""The suites of a project in `gate`: what is not as expected in them is a problem of the gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlverify.checks.check_records import CheckRecord, Status
from rlverify.checks.choosing import chosen_rules
from rlverify.checks.targets import Target, import_targets
from rlverify.cli.checking import TargetSettings, run_checks
from rlverify.records.exit_codes import CLAIM_FELL, HARNESS_FAILED
from rlverify.records.problems import Problem
from rlverify.reporting.check_run.check_outcome import reason, summary
from rlverify.running.executors import InlineExecutor


@dataclass(frozen=True)
class SuitesResult:
    """A run of the suites of a project.

    :param problems: what is not as expected
    :param notes: what was run
    """

    checks: tuple[CheckRecord, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


def run_suites(names: Sequence[str], folder: Path) -> SuitesResult:
    """Run the suites of a project.

    :param names: as ``package.module:suite``
    :param folder: that modules and files are looked for in
    :raises UsageError: if a suite cannot be imported
    """
    targets = import_targets(names, folder)
    rules = chosen_rules((), (), [each.subject for each in targets])
    run = run_checks(targets, rules, InlineExecutor(), TargetSettings(folder))
    found = [_problem(each.target, record) for each in run.subjects for record in each.records if record.is_unexpected]
    return SuitesResult(tuple(run.records), tuple(found), (f"suites: {summary(run)}",))


def _problem(target: Target, record: CheckRecord) -> Problem:
    code = HARNESS_FAILED if record.status is Status.ERROR else CLAIM_FELL
    subject = f"{record.subject}: {record.check}"
    remedy = f"`rlverify check {target.text} --check {record.check}` repeats it"
    sentence = f"{reason(record)}; expected: {record.finding.expected.rstrip('.')}"
    return Problem(subject, code, sentence, "suite", remedy)
