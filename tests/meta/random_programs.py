"""Random functions of nested scopes, and changes of the names in a program, to test digests of source code with."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from random import Random

_NAMES = "abc"
"""So few that most scopes hide a name of another."""


def renamed(source: str, names: Mapping[str, str], only: int | None = None) -> str:
    """A program with other names of variables, in every scope.

    :param only: rename only this use of one, of all that are renamed
    """
    tree = ast.parse(source)
    counter = iter(range(len(source)))
    return ast.unparse(
        _Renaming(lambda name: names[name] if only in (None, next(counter)) else name, names).visit(tree)
    )


def changed_names(source: str, random: Random) -> str:
    """A program with names exchanged in a part of it."""
    tree = ast.parse(source)
    scopes = (ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.DictComp, ast.Module, ast.Assign)
    node = random.choice([each for each in ast.walk(tree) if isinstance(each, scopes)])
    new = random.choice(
        [
            {random.choice(_NAMES): random.choice(_NAMES)},
            {random.choice(_NAMES): "z"},
            dict(zip(_NAMES, random.sample(_NAMES, 3), strict=True)),
        ]
    )
    share = random.choice([1.0, 1.0, 1.0, 0.5])
    renaming = _Renaming(lambda name: new[name] if random.random() < share else name, new)
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and random.random() < 0.7:
        node.body = [renaming.visit(each) for each in node.body]
    else:
        renaming.generic_visit(node)
    return ast.unparse(tree)


class _Renaming(ast.NodeTransformer):
    def __init__(self, choose: Callable[[str], str], names: Mapping[str, str]) -> None:
        self._choose, self._names = choose, names

    def _new(self, name: str) -> str:
        return self._choose(name) if name in self._names else name

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self._new(node.id)
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        node.name = self._new(node.name) if node.name is not None else None
        return self.generic_visit(node)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.Nonlocal:
        node.names = [self._new(name) for name in node.names]
        return node

    def visit_Global(self, node: ast.Global) -> ast.Global:
        node.names = [self._new(name) for name in node.names]
        return node


def random_function(random: Random) -> str:
    """The source of a function; it may be no Python, such as a ``nonlocal`` of no variable."""
    return f"def f():\n{_Source(random).block(3, 1)}"


class _Source:
    def __init__(self, random: Random) -> None:
        self._random = random

    def name(self) -> str:
        return self._random.choice(_NAMES)

    def maybe(self, text: str) -> str:
        return self._random.choice(["", "", text])

    def target(self) -> str:
        simple = self.name()
        return self._random.choice([simple, simple, simple, f"({simple}, *{self.name()})", f"{simple}[{self.name()}]"])

    def expression(self, depth: int) -> str:
        if depth == 0 or self._random.random() < 0.3:
            return self.name()
        one, other, name = self.expression(depth - 1), self.expression(depth - 1), self.name()
        generator = f"for {self.target()} in {other}{self.maybe(f' if {name}')}"
        return self._random.choice(
            [
                f"({name} := {one})",
                f"[{one} {generator}{self.maybe(f' for {self.target()} in {self.name()}')}]",
                f"{{{name}: {one} {generator}}}",
                f"(lambda {name}={one}: {other})",
                f"(lambda: {one})",
                f"{name}({self.name()}={one})",
                f"({one} + {other}).{name}",
                f"f'{{{name}}}'",
                f"{name}[{one}]",
            ]
        )

    def block(self, depth: int, level: int) -> str:
        lines = [line for _ in range(self._random.randint(1, 3)) for line in self.statement(depth)]
        return "".join(f"{'    ' * level}{line}\n" for line in lines)

    def statement(self, depth: int) -> list[str]:
        one, other, name = self.expression(2), self.expression(1), self.name()
        simple = [
            f"{self.target()} = {one}", f"{self.target()} = {one}", one, f"nonlocal {name}", f"global {name}",
            f"import {name}", f"del {name}", f"{name} += {other}", f"{name}: {other}",
        ]  # fmt: skip
        if depth == 0 or self._random.random() < 0.4:
            return [self._random.choice(simple)]
        inside = self.block(depth - 1, 1).splitlines()
        parameters = self._random.choice(["", name, f"{name}={other}", f"*{name}", f"{name}: {other}"])
        function = [*self.maybe(f"@{other}").splitlines(), f"def {self._random.choice('abfg')}({parameters}):", *inside]
        return self._random.choice(
            [
                function,
                function,
                [f"class {self._random.choice('abAB')}({self.maybe(other)}):", *inside],
                [f"for {self.target()} in {other}:", *inside],
                ["try:", f"    {one}", f"except {other} as {name}:", *inside],
                [f"with {other} as {self.target()}:", *inside],
                [f"match {other}:", f"    case [{name}, *rest]:", *(f"    {line}" for line in inside)],
            ]
        )
