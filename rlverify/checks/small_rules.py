"""Rules for subjects that are no algorithms: optimizers, gradient transforms, states of environments, checkpoints.

Each kind of subject has a `Kind`: its rules, and how they are run and proven. A fault is a function from a subject to
one that does one thing wrong.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from rlverify.checks.adapter import Adapter, NotSupportedError
from rlverify.checks.check_records import CheckFinding, CheckRecord, Proof, Status
from rlverify.checks.engine import UnknownRuleError
from rlverify.checks.known_failures import ExpectedFailures, KnownFailure, known_failure
from rlverify.checks.preloading import installed_modules, preload
from rlverify.checks.random_state import seed_globals
from rlverify.checks.session import SEED, SubjectError, SubjectSession
from rlverify.records.attempts import Crash, attempt
from rlverify.records.claims import Severity

Checked = TypeVar("Checked")


@dataclass(frozen=True)
class SmallFault(Generic[Checked]):
    """One thing that goes wrong in a subject.

    :param text: what is planted, as in "forget the state in load_state_dict()"
    :param plant: from a right subject to the wrong one
    """

    text: str
    plant: Callable[[Checked], Checked]


@dataclass(frozen=True)
class SmallRule(Generic[Checked]):
    """A rule about one kind of subject; see `rlverify.checks.rule.Rule`."""

    name: str
    severity: Severity
    expected: str
    function: Callable[[Checked], CheckFinding]
    faults: tuple[SmallFault[Checked], ...] = ()

    @property
    def rationale(self) -> str:
        """Why it exists: the documentation of its function."""
        return inspect.cleandoc(self.function.__doc__ or "")


@dataclass
class Kind(Generic[Checked]):
    """A kind of subject.

    :param family: the name of its rules as a group
    :param door: the function that runs them, for the lines that reproduce a record
    """

    family: str
    door: str
    rules: dict[str, SmallRule[Checked]] = field(default_factory=dict)

    def rule(
        self, severity: Severity, expected: str, *, faults: Sequence[SmallFault[Checked]] = ()
    ) -> Callable[[Callable[[Checked], CheckFinding]], Callable[[Checked], CheckFinding]]:
        """Register the decorated function as a rule of its name."""

        def register(function: Callable[[Checked], CheckFinding]) -> Callable[[Checked], CheckFinding]:
            name = function.__name__
            self.rules[name] = SmallRule(name, severity, expected, function, tuple(faults))
            return function

        return register

    def check(
        self,
        subject: Checked,
        name: str,
        *,
        checks: Iterable[str] | None,
        limit: float,
        expected_failures: ExpectedFailures | None = None,
    ) -> list[CheckRecord]:
        """Run the rules on a subject; each in a process of its own.

        :raises UnknownRuleError: if there is no rule of a name
        """
        chosen = list(self.rules) if checks is None else list(checks)
        unknown = [each for each in chosen if each not in self.rules]
        if unknown:
            raise UnknownRuleError(f"no check is named {unknown[0]!r}; choose from {', '.join(self.rules)}")
        known = {each: known_failure(expected_failures, each) for each in chosen}
        return [self._record(self.rules[each], subject, name, limit, known[each]) for each in chosen]

    def _record(
        self, rule: SmallRule[Checked], subject: Checked, name: str, limit: float, known: KnownFailure | None
    ) -> CheckRecord:
        finding = replace(_found(rule, subject, limit), expected=rule.expected)
        lines = f"{self.door}(factory, checks=[{rule.name!r}])  # factory: that of {name}"
        record = CheckRecord(name, rule.name, self.family, rule.severity, finding)
        record = replace(record, known=known, reproduction=lines)
        if finding.status is not Status.PASS:
            return record
        proofs = tuple(Proof(each.text, _detects(rule, subject, each, limit)) for each in rule.faults)
        if any(each.detected for each in proofs):
            return replace(record, proofs=proofs)
        missed = f"the check detected none of {len(proofs)} faults" if proofs else "the check has no fault to plant"
        return replace(record, proofs=proofs, unproven=missed)


def _detects(rule: SmallRule[Checked], subject: Checked, fault: SmallFault[Checked], limit: float) -> bool:
    return _found(rule, fault.plant(subject), limit).status is Status.FAIL


def _found(rule: SmallRule[Checked], subject: Checked, limit: float) -> CheckFinding:
    def action() -> CheckFinding:
        seed_globals(SEED)
        return rule.function(subject)

    found = attempt(lambda: SubjectSession(_nothing, Adapter(), limit).run(action))
    if not isinstance(found, Crash):
        return found
    if isinstance(found.error, NotSupportedError):
        return CheckFinding(Status.NOT_APPLICABLE, seen=str(found.error))
    return CheckFinding(Status.ERROR, seen=str(found.error) if isinstance(found.error, SubjectError) else found.line)


def preload_of(action: Callable[[], object], limit: float) -> None:
    """Import here what an action imports in a process of its own; see `rlverify.checks.preloading`."""
    before = installed_modules()

    def imported() -> list[str]:
        attempt(action)
        return sorted(installed_modules() - before)

    found = attempt(lambda: SubjectSession(_nothing, Adapter(), limit).run(imported))
    preload([] if isinstance(found, Crash) else found)


def _nothing() -> Any:
    """Make no model: these subjects are none."""
