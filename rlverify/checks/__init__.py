"""Checks for any algorithm: rules that look for known kinds of bugs, each proven by planting such a bug.

Three ways to run them: `check_algorithm` in Python, `parametrize_with_checks` in pytest, ``rlverify check`` in a shell.
"""

from rlverify.checks.adapter import Adapter, NotSupportedError
from rlverify.checks.check_records import CheckFinding, CheckRecord, Proof, Status
from rlverify.checks.engine import check_algorithm, check_subject
from rlverify.checks.pytest_door import parametrize_with_checks
from rlverify.checks.subjects import Subject, subject
from rlverify.checks.table import details, table

__all__ = [
    "Adapter",
    "CheckFinding",
    "CheckRecord",
    "NotSupportedError",
    "Proof",
    "Status",
    "Subject",
    "check_algorithm",
    "check_subject",
    "details",
    "parametrize_with_checks",
    "subject",
    "table",
]
