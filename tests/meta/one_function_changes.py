"""Changes in one function of the core each: which ten are typical, and how they are made.

The rule: take a random line in a function of `rlcore`, and change this function. All functions are sorted by the number
of claims whose runs executed them, and their lines are cut into ten parts of equal size. The ten functions are those in
the middle of the parts, at 5%, 15%, ..., 95% of the lines. So half of all one-line changes in a function select fewer
claims than the fifth and sixth.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlverify.evidence.lock_file import NAME, load_lock
from rlverify.project.content import Project
from rlverify.project.current_code import CurrentCode
from rlverify.project.fingerprint import module_name
from tests.meta.broken_elsewhere import functions


@dataclass(frozen=True)
class Function:
    """A function of the core.

    :param path: its file, relative to the repository
    :param claims: how many claims executed it
    """

    path: Path
    name: str
    lines: int
    claims: int


def functions_of_core(project: Project) -> list[Function]:
    """Every function, those that few claims executed first; ties in the order of files and names."""
    code = CurrentCode(project)
    lock = load_lock(project.paths.reports / NAME, code)
    claims = Counter(name for record in lock.claims.values() for name, _ in record.parts)
    place = project.root / "rlcore"
    found = []
    for path in sorted(place.rglob("*.py")):
        module = module_name("rlcore", place, path)
        for name, node in functions(ast.parse(path.read_bytes()), ""):
            lines = (node.end_lineno or 0) - node.lineno + 1
            part = f"{module}:{name}" if name in code.parts(module) else module
            found.append(Function(path.relative_to(project.root), name, lines, claims[part]))
    return sorted(found, key=lambda each: (each.claims, each.path, each.name))


def middles(found: Sequence[Function], number: int) -> list[Function]:
    """The functions in the middle of each of so many parts with equally many lines."""
    whole, before = sum(each.lines for each in found), 0
    chosen: list[Function] = []
    for each in found:
        before += each.lines
        while len(chosen) < number and before * 2 * number > whole * (2 * len(chosen) + 1):
            chosen.append(each)
    return chosen


def change(source: str, name: str) -> str:
    """The source with one statement more, which does nothing, at the start of a function."""
    tree = ast.parse(source)
    node = next(node for found, node in functions(tree, "") if found == name)
    node.body.insert(0 if ast.get_docstring(node) is None else 1, ast.parse("_ = 0").body[0])
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"
