"""What the pages of the field report show: findings by check, ranked; and the cells of their tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from benchmarks.field.explanations import BY_DESIGN, EXPLANATIONS, OF_OPTIMIZERS, Explanation
from benchmarks.field.records import Checked, Effect, FieldReport, Shown
from rlverify.checks.engine.check_records import CheckRecord, LibraryFinding, Status
from rlverify.records.claims import Severity

MARKS: Final = {
    Status.PASS: "✓",
    Status.FAIL: "✗",
    Status.INCONCLUSIVE: "?",
    Status.NOT_APPLICABLE: "·",
    Status.ERROR: "!",
}
UNPROVEN: Final = "○"
DESIGNED: Final = "✗*"
LEGEND: Final = {
    "✓": "passed, and proven: the check fails once a fault is planted into this algorithm",
    UNPROVEN: "passed, and no fault could prove it",
    "✗": "failed",
    DESIGNED: "failed as the library's documentation announces",
    "?": "inconclusive, as a check that it rests on failed",
    "·": "does not apply",
    "!": "could not be run",
}


@dataclass(frozen=True)
class FailedCase:
    """One algorithm in one variant that failed a check."""

    checked: Checked
    record: CheckRecord

    @property
    def note(self) -> str:
        """Why the failure is intended; empty if it is not."""
        return BY_DESIGN.get((self.checked.name, self.record.check), "")


@dataclass(frozen=True)
class FieldFinding:
    """A check that failed somewhere.

    :param of: how many algorithms were checked
    """

    check: str
    severity: Severity
    expected: str
    cases: tuple[FailedCase, ...]
    shown: Shown | None
    of: int

    @property
    def explanation(self) -> Explanation:
        """What was written about it; what was expected, if nothing was."""
        written = OF_OPTIMIZERS if self.cases[0].checked.library == "torch" else EXPLANATIONS
        return written.get(self.check, Explanation(f"Violated: {self.expected}"))

    @property
    def importance(self) -> str:
        """The severity; ``by design`` if each failure is."""
        return "by design" if all(each.note for each in self.cases) else self.severity

    @property
    def names(self) -> list[str]:
        """The algorithms or optimizers, each once."""
        return list(dict.fromkeys(each.checked.name for each in self.cases))

    @property
    def extent(self) -> str:
        """How many algorithms; which, if not all."""
        names = self.names
        if len(names) == self.of > 1:
            return f"all {self.of}"
        return ", ".join(names)

    @property
    def effects(self) -> list[tuple[str, Effect]]:
        """The measured effects, by algorithm."""
        found = [(each.checked.name, each.checked.effects.get(self.check)) for each in self.cases]
        return [(name, effect) for name, effect in found if effect is not None]


def findings(checked: Sequence[Checked], shown: Iterable[Shown] = ()) -> list[FieldFinding]:
    """The checks that failed, the most severe and then the most frequent first; what is by design last."""
    scripts = {each.check: each for each in shown}
    cases: dict[str, list[FailedCase]] = {}
    for each in checked:
        for record in each.records:
            if record.status is Status.FAIL:
                cases.setdefault(record.check, []).append(FailedCase(each, record))
    number = len({each.name for each in checked})
    found = [
        FieldFinding(
            check, own[0].record.severity, own[0].record.finding.expected, tuple(own), scripts.get(check), number
        )
        for check, own in cases.items()
    ]
    return sorted(found, key=_rank)


def of_libraries(report: FieldReport) -> dict[str, list[LibraryFinding]]:
    """The findings for each library and version, ``stable-baselines3-2.9.2``, by their numbers on the page."""
    found: dict[str, list[LibraryFinding]] = {}
    for number, each in enumerate([*findings(report.algorithms), *findings(report.optimizers)], start=1):
        written = each.explanation
        reports = tuple((bug.name, bug.url) for bug in written.known)
        for library in dict.fromkeys(case.checked.library for case in each.cases):
            names = tuple(dict.fromkeys(case.checked.name for case in each.cases if case.checked.library == library))
            of = LibraryFinding(each.check, number, written.headline, written.cause, written.advice, reports, names)
            version = report.versions[library].partition("+")[0]
            found.setdefault(f"{library}-{version}", []).append(of)
    return found


def _rank(finding: FieldFinding) -> tuple[bool, int, int]:
    designed = all(each.note for each in finding.cases)
    return designed, get_args(Severity).index(finding.severity), -len(finding.cases)


def counts(checked: Sequence[Checked]) -> dict[str, int]:
    """How many records came out how, over all subjects."""
    records = [record for each in checked for record in each.records]
    passed = [each for each in records if each.status is Status.PASS]
    found = {"checks": len(records), "passed": len(passed)}
    found["proven"] = sum(not each.unproven for each in passed)
    for status in (Status.FAIL, Status.INCONCLUSIVE, Status.NOT_APPLICABLE, Status.ERROR):
        found[status.value] = sum(each.status is status for each in records)
    return found


def matrix(checked: Sequence[Checked]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """The names of the columns, and for each check its cells: a mark for each variant."""
    names = list(dict.fromkeys(each.name for each in checked))
    checks = list(dict.fromkeys(record.check for each in checked for record in each.records))
    return names, [(check, [_cell(check, name, checked) for name in names]) for check in checks]


def _cell(check: str, name: str, checked: Sequence[Checked]) -> str:
    own = [each for each in checked if each.name == name]
    return " ".join(_mark(check, each) for each in own)


def _mark(check: str, checked: Checked) -> str:
    for record in checked.records:
        if record.check == check:
            if record.status is Status.FAIL and (checked.name, check) in BY_DESIGN:
                return DESIGNED
            return UNPROVEN if record.status is Status.PASS and record.unproven else MARKS[record.status]
    return MARKS[Status.ERROR]
