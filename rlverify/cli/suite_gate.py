"""The suites of a project in `gate`: what is not as expected in them is a problem of the gate."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlverify.checks.check_records import CheckRecord, Status
from rlverify.checks.choosing import chosen_rules
from rlverify.checks.targets import Target, import_targets
from rlverify.cli.checking import TargetSettings, run_checks
from rlverify.gating.git_base import Base
from rlverify.records.exit_codes import CLAIM_FELL, HARNESS_FAILED
from rlverify.records.problems import Problem
from rlverify.reporting.check_run.check_outcome import CheckRun, summary
from rlverify.reporting.check_run.check_outcome_text import reason
from rlverify.running.executors import InlineExecutor
from rlverify.running.runner import Crash, attempt


@dataclass(frozen=True)
class SuitesResult:
    """A run of the suites of a project.

    :param problems: what is not as expected
    :param notes: what was run, and what was not
    """

    checks: tuple[CheckRecord, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


def run_suites(names: Sequence[str], folder: Path, since: Base | None) -> SuitesResult:
    """Run the suites of a project.

    :param names: as ``package.module:suite``
    :param folder: that modules and files are looked for in
    :param since: leave out what has not changed since; None to run all
    :raises UsageError: if a suite cannot be imported
    """
    targets = import_targets(names, folder)
    chosen = [each for each in targets if since is None or _has_changed(each, since)]
    left_out = len(targets) - len(chosen)
    rules = chosen_rules((), (), [each.subject for each in chosen])
    run = run_checks(chosen, rules, InlineExecutor(), TargetSettings(folder)) if chosen else CheckRun(())
    found = [_problem(each.target, record) for each in run.subjects for record in each.records if record.is_unexpected]
    notes = [f"suites: {summary(run)}"] if chosen else []
    if left_out:
        notes.append(f"suites: {left_out} not run, since no file of the packages under test has changed")
    return SuitesResult(tuple(run.records), tuple(found), tuple(notes))


def _problem(target: Target, record: CheckRecord) -> Problem:
    code = HARNESS_FAILED if record.status is Status.ERROR else CLAIM_FELL
    subject = f"{record.subject}: {record.check}"
    remedy = f"`rlverify check {target.text} --check {record.check}` repeats it"
    sentence = f"{reason(record)}; expected: {record.finding.expected.rstrip('.')}"
    return Problem(subject, code, sentence, "suite", remedy)


def _has_changed(target: Target, since: Base) -> bool:
    """Whether a file of the packages that a suite is about, or its own, has changed.

    Also if that is not known, as of packages that are not found or are not in the repository.
    """
    if not target.subject.under_test or target.file.resolve() in since.changed:
        return True
    folders = [each for name in target.subject.under_test for each in _places(name)]
    if None in folders or not all(each.is_relative_to(since.top) for each in folders if each is not None):
        return True
    return any(file.is_relative_to(each) for file in since.changed for each in folders if each is not None)


def _places(name: str) -> Iterator[Path | None]:
    """The folders of a package, or the file of a module; None if it is not found."""
    found = attempt(lambda: importlib.util.find_spec(name))
    if found is None or isinstance(found, Crash):
        yield None
        return
    for each in found.submodule_search_locations or filter(None, [found.origin]):
        yield Path(each).resolve()
