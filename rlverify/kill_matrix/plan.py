"""What is planted and which tests run under it, from the catalogue and the lists of named tests."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

from rlverify.gating.git_base import Base
from rlverify.project.content import Project
from rlverify.project.fingerprint import definitions, module_path, source_digest
from rlverify.project.planting import healthy_member, source_of
from rlverify.project.registry import Fault
from rlverify.project.settings import toml_of
from rlverify.records.claims import Claim, FixGrade, Verdict
from rlverify.records.errors import MatrixError
from rlverify.records.matrix import FaultPlan, FaultRole, NamedSuite, without_case

NAMED_TESTS = "named_tests.toml"
"""In the content package: the tests that documents name."""


@dataclass(frozen=True)
class MatrixPlan:
    """What is planted and which tests run under it, for one project."""

    project: Project

    @property
    def root(self) -> Path:
        """The folder that ids of tests are relative to."""
        return self.project.root

    @property
    def has_tests(self) -> bool:
        """Whether any test is there that could kill a fault."""
        return any((self.root / test.partition("::")[0]).is_file() for plan in self.plans for test in plan.tests)

    @cached_property
    def named(self) -> tuple[tuple[NamedSuite, Mapping[str, Sequence[str]]], ...]:
        """The tests that the documents name, and the faults under which each of them must fail, by id."""
        path = self.project.folder / NAMED_TESTS
        content = toml_of(path, partial(MatrixError, path)).get("suite", []) if path.is_file() else []
        return tuple(_suite(each) for each in content)

    @property
    def suites(self) -> tuple[NamedSuite, ...]:
        """The tests that the documents name."""
        return tuple(suite for suite, _ in self.named)

    @cached_property
    def plans(self) -> tuple[FaultPlan, ...]:
        """Every fault in each of its roles: those of claims in their order, then those that only named tests name."""
        planned: dict[tuple[str, FaultRole], FaultPlan] = {}
        for fault, kind, claim in _roles(self.project.claims):
            earlier = planned.get((fault, kind))
            planned[fault, kind] = self._of_claim(fault, kind, claim, earlier)
        known = {fault for fault, _ in planned}
        for fault in sorted({fault for _, faults in self.named for each in faults.values() for fault in each} - known):
            area = self.project.fault(fault).area
            checks = self._named_for(fault)
            planned[fault, "named"] = FaultPlan(fault, "named", (), area, checks, _all(checks, self._of_area(area)))
        return tuple(planned.values())

    def _of_claim(self, fault: str, kind: FaultRole, claim: Claim, earlier: FaultPlan | None) -> FaultPlan:
        checks, tests = self._tests_for(fault, kind, claim)
        if earlier is None:
            return FaultPlan(fault, kind, (claim.id,), claim.area, checks, tests)
        claims = (*earlier.claims, claim.id)
        return replace(earlier, claims=claims, checks=_all(earlier.checks, checks), tests=_all(earlier.tests, tests))

    def _tests_for(self, fault: str, kind: FaultRole, claim: Claim) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The tests that must detect a fault, and all that run under it.

        A fault that was never a bug in the case of one claim may be one in the case of another, whose tests see it.
        Where the area has no test that could give a false alarm, the tests of all areas run.
        """
        area = self._of_area(claim.area)
        if kind == "null":
            return (), area or self._of_any_area
        if kind == "never a bug":
            others = [each for each in self.project.claims if each is not claim and each.fault == fault]
            elsewhere = {*self._named_for(fault), *(test for each in others for test in each.killed_by)}
            return (), _without(area, elsewhere) or _without(self._of_any_area, elsewhere)
        checks = _all(claim.killed_by, self._named_for(fault))
        return checks, _all(checks, area)

    def _of_area(self, area: str) -> tuple[str, ...]:
        return _all(*(claim.killed_by for claim in self.project.claims if claim.area == area))

    @cached_property
    def _of_any_area(self) -> tuple[str, ...]:
        return _all(*(claim.killed_by for claim in self.project.claims))

    def _named_for(self, fault: str) -> tuple[str, ...]:
        return _all(*([test for test, names in faults.items() if fault in names] for _, faults in self.named))


def _roles(claims: Iterable[Claim]) -> Iterator[tuple[str, FaultRole, Claim]]:
    """Each fault that a claim names, with the role that it plays there."""
    for claim in claims:
        if claim.fault is None:
            continue
        if claim.kind == "null":
            yield claim.fault, "null", claim
        elif claim.expected_verdict is Verdict.NOT_REPRODUCED:
            yield claim.fault, "never a bug", claim
            if claim.documented_fix is not None:
                harms = claim.expected_fix_grade is FixGrade.HARMFUL
                yield claim.documented_fix, "fix" if harms else "never a bug", claim
        elif claim.expected_verdict is Verdict.CONFIRMED:
            yield claim.fault, "defect", claim
            if claim.documented_fix is not None and claim.expected_fix_grade is not FixGrade.CURED:
                yield claim.documented_fix, "fix", claim


def _all(*parts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({each for part in parts for each in part}))


def _without(tests: Iterable[str], others: Container[str]) -> tuple[str, ...]:
    return tuple(test for test in tests if test not in others)


def _suite(entry: Mapping[str, Any]) -> tuple[NamedSuite, Mapping[str, Sequence[str]]]:
    faults = {f"{entry['file']}::{name}": tuple(each) for name, each in entry["tests"].items()}
    return NamedSuite(entry["document"], entry["file"], tuple(faults)), faults


def changed_plans(matrix_plan: MatrixPlan, base: Base) -> list[FaultPlan]:
    """Return the plans to be measured again, in their order; comments, docstrings and layout ask for nothing."""
    return [
        plan
        for plan in matrix_plan.plans
        if any(
            path.resolve() in base.changed and _differs(base, path, name) for path, name in _places(matrix_plan, plan)
        )
    ]


def _places(matrix_plan: MatrixPlan, plan: FaultPlan) -> Iterator[tuple[Path, str]]:
    """Files and qualified names of the fault, of its target and of the tests that must detect it."""
    fault = matrix_plan.project.fault(plan.fault)
    if "<" not in fault.replacement.__qualname__:  # else a function of the engine made it, as for null faults
        yield module_path(fault.defined_in), fault.replacement.__qualname__
    module, _, name = fault.target.partition(":")
    yield module_path(module), name
    for test in plan.checks:
        file, *names = without_case(test).split("::")
        yield matrix_plan.root / file, ".".join(names)


@lru_cache(maxsize=4096)
def _differs(base: Base, path: Path, name: str) -> bool:
    if path.resolve() not in base.changed:
        return False
    was, now = base.text(path), path.read_text(encoding="utf-8")
    return was is None or _definition_digest(was, name) != _definition_digest(now, name)


def _definition_digest(source: str, name: str) -> str:
    """Digest of a definition; of the class around it where it is inherited, and else of the file."""
    try:
        return source_digest(source, name)
    except LookupError:
        return _definition_digest(source, name.rpartition(".")[0])


def require_test(root: Path, test: str) -> None:
    """Look for a test by its id. A method may be inherited, if its class has bases."""
    file, *names = without_case(test).split("::")
    try:
        tree = ast.parse((root / file).read_bytes())
        try:
            definitions(tree, ".".join(names))
        except LookupError:
            parents = definitions(tree, ".".join(names[:-1])) if names[1:] else []
            if not any(isinstance(node, ast.ClassDef) and node.bases for node in parents):
                raise
    except (OSError, SyntaxError, LookupError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise MatrixError(test, f"is not a test: {why}; correct the id") from error


LINES = 40


def difference(fault: Fault) -> str:
    """Unified, without decorators, and cut where it gets long."""
    members = healthy_member(fault.owner, fault.member), fault.replacement
    healthy, faulty = (source_of(each).splitlines() for each in members)
    name = f"{fault.owner}.{fault.member}"
    found = [*difflib.unified_diff(healthy, faulty, f"{name}, healthy", fault.name, n=2, lineterm="")]
    more = [f"... and {len(found) - LINES} more lines"] if len(found) > LINES else []
    return "\n".join([*found[:LINES], *more])
