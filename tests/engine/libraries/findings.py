"""What tests of libraries ask of the checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rlverify.checks import Adapter, CheckRecord, Status, check_algorithm

DECIDED = (Status.PASS, Status.FAIL, Status.NOT_APPLICABLE)


def all_decided(factory: Callable[[], Any]) -> dict[str, CheckRecord]:
    """The records of all checks by name, each of which is decided or does not apply for a reason."""
    factory()  # what it imports is then known to every process
    records = check_algorithm(factory)
    undecided = [(each.check, each.finding.seen) for each in records if each.status not in DECIDED]
    assert not undecided
    assert all(each.finding.seen for each in records if each.status is Status.NOT_APPLICABLE)
    return {each.check: each for each in records}


def failed(records: Iterable[CheckRecord]) -> set[str]:
    return {each.check for each in records if each.status is Status.FAIL}


def checked(factory: Callable[[], Any], name: str, adapter: Adapter | None = None) -> CheckRecord:
    factory()
    (record,) = check_algorithm(factory, adapter=adapter, checks=[name])
    return record


def loses(record: CheckRecord, part: str) -> bool:
    """Whether a failure names a part among the causes."""
    return record.status is Status.FAIL and any(part in each for each in record.finding.causes)
