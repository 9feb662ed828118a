"""What an audit found to be wrong, and the exit code of ``rlverify`` that follows.

A claim *falls* if measurement contradicts the catalogue or its committed evidence: its healthy code is violated, its
verdict or its grade is another one, or a value differs. It also falls if it cannot be measured any more (a crash, a
fault that no run executes, undecided runs) while its committed evidence is as expected: the change under test did that.

- A claim that fell gives 1, whatever else went wrong.
- Without a fallen claim, 2 if the harness could not tell: no good evidence is committed for a claim that cannot be
  measured, the catalogue is broken, a folder cannot be written.
- Otherwise 1 if something committed is out of date: evidence, reports, plots, the kill matrix, or the pin of a fault;
  or if code under test cannot be imported.

`rlverify scan` gives 0 if it found nothing, 1 if it found something, and 2 if a path or an option cannot be used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, TypeAlias

AS_EXPECTED = 0
CLAIM_FELL = 1
"""A claim fell, something committed is out of date, or a scan found something."""
HARNESS_FAILED = 2
"""No claim fell, and the harness could not tell of all of them."""
INTERRUPTED = 130

SCHEMA_VERSION: Final = 1
"""Of every JSON object that the command line gives; a field that is removed or changes its meaning raises it."""


ProblemKind: TypeAlias = Literal["healthy", "verdict", "grade", "values", "stale", "pin", "suite", "other"]

FALLEN: Final[tuple[ProblemKind, ...]] = ("healthy", "verdict", "grade", "values")
"""The kinds of problems of a claim that fell, the worst first."""


@dataclass(frozen=True)
class Problem:
    """Something that is not as it should be.

    :param exit_code: 1 where a claim fell or something is out of date, 2 where the harness could not tell
    :param kind: ``healthy`` where the code without a fault is violated or crashes; ``verdict``, ``grade`` or ``values``
        where these differ; ``stale`` where evidence is missing or of other settings; ``pin`` where a fault's target
        changed; ``suite`` where a check of a suite is not as expected
    :param remedy: what to do, where one command fixes it
    """

    subject: str
    exit_code: int
    sentence: str
    kind: ProblemKind = "other"
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.subject}: {self.sentence}" + (f"; {self.remedy}" if self.remedy else "")

    @property
    def fell(self) -> bool:
        """Whether this makes a claim fall."""
        return self.kind in FALLEN


@dataclass(frozen=True)
class Weakening:
    """Something that a change makes weaker, or may make weaker; no error by itself.

    :param kind: what differs: ``claim removed``, ``severity``, ``document``
    :param subject: the id of a claim, or a path relative to the project
    """

    kind: str
    subject: str
    before: str
    after: str


def few(texts: Iterable[str], most: int = 3, between: str = ", ") -> str:
    """Return the first of the texts, and how many more there are."""
    found = [*texts]
    return between.join(found if len(found) <= most + 1 else [*found[:most], f"and {len(found) - most} more"])


def exit_code_of(problems: Sequence[Problem]) -> int:
    """The exit code of all problems together, by the rule of `rlverify.records.problems`."""
    if any(problem.fell for problem in problems):
        return CLAIM_FELL
    return max((problem.exit_code for problem in problems), default=AS_EXPECTED)


def is_regression(problems: Sequence[Problem]) -> bool:
    """Whether a claim fell by more than its values, so that what was measured must not be committed."""
    return any(problem.fell and problem.kind != "values" for problem in problems)


def with_advice(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """The problems; after a regression without remedies, which would commit it."""
    return tuple(replace(each, remedy="") for each in problems) if is_regression(problems) else tuple(problems)


def outcome_of(problems: Sequence[Problem]) -> dict[str, Any]:
    """The exit code and the problems, for JSON."""
    return {"exit_code": exit_code_of(problems), "problems": [asdict(problem) for problem in with_advice(problems)]}
