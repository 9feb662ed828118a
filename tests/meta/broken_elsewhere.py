"""Measures claims of this repository while every function that their record does not name raises an error.

``python -m tests.meta.broken_elsewhere ID...`` prints, for each claim, its id and whether its evidence is that which
is committed. As all functions that the claim did not execute are broken at once, this covers every change of a body
that `rlverify gate --changed` would not measure the claim for.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from rlverify.evidence.evidence_files import to_json
from rlverify.evidence.lock_file import NAME, load_lock
from rlverify.evidence.summarising import summarise
from rlverify.project.content import open_project
from rlverify.project.current_code import CurrentCode
from rlverify.project.fingerprint import imports_compiler
from rlverify.running.runner import run_here

ROOT = Path(__file__).parents[2]


class Breaking(importlib.abc.MetaPathFinder):
    """Imports modules of a package with all functions broken but those that are kept.

    :param kept: ``package.module:Class.method``
    """

    def __init__(self, package: str, kept: frozenset[str]) -> None:
        self.package, self.kept, self.broken = package, kept, 0

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a module of the package, with a loader that breaks it."""
        if fullname.partition(".")[0] != self.package:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin, self)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, breaking: Breaking) -> None:
        super().__init__(name, path)
        self.breaking = breaking

    def get_code(self, fullname: str) -> object:  # type: ignore[override]
        """The code of the module, never from a cache; compiled functions, which no record names, stay as they are."""
        path = self.get_filename(fullname)
        tree = ast.parse(Path(path).read_bytes())
        for name, node in functions(tree, "") if not imports_compiler(tree) else ():
            if f"{fullname}:{name}" not in self.breaking.kept:
                raising = ast.parse(f"raise AssertionError('{fullname}:{name} is not in the record')").body
                node.body = [ast.copy_location(raising[0], node.body[0])]
                self.breaking.broken += 1
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


def functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function outside other functions, with its qualified name; written apart from the engine's own search."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield f"{prefix}{child.name}", child
        elif isinstance(child, ast.ClassDef):
            yield from functions(child, f"{prefix}{child.name}.")
        elif not isinstance(child, ast.expr):
            yield from functions(child, prefix)


def main(claim_id: str) -> None:
    """Measure one claim, in a process that has imported nothing of the core."""
    project = open_project(ROOT)
    claim = project.claim(claim_id)
    lock = load_lock(project.paths.reports / NAME, CurrentCode(project))
    kept = frozenset(lock.claims[claim.id].executed.functions) - {os.environ.get("BROKEN_AS_WELL", "")}
    breaking = Breaking("rlcore", kept)
    sys.meta_path.insert(0, breaking)
    found = to_json(summarise(claim, run_here(project, claim, claim.seeds)))
    committed = (project.paths.evidence / f"{claim.id}.json").read_text(encoding="utf-8")
    print(claim.id, "same" if found == committed else "other", breaking.broken)  # noqa: T201 - read by the test


if __name__ == "__main__":
    main(sys.argv[1])
