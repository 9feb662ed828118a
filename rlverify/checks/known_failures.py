"""Failures that a caller expects, with their reason and their causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlverify.checks.state_paths import is_below


@dataclass(frozen=True)
class KnownFailure:
    """Why a check may fail, and where.

    :param reason: such as the issue that will fix it
    :param causes: paths of the state, or other causes, as the check names them (``causes`` in the JSON of ``rlverify
        check``). A path includes all below it. Any other cause, and a cause of these that is gone, is reported. Empty
        to expect the failure for every cause
    """

    reason: str
    causes: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not self.reason:
            raise ValueError("a known failure has no reason; give one, such as the issue that will fix it")
        given = (self.causes,) if isinstance(self.causes, str) else tuple(self.causes)
        object.__setattr__(self, "causes", given)

    def new_causes(self, found: Sequence[str]) -> list[str]:
        """Those of the causes found that are not expected."""
        return [each for each in found if self.causes and not any(is_below(each, known) for known in self.causes)]

    def gone_causes(self, found: Sequence[str]) -> list[str]:
        """Those of the expected causes that were not found; none where the check did not look for causes."""
        return [known for known in self.causes if found and not any(is_below(each, known) for each in found)]


ExpectedFailures = Mapping[str, str | KnownFailure]
"""Reasons, or known failures, by name of the check."""


def known_failure(expected: ExpectedFailures | None, check: str) -> KnownFailure | None:
    """What is expected of a check; None if it has to pass."""
    found = (expected or {}).get(check)
    return KnownFailure(found) if isinstance(found, str) and found else found or None
