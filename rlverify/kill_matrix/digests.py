"""Digests of what a kill matrix was measured of; they do not change with comments, docstrings or layout.

A row depends on its fault and on the tests that must detect it, and on nothing else. Neither the files around these
tests nor the other tests that run under the fault ask for a new matrix.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from rlverify.kill_matrix.plan import MatrixPlan
from rlverify.project.fingerprint import digest, module_digests, source_digest
from rlverify.records.errors import MatrixError
from rlverify.records.matrix import FaultPlan, WeakTest, without_case


def under_test_digest(matrix_plan: MatrixPlan) -> str:
    """Of the modules that the claims are about, with all that they import from the packages under test."""
    project = matrix_plan.project
    packages = {*project.settings.under_test, project.package}
    named = {name for claim in project.claims for name in project.modules(claim) if name.partition(".")[0] in packages}
    return digest(part for pair in module_digests(named, within=project.settings.under_test) for part in pair)


def row_digest(matrix_plan: MatrixPlan, plan: FaultPlan) -> str:
    """Of a fault and of the tests that must detect it.

    :raises MatrixError: if one of these tests does not exist
    """
    tests = [part for check in plan.checks for part in (check, test_digest(matrix_plan.root, check))]
    return digest([*_fault_parts(matrix_plan, plan.fault), *tests])


def weak_test_digest(matrix_plan: MatrixPlan, weak: WeakTest) -> str:
    """Of a fault and of the weak test that should detect it.

    :raises MatrixError: if there is no such test
    """
    return digest([*_fault_parts(matrix_plan, weak.fault), weak.test, test_digest(matrix_plan.root, weak.test)])


def _fault_parts(matrix_plan: MatrixPlan, name: str) -> list[str]:
    project = matrix_plan.project
    fault = project.fault(name)
    code = module_digests([fault.defined_in], within=(f"{project.package}.faults",))
    return [name, fault.owner, fault.member, fault.pins, *(part for pair in code for part in pair)]


def test_digest(root: Path, test: str) -> str:
    """Digest of a test's own source, by its id; of the whole file where the id names a file.

    :param root: the folder that the id is relative to
    :raises MatrixError: if there is no such test
    """
    file, *names = without_case(test).split("::")
    path = root / file
    try:
        modified = path.stat().st_mtime_ns
        return _digest_of(path, modified, tuple(names))
    except (OSError, SyntaxError, LookupError, UnicodeDecodeError) as error:
        raise MatrixError(test, f"is not a test: {_reason(error)}; correct the id") from error


test_digest.__test__ = False  # type: ignore[attr-defined]  # in a test module that imports it


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return str(error.strerror) if isinstance(error, OSError) else str(error)


@lru_cache(maxsize=4096)
def _digest_of(path: Path, _modified: int, names: tuple[str, ...]) -> str:
    source = path.read_text(encoding="utf-8")
    try:
        return source_digest(source, ".".join(names))
    except LookupError:
        if len(names) < 2:
            raise
        return source_digest(source, ".".join(names[:-1]))  # a method that the class inherits
