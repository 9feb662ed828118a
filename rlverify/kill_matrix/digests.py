"""Digests of what a kill matrix was measured of; they do not change with comments, docstrings or layout.

A row depends on its fault and on the tests that must detect it, and on nothing else. Neither the files around these
tests nor the other tests that run under the fault ask for a new matrix.
"""

from __future__ import annotations

from pathlib import Path

from rlverify.kill_matrix.plan import MatrixPlan
from rlverify.project.fingerprint import digest, file_digest, has_bases, is_within, module_digests
from rlverify.records.errors import MatrixError
from rlverify.records.matrix import FaultPlan, WeakTest, without_case


def under_test_digest(matrix_plan: MatrixPlan) -> str:
    """Of the modules that the claims are about, with all that they import from the packages under test."""
    project = matrix_plan.project
    packages = (*project.settings.under_test, project.package)
    named = {name for claim in project.claims for name in project.modules(claim) if is_within(name, packages)}
    return digest(part for pair in module_digests(named, within=project.settings.under_test) for part in pair)


def row_digest(matrix_plan: MatrixPlan, plan: FaultPlan) -> str:
    """Of a fault and of the tests that must detect it.

    :raises MatrixError: if one of these tests does not exist
    """
    tests = [part for check in plan.checks for part in (check, digest_of_test(matrix_plan.root, check))]
    return digest([*_fault_parts(matrix_plan, plan.fault), *tests])


def weak_test_digest(matrix_plan: MatrixPlan, weak: WeakTest) -> str:
    """Of a fault and of the weak test that should detect it.

    :raises MatrixError: if there is no such test
    """
    return digest([*_fault_parts(matrix_plan, weak.fault), weak.test, digest_of_test(matrix_plan.root, weak.test)])


def _fault_parts(matrix_plan: MatrixPlan, name: str) -> list[str]:
    project = matrix_plan.project
    fault = project.fault(name)
    code = module_digests([fault.defined_in], within=(f"{project.package}.faults",))
    return [name, fault.owner, fault.member, fault.pins, *(part for pair in code for part in pair)]


def digest_of_test(root: Path, test: str) -> str:
    """Digest of a test's own source, by its id; of the whole file if the id names a file.

    A method that its class inherits has the digest of the class.

    :param root: the folder that the id is relative to
    :raises MatrixError: if there is no such test
    """
    file, *names = without_case(test).split("::")
    path, name, parent = root / file, ".".join(names), ".".join(names[:-1])
    try:
        try:
            return file_digest(path, name)
        except LookupError:
            if not parent or not has_bases(path, parent):
                raise
            return file_digest(path, parent)
    except (OSError, SyntaxError, LookupError, UnicodeDecodeError) as error:
        raise MatrixError(test, f"is not a test: {_reason(error)}; correct the id") from error


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return str(error.strerror) if isinstance(error, OSError) else str(error)
