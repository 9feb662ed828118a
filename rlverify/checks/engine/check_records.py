"""What a check gives: frozen records, which can be sent to another process, and what a caller expects of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from rlverify.checks.state.owners import Owner
from rlverify.checks.state.tree import is_below
from rlverify.records.claims import Severity


class Status(Enum):
    """What became of a check."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    """A check that this one rests on failed."""
    NOT_APPLICABLE = "not applicable"
    """The subject has nothing that this check is about."""
    ERROR = "error"
    """The subject or the check crashed, hung or ended the process."""


@dataclass(frozen=True)
class Proof:
    """A fault that was planted into the subject to see whether the check detects it."""

    fault: str
    detected: bool


@dataclass(frozen=True)
class CheckFinding:
    """What one check found in one subject.

    :param where: the path of the state or the step at which it shows; empty where nothing is wrong
    :param why: what was tried to find the reason, and its outcome; can be empty
    :param causes: of a failure, all paths that have to be restored, or where it shows; empty if no cause was looked for
    :param owners: whose each cause is; empty where that is not known
    """

    status: Status
    expected: str = ""
    seen: str = ""
    where: str = ""
    why: str = ""
    causes: tuple[str, ...] = ()
    owners: tuple[Owner, ...] = ()


@dataclass(frozen=True)
class LibraryFinding:
    """What the field report found in a version of a library.

    :param number: of the finding in the report
    :param reports: names and addresses of public reports
    :param algorithms: names of the classes that have it
    """

    check: str
    number: int
    headline: str
    cause: str
    advice: str
    reports: Sequence[Sequence[str]]
    algorithms: Sequence[str]


@dataclass(frozen=True)
class LibraryFailure:
    """A failure that the library's own class has as well.

    :param library: name and version
    :param algorithm: the name of that class
    :param finding: of the field report; None if it has none
    :param other_causes: causes that this class does not have, so that they are not the library's
    """

    library: str
    algorithm: str
    finding: LibraryFinding | None = None
    other_causes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Where it is known, in words."""
        if self.finding is None:
            return f"{self.algorithm} of {self.library} fails as well"
        return f"known in {self.library} (field report #{self.finding.number})"


@dataclass(frozen=True)
class CheckRecord:
    """One check of one subject.

    :param proofs: of a check that passed, the faults that were planted to prove it
    :param unproven: why a check that passed has no proof; empty otherwise
    :param known: why this check may fail, by the caller; None if it must pass
    :param library: of a failure, what the library's own class has of it; None for nothing
    :param strict: whether a failure counts although it is the library's
    :param shrunk: which settings of the subject were made smaller, in a line; or why none was
    """

    subject: str
    check: str
    family: str
    severity: Severity
    finding: CheckFinding
    proofs: tuple[Proof, ...] = ()
    unproven: str = ""
    known: KnownFailure | None = None
    library: LibraryFailure | None = None
    strict: bool = False
    reproduction: str = ""
    shrunk: str = ""

    @property
    def status(self) -> Status:
        """What became of the check."""
        return self.finding.status

    @property
    def is_unexpected(self) -> bool:
        """Whether a caller has to act."""
        if self.known is None:
            return self.status is Status.ERROR or (self.status is Status.FAIL and (self.strict or not self.is_librarys))
        return self.status in (Status.PASS, Status.ERROR) or bool(self.other_causes)

    @property
    def is_librarys(self) -> bool:
        """Whether the library's own class fails in the same way."""
        return self.library is not None and not self.library.other_causes

    @property
    def expected_failure(self) -> str:
        """The caller's reason for which this check may fail; empty if it must pass."""
        return self.known.reason if self.known else ""

    @property
    def other_causes(self) -> str:
        """How the causes of an expected failure differ from the expected ones, in words; empty if they do not."""
        if self.known is None or self.status is not Status.FAIL:
            return ""
        found = self.finding.causes if self.library is None or self.strict else self.library.other_causes
        new = self.known.new_causes(found)
        gone = self.known.gone_causes(self.finding.causes)
        parts = {"new causes": new, "expected causes that are gone": gone}
        return "; ".join(f"{name}: {', '.join(causes)}" for name, causes in parts.items() if causes)

    @property
    def outcome(self) -> str:
        """The status in words, with its proof: ``pass, proven by 3 faults``."""
        if self.status is Status.FAIL and self.known:
            return f"fail, with {self.other_causes}" if self.other_causes else "fail, as expected"
        if self.status is Status.FAIL and self.library and self.is_librarys:
            return f"fail, {self.library.text}"
        if self.status is not Status.PASS:
            return str(self.status.value)
        if self.unproven:
            return f"pass, unproven: {self.unproven}"
        detected, planted = sum(each.detected for each in self.proofs), len(self.proofs)
        if detected < planted:
            return f"pass, proven by {detected} of {planted} faults"
        return f"pass, proven by {planted} fault{'s' * (planted != 1)}"


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
