"""JUnit's XML of a run of the checks: one suite a subject, one case a check."""

from __future__ import annotations

from pathlib import Path

from rlverify.checks.check_records import CheckRecord, Status
from rlverify.checks.table import details
from rlverify.reporting.check_run.check_outcome import CheckRun
from rlverify.reporting.check_run.check_outcome_text import reason
from rlverify.reporting.claim_status import ClaimStatus
from rlverify.reporting.junit_xml import Case, document


def junit_of_checks(run: CheckRun, _folder: Path) -> str:
    """The whole file. What does not apply, is inconclusive or fails as expected is skipped, with its reason."""
    return document([case_of(record) for record in run.records])


def case_of(record: CheckRecord) -> Case:
    """The test case of one check."""
    status = _status(record)
    if status is ClaimStatus.PASSED:
        return Case(record.subject, record.check, status, text=record.outcome)
    return Case(record.subject, record.check, status, reason(record), details(record))


def _status(record: CheckRecord) -> ClaimStatus:
    if record.status is Status.ERROR:
        return ClaimStatus.ERROR
    if record.is_unexpected:
        return ClaimStatus.FAILED
    return ClaimStatus.PASSED if record.status is Status.PASS else ClaimStatus.SET_ASIDE
