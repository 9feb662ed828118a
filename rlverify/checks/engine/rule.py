"""A rule: one function that looks for one kind of bug in any algorithm, and what is known about it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rlverify.checks.engine.check_records import CheckFinding, Status
from rlverify.checks.engine.faults import GenericFault
from rlverify.checks.engine.session import SubjectSession
from rlverify.checks.state.owners import Owner
from rlverify.checks.state.tree import unequal
from rlverify.records.attempts import attempt
from rlverify.records.claims import Severity

Blamed = Literal["class", "rule", "owner", "caller"]
CheckFunction = Callable[[SubjectSession], CheckFinding]
RULES: Final[dict[str, Rule]] = {}


@dataclass(frozen=True)
class Rule:
    """A rule and its function.

    :param expected: what holds where it passes, in a sentence
    :param rests_on: rules that have to pass before this one means anything
    :param faults: those that can be planted into a subject to prove that the rule detects them
    :param must_be_proven: whether a pass that no fault proves is a failure, as it is for a claim about a fault
    :param blamed: who is to blame for a failure: the library if its own class fails in the same way (``rule``: whatever
        the cause), the owner of the cause, or always the caller, whose factory or promise the rule is about
    """

    name: str
    family: str
    severity: Severity
    expected: str
    function: CheckFunction
    rests_on: tuple[str, ...] = ()
    faults: Callable[[SubjectSession], Sequence[GenericFault]] = lambda _session: ()
    must_be_proven: bool = False
    blamed: Blamed = "class"

    @property
    def rationale(self) -> str:
        """Return why it exists: the documentation of its function, below the first sentence if that is `expected`."""
        return inspect.cleandoc(self.function.__doc__ or "").removeprefix(f"{self.expected}\n\n")


def rule(
    family: str,
    severity: Severity,
    *,
    rests_on: Sequence[str] = (),
    faults: Callable[[SubjectSession], Sequence[GenericFault]] | Sequence[GenericFault] = (),
    blamed: Blamed = "class",
    rules: dict[str, Rule] = RULES,
) -> Callable[[CheckFunction], CheckFunction]:
    """Register the decorated function as a rule of its name; the first sentence of its documentation is `expected`.

    The function returns a `CheckFinding` with what is wrong, or `passing` if nothing is. It raises
    ``NotSupportedError`` if the subject has nothing that the rule is about.

    :param rules: where it is registered, by default among those for any algorithm
    """

    def register(function: CheckFunction) -> CheckFunction:
        name = function.__name__
        given = faults if callable(faults) else (lambda _session: tuple(faults))
        expected = first_paragraph(function)
        rules[name] = Rule(name, family, severity, expected, function, tuple(rests_on), given, blamed=blamed)
        return function

    return register


def in_a_process(function: CheckFunction) -> CheckFunction:
    """Run a rule in a process of its own, which may crash or hang."""

    @functools.wraps(function)
    def found(session: SubjectSession) -> CheckFinding:
        attempt(lambda: session.steps)  # known before the process starts
        return session.run(lambda: function(session))

    return found


def first_paragraph(documented: object) -> str:
    """Return the first paragraph of a documentation in one line; empty where there is none."""
    return (inspect.getdoc(documented) or "").partition("\n\n")[0].replace("\n", " ")


def passing(seen: str = "") -> CheckFinding:
    """Return the finding of a rule if nothing is wrong; `Rule.expected` becomes its text."""
    return CheckFinding(Status.PASS, seen=seen)


def failing(
    seen: str, *, where: str = "", why: str = "", causes: Sequence[str] | None = None, owners: Sequence[Owner] = ()
) -> CheckFinding:
    """Return the finding of a rule if something is wrong; by default its cause is where it shows."""
    found = ((where,) if where else ()) if causes is None else tuple(causes)
    return CheckFinding(Status.FAIL, seen=seen, where=where, why=why, causes=found, owners=tuple(owners))


def compared(expected: Mapping[str, object], found: Mapping[str, object], seen: str) -> CheckFinding:
    """Return `passing` if two tables are equal, or else `failing` where they first differ.

    :param seen: what is said of the number of keys that differ, with {} in its place
    """
    differ = unequal(expected, found)
    return failing(seen.format(len(differ)), where=differ[0]) if differ else passing()


def inconclusive(reason: str) -> CheckFinding:
    """Return the finding of a rule that cannot tell."""
    return CheckFinding(Status.INCONCLUSIVE, seen=reason)
