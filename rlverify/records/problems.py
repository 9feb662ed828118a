"""What an audit found to be wrong, each with the exit code that it asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rlverify.records.exit_codes import AS_EXPECTED


@dataclass(frozen=True)
class Problem:
    """Something that is not as it should be.

    :param exit_code: 1 where a claim fell or a report is out of date, 2 where the harness could not tell
    """

    subject: str
    exit_code: int
    sentence: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.sentence}"


def exit_code_of(problems: Sequence[Problem]) -> int:
    """The worst of the exit codes; 0 where there is no problem."""
    return max((problem.exit_code for problem in problems), default=AS_EXPECTED)


def outcome_of(problems: Sequence[Problem]) -> dict[str, Any]:
    """The exit code and the problems, for JSON."""
    return {"exit_code": exit_code_of(problems), "problems": [asdict(problem) for problem in problems]}
