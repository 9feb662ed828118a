"""What a run of the checks found, in words and as JSON, JUnit's XML and SARIF."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rlverify.checks.engine.check_records import CheckRecord, Status
from rlverify.checks.engine.rule import Rule
from rlverify.checks.pytest_door import details
from rlverify.checks.targets import Target
from rlverify.evidence.files import canonical_json, shown_path
from rlverify.records.claims import Severity
from rlverify.records.problems import AS_EXPECTED, CLAIM_FELL, HARNESS_FAILED, SCHEMA_VERSION
from rlverify.reporting.formats import junit_document, page_of
from rlverify.reporting.outcome import Case
from rlverify.reporting.phrasing import cell
from rlverify.reporting.sarif import sarif_document, sarif_result, sarif_rule
from rlverify.verdicts.verdict import ClaimStatus


@dataclass(frozen=True)
class CheckedSubject:
    """A subject and its records, in the order in which they were made."""

    target: Target
    records: tuple[CheckRecord, ...]

    @property
    def shrunk(self) -> str:
        """Which settings were made smaller, in a line; empty for none."""
        return next((each.shrunk for each in self.records if each.shrunk), "")


@dataclass(frozen=True)
class CheckRun:
    """All subjects of one run."""

    subjects: tuple[CheckedSubject, ...]

    @property
    def records(self) -> list[CheckRecord]:
        """The records of all subjects."""
        return [record for each in self.subjects for record in each.records]

    @property
    def exit_code(self) -> int:
        """1 if a check failed or an expected failure passed, whatever else went wrong; 2 if one could not be run.

        2 as well if no check was decided, since nothing is known then.
        """
        unexpected = {each.status for each in self.records if each.is_unexpected}
        if unexpected - {Status.ERROR}:
            return CLAIM_FELL
        return HARNESS_FAILED if unexpected or not self.is_decided else AS_EXPECTED

    @property
    def is_decided(self) -> bool:
        """Whether any check passed or failed."""
        return any(each.status in (Status.PASS, Status.FAIL) for each in self.records)


def summary_of_checks(run: CheckRun) -> str:
    """All records in one line: how many passed, were proven, failed, and so on."""
    found = Counter(each.status for each in run.records)
    proven = sum(any(proof.detected for proof in each.proofs) for each in run.records if each.status is Status.PASS)
    failed = [each for each in run.records if each.status is Status.FAIL and not each.is_unexpected]
    librarys = sum(each.known is None for each in failed)
    notes = {"as expected": len(failed) - librarys, "known in the library": librarys}
    noted = ", ".join(f"{count} {text}" for text, count in notes.items() if count)
    words = {
        Status.PASS: f"passed ({proven} proven)",
        Status.FAIL: f"failed ({noted})" if noted else "failed",
        Status.ERROR: "could not be run",
    }
    parts = [f"{found[status]} {words.get(status, status.value)}" for status in Status if found[status]]
    number = len(run.records)
    decided = "" if run.is_decided else "; none passed or failed"
    return f"{number} check{'s' * (number != 1)}: {', '.join(parts) or 'none'}{decided}"


def outcome_words(record: CheckRecord) -> str:
    """What is to be said next to the status: the proof of a pass, what a failure saw, the reason of all others."""
    if record.status is Status.PASS:
        unexpected = f"though it was expected to fail: {record.expected_failure}; " if record.expected_failure else ""
        return unexpected + record.outcome.removeprefix("pass, ")
    if record.status is Status.FAIL and record.expected_failure:
        other, known = record.other_causes, record.expected_failure
        rest = f"; all that is left is {record.library.text}" if record.library and record.is_librarys else ""
        return f"{other} (known failure: {known})" if other else f"as expected: {known}{rest}"
    if record.status is Status.FAIL and record.is_librarys:
        return record.outcome.removeprefix("fail, ")
    return record.finding.seen


def reason_in_words(record: CheckRecord) -> str:
    """Status and outcome in one line."""
    words = outcome_words(record)
    if record.status is Status.FAIL and (record.expected_failure or record.is_librarys):
        return f"fail, {words}"
    return f"{record.status.value}: {words}" if words else record.status.value


LEVELS: Final[dict[Severity, str]] = {"critical": "error", "high": "error", "medium": "warning", "low": "note"}


def json_of_checks(run: CheckRun, folder: Path) -> str:
    """The exit code, a summary, and for each subject its place and records."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "exit_code": run.exit_code,
        "summary": summary_of_checks(run),
        "subjects": [_subject(each, folder) for each in run.subjects],
    }
    return canonical_json(content)


def _subject(checked: CheckedSubject, folder: Path) -> dict[str, Any]:
    target = checked.target
    return {
        "name": target.subject.name,
        "target": target.text,
        "file": shown_path(target.file, folder),
        "line": target.line,
        "shrunk": checked.shrunk,
        "checks": [_record(each) for each in checked.records],
    }


def _record(record: CheckRecord) -> dict[str, Any]:
    content = asdict(record)
    finding = content.pop("finding")
    del content["subject"], content["known"], content["shrunk"]
    return {
        **content,
        **finding,
        "status": record.status.value,
        "outcome": record.outcome,
        "as_expected": not record.is_unexpected,
        "expected_failure": record.expected_failure,
        "expected_causes": record.known.causes if record.known else (),
    }


def junit_of_checks(run: CheckRun, _folder: Path) -> str:
    """The whole file. What does not apply, is inconclusive or fails as expected is skipped, with its reason."""
    return junit_document([case_of(record) for record in run.records])


def case_of(record: CheckRecord) -> Case:
    """The test case of one check."""
    status = _status(record)
    if status is ClaimStatus.PASSED:
        return Case(record.subject, record.check, status, text=record.outcome)
    return Case(record.subject, record.check, status, reason_in_words(record), details(record))


def _status(record: CheckRecord) -> ClaimStatus:
    if record.status is Status.ERROR:
        return ClaimStatus.ERROR
    if record.is_unexpected:
        return ClaimStatus.FAILED
    return ClaimStatus.PASSED if record.status is Status.PASS else ClaimStatus.SET_ASIDE


def sarif_of_checks(run: CheckRun, folder: Path) -> str:
    """Return the whole file: a result for each check that is not as expected, where its factory is defined."""
    pairs = [(each.target, record) for each in run.subjects for record in each.records]
    found = [(target, each) for target, each in pairs if each.is_unexpected and each.status is not Status.ERROR]
    used = {record.check: target.subject.known_rules[record.check] for target, record in found}
    errors = [each for each in run.records if each.status is Status.ERROR]
    return sarif_document(
        [_rule(rule) for rule in used.values()],
        [_result(target, record, folder) for target, record in found],
        exit_code=run.exit_code,
        successful=not errors,
        notifications=map(details, errors),
    )


def _rule(rule: Rule) -> dict[str, Any]:
    text = f"Family {rule.family}, severity {rule.severity}. {rule.expected}"
    return sarif_rule(rule.name, rule.expected, rule.rationale, text, LEVELS[rule.severity])


def _result(target: Target, record: CheckRecord, folder: Path) -> dict[str, Any]:
    return sarif_result(
        record.check,
        LEVELS[record.severity],
        details(record),
        shown_path(target.file, folder),
        target.line,
        f"{target.text} {record.check}",
        scheme="check/v1",
    )


def markdown_of_checks(run: CheckRun, _folder: Path) -> str:
    """Return the summary of a step on GitHub: counts, what is not as expected in full, and all checks folded in."""
    unexpected = [details(each) for each in run.records if each.is_unexpected]
    cells = ([each.subject, each.check, reason_in_words(each)] for each in run.records)
    rows = "".join(f"| {' | '.join(map(cell, row))} |\n" for row in cells)
    table = f"| subject | check | outcome |\n|---|---|---|\n{rows}"
    return page_of(run.exit_code, [summary_of_checks(run), *unexpected], "All checks", table)


CHECK_FORMATS: Final[Mapping[str, Callable[[CheckRun, Path], str]]] = {
    "json": json_of_checks,
    "junit": junit_of_checks,
    "sarif": sarif_of_checks,
    "summary": markdown_of_checks,
}
