"""Small mutations of Python source: each replaces one expression or one statement, in a function or outside of all.

Comments, docstrings and all other lines stay as they are. The inside of an f-string is left alone, because Python 3.11
does not say where it is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

FLIPPED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
SWAPPED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}
SIMPLE: Final = (
    *(ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete, ast.Raise, ast.Return, ast.Assert),
    *(ast.Import, ast.ImportFrom, ast.Break, ast.Continue),
)
"""Statements that become `pass`."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True)
class Mutation:
    """One replacement in a source.

    :param line: where it starts, from 1
    :param start: first byte that is replaced
    :param end: the byte after the last
    :param at_import: whether the code is outside of all function bodies, so that it runs when the module is imported
    """

    kind: str
    line: int
    start: int
    end: int
    new: str
    at_import: bool

    def apply(self, source: bytes) -> bytes:
        """The mutated source."""
        return source[: self.start] + self.new.encode() + source[self.end :]

    def describe(self, source: bytes) -> str:
        """What it replaces by what, in one line."""
        old = " ".join(source[self.start : self.end].decode().split())
        return f"line {self.line}, {self.kind}: {old} -> {self.new}"


def mutations(source: bytes) -> list[Mutation]:
    """All mutations of a source, in the order of the syntax tree."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node, at_import in _nodes(ast.parse(source), at_import=True):
        for kind, part, new in _replacements(node):
            start = starts[part.lineno - 1] + part.col_offset
            end = starts[(part.end_lineno or 0) - 1] + (part.end_col_offset or 0)
            found.append(Mutation(kind, part.lineno, start, end, new, at_import))
    return found


def compiles(source: bytes) -> bool:
    """Whether a source is a Python module."""
    try:
        compile(source, "mutated", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def _nodes(node: ast.AST, *, at_import: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Every node that can be replaced, and whether it is outside of all function bodies."""
    for name, value in ast.iter_fields(node):
        inside = isinstance(node, _FUNCTIONS) and name == "body"
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr) and not _is_text(child):
                yield child, at_import and not inside
                yield from _nodes(child, at_import=at_import and not inside)


def _is_text(node: ast.AST) -> bool:
    """Whether a node is a docstring, or another constant that stands alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _replacements(node: ast.AST) -> Iterator[tuple[str, ast.stmt | ast.expr, str]]:
    """The kind of each mutation of a node, the part of it that is replaced, and the new text."""
    if isinstance(node, ast.expr):
        yield from _of_expression(node)
    elif isinstance(node, ast.stmt):
        yield from _of_statement(node)
    tests = node.ifs if isinstance(node, ast.comprehension) else [getattr(node, "test", None)]
    for test in tests:
        if isinstance(test, ast.expr):
            yield "condition", test, f"not ({ast.unparse(test)})"


def _of_expression(node: ast.expr) -> Iterator[tuple[str, ast.expr, str]]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in FLIPPED:
        flipped = ast.Compare(node.left, [FLIPPED[type(node.ops[0])]()], node.comparators)
        yield "comparison", node, f"({ast.unparse(flipped)})"
    elif isinstance(node, ast.BinOp) and type(node.op) in SWAPPED:
        yield "arithmetic", node, f"({ast.unparse(ast.BinOp(node.left, SWAPPED[type(node.op)](), node.right))})"
    elif isinstance(node, ast.Constant) and (changed := _other(node.value)) is not None:
        yield "constant", node, changed
    elif isinstance(node, ast.Call):
        for keyword in node.keywords:
            rest = [each for each in node.keywords if each is not keyword]
            yield "keyword", node, ast.unparse(ast.Call(node.func, node.args, rest))


def _of_statement(node: ast.stmt) -> Iterator[tuple[str, ast.stmt, str]]:
    if isinstance(node, ast.AugAssign) and type(node.op) in SWAPPED:
        yield "arithmetic", node, ast.unparse(ast.AugAssign(node.target, SWAPPED[type(node.op)](), node.value))
    if isinstance(node, ast.Return) and ast.unparse(node) not in ("return", "return None"):
        yield "return", node, "return None"
    if isinstance(node, SIMPLE):
        yield "statement", node, "pass"


def _other(value: object) -> str | None:
    """Another constant of the same type; None where there is none."""
    if isinstance(value, bool):
        return str(not value)
    if isinstance(value, int | float):
        return repr(value + 1)
    if isinstance(value, str):
        return repr(value + "_")
    return repr(value + b"_") if isinstance(value, bytes) else None
