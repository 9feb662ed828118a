"""What a rule is: one function that looks for one kind of bug in any algorithm, and what is known about it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rlverify.checks.engine.check_records import CheckFinding, Status
from rlverify.checks.engine.faults import GenericFault
from rlverify.checks.engine.session import SubjectSession
from rlverify.records.claims import Severity

CheckFunction = Callable[[SubjectSession], CheckFinding]
RULES: Final[dict[str, Rule]] = {}


@dataclass(frozen=True)
class Rule:
    """A rule and its function.

    :param name: that of its function
    :param family: what it belongs to, such as gates or resume
    :param expected: what holds where it passes, in a sentence
    :param rests_on: rules that have to pass before this one means anything
    :param faults: those that can be planted into a subject to prove that the rule detects them
    :param must_be_proven: whether a pass that no fault proves is a failure, as it is for a claim about a fault
    """

    name: str
    family: str
    severity: Severity
    expected: str
    function: CheckFunction
    rests_on: tuple[str, ...] = ()
    faults: Callable[[SubjectSession], Sequence[GenericFault]] = lambda _session: ()
    must_be_proven: bool = False

    @property
    def rationale(self) -> str:
        """Why it exists: the documentation of its function."""
        return inspect.cleandoc(self.function.__doc__ or "")


def rule(
    family: str,
    severity: Severity,
    expected: str,
    *,
    rests_on: Sequence[str] = (),
    faults: Callable[[SubjectSession], Sequence[GenericFault]] | Sequence[GenericFault] = (),
) -> Callable[[CheckFunction], CheckFunction]:
    """Register the decorated function as a rule of its name.

    The function returns a `CheckFinding` with what is wrong, or `passing` if nothing is. It raises
    ``NotSupportedError`` if the subject has nothing that the rule is about.
    """

    def register(function: CheckFunction) -> CheckFunction:
        name = function.__name__
        given = faults if callable(faults) else (lambda _session: tuple(faults))
        RULES[name] = Rule(name, family, severity, expected, function, tuple(rests_on), given)
        return function

    return register


def passing() -> CheckFinding:
    """What a rule returns if nothing is wrong; `Rule.expected` becomes its text."""
    return CheckFinding(Status.PASS)


def failing(seen: str, *, where: str = "", why: str = "", causes: Sequence[str] | None = None) -> CheckFinding:
    """What a rule returns if something is wrong.

    :param causes: by default where it shows
    """
    found = ((where,) if where else ()) if causes is None else tuple(causes)
    return CheckFinding(Status.FAIL, seen=seen, where=where, why=why, causes=found)


def inconclusive(reason: str) -> CheckFinding:
    """What a rule returns if it cannot tell."""
    return CheckFinding(Status.INCONCLUSIVE, seen=reason)
