"""Texts of syntax trees that stay the same when comments, docstrings, layout or names of local variables change.

The dump is our own because ``ast.dump`` differs between Python versions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

Names: TypeAlias = Mapping[str, str]
"""From the name of a local variable to what replaces it in the text."""

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension: TypeAlias = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp

_LAYOUT_FIELDS: Final = frozenset({"ctx", "kind", "type_comment", "type_ignores", "type_params"})
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SEES_NAMES: Final = frozenset({"locals", "vars", "dir", "eval", "exec"})
"""A function that calls one of these can read the names of its variables, so they are part of its meaning."""


def canonical(node: object, names: Names | None = None, *, bodies: bool = True) -> str:
    """A text of a syntax tree that is the same on every supported Python version.

    Variables that are local to a function are numbered. Parameters, attributes and names that an import or a definition
    binds stay as they are, because code outside the function can see them.

    :param names: the local variables of the functions around the node
    :param bodies: whether the bodies of functions are part of the text; without them it is what runs when a module is
        imported
    """
    return _Text(bodies).of(node, names or {})


class _Text:
    def __init__(self, bodies: bool) -> None:
        self.bodies = bodies

    def of(self, node: object, names: Names) -> str:
        if isinstance(node, list):
            return "[" + ",".join(self.of(item, names) for item in node) + "]"
        if not isinstance(node, ast.AST):
            return f"{type(node).__name__}:{node!a}"
        if isinstance(node, _FUNCTIONS):
            return self._function(node, names)
        if isinstance(node, _COMPREHENSIONS):
            return self._comprehension(node, names)
        if isinstance(node, ast.ClassDef):
            bound = _bound_in(node.body)
            return self._node(node, {name: new for name, new in names.items() if name not in bound})
        return self._node(node, names)

    def _node(self, node: ast.AST, names: Names, own: Mapping[str, Names] | None = None) -> str:
        """:param own: the variables that count in some fields, where not ``names``"""
        fields = _fields(node)
        if not self.bodies and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            fields.pop("body", None)
        return _call(
            node, {name: self._field(node, name, fields[name], (own or {}).get(name, names)) for name in fields}
        )

    def _field(self, node: ast.AST, name: str, value: object, names: Names) -> str:
        if (isinstance(node, ast.Name) and name == "id") or (isinstance(node, ast.ExceptHandler) and name == "name"):
            value = names.get(str(value), value)
        if isinstance(node, (ast.Nonlocal, ast.Global)):
            value = [names.get(each, each) for each in node.names]
        return self.of(value, names)

    def _function(self, node: Function, names: Names) -> str:
        """Only the body sees the function's own variables; decorators, defaults and annotations do not."""
        return self._node(node, names, {"body": _inside(node, names)})

    def _comprehension(self, node: Comprehension, names: Names) -> str:
        """The first iterable is evaluated outside the comprehension."""
        own = {**names, **_numbered(_targets(node), names)}
        first, *others = node.generators
        texts = {name: self.of(getattr(node, name), own) for name in _fields(node) if name != "generators"}
        generators = [self._node(first, own, {"iter": names}), *(self.of(each, own) for each in others)]
        return _call(node, {**texts, "generators": "[" + ",".join(generators) + "]"})


def _call(node: ast.AST, texts: Mapping[str, str]) -> str:
    return type(node).__name__ + "(" + ",".join(f"{name}={texts[name]}" for name in sorted(texts)) + ")"


def _fields(node: ast.AST) -> dict[str, object]:
    fields = dict(ast.iter_fields(node))
    if isinstance(node, (*_DEFINITIONS, ast.Module)):
        fields["body"] = _without_docstring(node.body)
    return {name: value for name, value in fields.items() if name not in _LAYOUT_FIELDS and value not in (None, [])}


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    is_text = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return body[1:] if is_text else body


def _inside(node: Function, names: Names) -> Names:
    """The variables that the body of a function sees, each with its number."""
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    inner = list(_walk(body))
    if any(isinstance(each, ast.Name) and each.id in _SEES_NAMES for part in body for each in ast.walk(part)):
        return {}
    arguments = node.args
    parameters = {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    parameters |= {each.arg for each in (arguments.vararg, arguments.kwarg) if each is not None}
    outer = {name for each in inner if isinstance(each, (ast.Nonlocal, ast.Global)) for name in each.names}
    shared = {name for each in inner if isinstance(each, ast.Global) for name in each.names}
    fixed = parameters | _bound_by_statements(inner)
    found = [name for name in _stored(inner) if name not in fixed | outer]
    seen = {name: new for name, new in names.items() if name not in fixed | shared}
    return {**seen, **_numbered(found, seen)}


def _numbered(found: list[str], seen: Names) -> dict[str, str]:
    """A number for each variable that none has which is seen there; no name in source text is a number."""
    start = max(map(int, seen.values()), default=-1) + 1
    return {name: str(start + place) for place, name in enumerate(dict.fromkeys(found))}


def _walk(nodes: list[ast.stmt] | list[ast.expr]) -> Iterator[ast.AST]:
    """All nodes of one scope, in the order of the source; of what opens another scope, the node alone."""
    waiting: list[ast.AST] = list(reversed(nodes))
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, _COMPREHENSIONS):
            yield from (each.target for each in ast.walk(node) if isinstance(each, ast.NamedExpr))
        elif not isinstance(node, (*_DEFINITIONS, ast.Lambda)):
            waiting.extend(reversed(list(ast.iter_child_nodes(node))))


def _stored(nodes: list[ast.AST]) -> list[str]:
    found = []
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.append(node.id)
        if isinstance(node, ast.ExceptHandler) and node.name is not None:
            found.append(node.name)
    return found


def _bound_by_statements(nodes: list[ast.AST]) -> set[str]:
    """Names that imports, definitions and patterns bind."""
    found = set()
    for node in nodes:
        if isinstance(node, _DEFINITIONS):
            found.add(node.name)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        if isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name is not None:
            found.add(node.name)
        if isinstance(node, ast.MatchMapping) and node.rest is not None:
            found.add(node.rest)
    return found


def _bound_in(body: list[ast.stmt]) -> set[str]:
    """Names that a class body binds."""
    inner = list(_walk(body))
    return {*_stored(inner), *_bound_by_statements(inner)}


def _targets(node: Comprehension) -> list[str]:
    return [
        each.id
        for generator in node.generators
        for each in ast.walk(generator.target)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    ]
