"""The records of the kill matrix; frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

FaultRole: TypeAlias = Literal["defect", "fix", "named", "null", "never a bug"]
Fate: TypeAlias = Literal["killed", "survived", "unreached"]
TestOutcome: TypeAlias = Literal["passed", "failed", "skipped", "nothing collected"]

MUST_SURVIVE: tuple[FaultRole, ...] = ("null", "never a bug")


@dataclass(frozen=True)
class FaultPlan:
    """A fault and the tests that are run under it.

    :param kind: ``defect`` of a claim expected CONFIRMED; ``fix`` that a document describes and that leaves something
        broken; ``named``, a fault that only tests named by documents must detect; ``null``, which changes
        nothing; ``never a bug``, of a claim expected NOT REPRODUCED
    :param tests: all tests that are run, which are those of its area and its checks
    """

    fault: str
    kind: FaultRole
    claims: tuple[str, ...]
    area: str
    checks: tuple[str, ...]
    tests: tuple[str, ...]

    @property
    def must_survive(self) -> bool:
        """Whether a test that fails under it gives a false alarm."""
        return self.kind in MUST_SURVIVE

    @property
    def expected(self) -> Fate:
        """The fate that it is to meet."""
        return "survived" if self.must_survive else "killed"


@dataclass(frozen=True)
class FaultResult:
    """What became of a fault.

    :param fate: ``unreached`` if no test ran it, else ``killed`` if a test failed and ``survived`` if none did
    :param killers: the tests that failed, cases of one test as one
    :param diff: the fault next to the healthy member, where it survived and is more than a null fault
    """

    plan: FaultPlan
    fate: Fate
    reached: bool
    killers: tuple[str, ...] = ()
    diff: str = ""

    @property
    def as_expected(self) -> bool:
        """Whether it met the fate that it is to meet."""
        return self.fate == self.plan.expected

    @property
    def blind(self) -> tuple[str, ...]:
        """The checks that should have detected it and did not."""
        found = [(each, without_case(each)) for each in self.plan.checks]
        return tuple(each for each, check in found if not any(is_of(test, check) for test in self.killers))


@dataclass(frozen=True)
class NamedSuite:
    """The tests that a document names in one file."""

    document: str
    file: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Matrix:
    """Which tests detect which faults."""

    measured: str
    rows: tuple[FaultResult, ...]
    tests: Mapping[str, TestOutcome]
    suites: tuple[NamedSuite, ...] = ()
    schema_version: Literal[4] = 4


def is_of(test: str, asked: str) -> bool:
    """Whether a test is what was asked for by its id, or one of its cases, or in that class or file."""
    return test == asked or test.startswith((f"{asked}[", f"{asked}::"))


def without_case(test: str) -> str:
    """The id of a test without that of its case."""
    return test.partition("[")[0]
