"""Finds the faults that have to be planted again: they, the member that they replace, or a test that must detect them
differ from the base."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from rlverify.gating.git_base import Base
from rlverify.kill_matrix.plan import MatrixPlan
from rlverify.project.fingerprint import definitions, module_path, source_digest
from rlverify.records.errors import MatrixError
from rlverify.records.matrix import FaultPlan, without_case


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
    return was is None or _digest(was, name) != _digest(now, name)


def _digest(source: str, name: str) -> str:
    """Digest of a definition; of the class around it where it is inherited, and else of the file."""
    try:
        return source_digest(source, name)
    except LookupError:
        return _digest(source, name.rpartition(".")[0])


def require_test(root: Path, test: str) -> None:
    """Look for a test by its id. A method may be inherited, if its class has bases.

    :param root: the folder that the id is relative to
    :raises MatrixError: if there is no such test
    """
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
        raise MatrixError(test, f"is not a test: {_reason(error)}; correct the id") from error


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return str(error.strerror) if isinstance(error, OSError) else str(error)
