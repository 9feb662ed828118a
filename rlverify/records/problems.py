"""What an audit found to be wrong, each with the exit code that it asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from rlverify.records.exit_codes import AS_EXPECTED, CLAIM_FELL

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


def exit_code_of(problems: Sequence[Problem]) -> int:
    """The exit code of all problems together, by the rule of `rlverify.records.exit_codes`."""
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
