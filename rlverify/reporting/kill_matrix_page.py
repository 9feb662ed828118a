"""The report of the kill matrix, from the matrix and the catalogue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlverify.records.claims import Claim
from rlverify.records.matrix import FaultResult, Matrix
from rlverify.reporting.markdown import environment

ROLES = {
    "defect": "bug",
    "fix": "documented fix that leaves something broken",
    "named": "only named tests ask for it",
    "null": "null fault",
    "never a bug": "never a bug",
}


@dataclass(frozen=True)
class Rate:
    """Under how many rows of some kind a test failed, and of how many faults they are."""

    noticed: int
    of: int
    faults: int

    def __str__(self) -> str:
        return f"{100 * self.noticed / self.of:.1f} %" if self.of else "-"


def kill_matrix(
    matrix: Matrix, claims: Sequence[Claim], templates: Path | None = None, command: str = "rlverify"
) -> str:
    """Survivors, rates, faults and their killers by area, and what must survive."""
    must_die = [row for row in matrix.rows if not row.plan.must_survive]
    must_survive = [row for row in matrix.rows if row.plan.must_survive]
    return (
        environment(templates)
        .get_template("kill-matrix.md.j2")
        .render(
            matrix=matrix,
            command=command,
            measured=matrix.measured,
            kill_rate=kill_rate(matrix),
            false_alarm_rate=false_alarm_rate(matrix),
            survivors=[row for row in must_die if not row.as_expected],
            twice=[fault for fault, count in Counter(row.plan.fault for row in must_die).items() if count > 1],
            silent=[row for row in must_die if row.as_expected and row.blind and row.plan.kind != "fix"],
            must_die=sorted(must_die, key=lambda row: row.plan.area),
            must_survive=must_survive,
            nulls=[row for row in must_survive if row.plan.kind == "null"],
            false_alarms=[row for row in must_survive if not row.as_expected],
            passed=lambda suite: sum(matrix.tests[test] == "passed" for test in suite.tests),
            titles={claim.id: claim.title for claim in claims},
            roles=ROLES,
        )
    )


def kill_rate(matrix: Matrix) -> Rate:
    """Of the faults that a test must detect."""
    return _rate([row for row in matrix.rows if not row.plan.must_survive])


def false_alarm_rate(matrix: Matrix) -> Rate:
    """Of the faults that no test may detect."""
    return _rate([row for row in matrix.rows if row.plan.must_survive])


def _rate(rows: Sequence[FaultResult]) -> Rate:
    return Rate(sum(row.fate == "killed" for row in rows), len(rows), len({row.plan.fault for row in rows}))
