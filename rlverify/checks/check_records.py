"""What a check gives: frozen records, which can be sent to another process and written as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

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
    """A fault that was planted into the subject to see whether the check detects it.

    :param fault: what was planted, such as ``forget policy.optimizer.state[0]['exp_avg']``
    :param detected: whether the check failed with it
    """

    fault: str
    detected: bool


@dataclass(frozen=True)
class CheckFinding:
    """What one check found in one subject.

    :param expected: what holds if the check passes
    :param seen: what was observed
    :param where: the path of the state or the step at which it shows; empty where nothing is wrong
    :param why: what was tried to find the reason, and its outcome; can be empty
    """

    status: Status
    expected: str = ""
    seen: str = ""
    where: str = ""
    why: str = ""


@dataclass(frozen=True)
class CheckRecord:
    """One check of one subject.

    :param subject: its name
    :param check: name of the check, which is that of its function
    :param proofs: of a check that passed, the faults that were planted to prove it
    :param unproven: why a check that passed has no proof; empty otherwise
    :param expected_failure: the caller's reason for which this check may fail; empty if it must pass
    :param reproduction: lines that run this check again
    """

    subject: str
    check: str
    family: str
    severity: Severity
    finding: CheckFinding
    proofs: tuple[Proof, ...] = ()
    unproven: str = ""
    expected_failure: str = ""
    reproduction: str = ""

    @property
    def status(self) -> Status:
        """What became of the check."""
        return self.finding.status

    @property
    def is_unexpected(self) -> bool:
        """Whether a caller has to act: a failure that is not expected, an expected one that passed, or an error."""
        if self.expected_failure:
            return self.status in (Status.PASS, Status.ERROR)
        return self.status in (Status.FAIL, Status.ERROR)

    @property
    def outcome(self) -> str:
        """The status in words, with its proof: ``pass, proven by 3 faults``."""
        if self.status is Status.FAIL and self.expected_failure:
            return "fail, as expected"
        if self.status is not Status.PASS:
            return str(self.status.value)
        if self.unproven:
            return f"pass, unproven: {self.unproven}"
        detected, planted = sum(each.detected for each in self.proofs), len(self.proofs)
        if detected < planted:
            return f"pass, proven by {detected} of {planted} faults"
        return f"pass, proven by {planted} fault{'s' * (planted != 1)}"
