"""Texts of syntax trees that stay the same when comments, docstrings, layout or names of local variables change.

The dump is our own because ``ast.dump`` differs between Python versions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final, TypeAlias

Names: TypeAlias = Mapping[str, str]
"""From the name of a local variable to what replaces it in the text."""

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension: TypeAlias = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp

_LAYOUT_FIELDS: Final = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SEES_NAMES: Final = frozenset({"locals", "vars", "dir", "eval", "exec"})
"""A function that calls one of these can read the names of its variables, so they are part of its meaning."""
_FRAME_VARIABLES: Final = "f_locals"


@dataclass(frozen=True)
class _Scope:
    """The local variables that code sees.

    :param here: those that the code itself sees
    :param inside: those that functions and comprehensions inside it see; these do not see the names of a class body
    """

    here: Names = field(default_factory=dict)
    inside: Names = field(default_factory=dict)


_Part: TypeAlias = str | tuple[ast.AST | list[object], _Scope]
"""A text, or something that has one."""


def canonical(node: object, *, bodies: bool = True) -> str:
    """A text of a syntax tree that is the same on every supported Python version.

    Variables that are local to a function are numbered. These names stay as they are:

    - parameters and attributes, because code outside the function can see them
    - names that an import, a definition or a pattern binds
    - names with two underscores together, which Python or a library may treat in a special way

    :param bodies: whether the bodies of functions are part of the text; without them it is what runs when a module is
        imported
    """
    texts: list[str] = []
    waiting: list[_Part] = [*_short(node, _Scope())]
    while waiting:  # not a recursion, because a long chain of `elif` is deeper than Python lets functions recurse
        part = waiting.pop()
        if isinstance(part, str):
            texts.append(part)
        else:
            waiting.extend(reversed([*_parts(*part, bodies=bodies)]))
    return "".join(texts)


def _parts(value: ast.AST | list[object], scope: _Scope, *, bodies: bool) -> Iterable[_Part]:
    if isinstance(value, list):
        return ["[", *_listed(value, scope), "]"]
    if isinstance(value, _COMPREHENSIONS):
        return _comprehension(value, scope)
    fields = _fields(value)
    if not bodies and isinstance(value, (ast.FunctionDef, ast.AsyncFunctionDef)):
        fields.pop("body", None)
    inner = _body_scope(value, scope) if "body" in fields else scope
    return _node(
        value,
        (
            (name, _short(_renamed(value, name, each, scope), inner if name == "body" else scope))
            for name, each in fields.items()
        ),
    )


def _renamed(node: ast.AST, name: str, value: object, scope: _Scope) -> object:
    """The value of a field, with numbers in place of names of local variables."""
    if isinstance(node, ast.ExceptHandler) and name == "name":
        return scope.here.get(str(value), value)
    if isinstance(node, (ast.Nonlocal, ast.Global)):
        return [scope.here.get(each, each) for each in node.names]
    return value


def _node(node: ast.AST, fields: Iterable[tuple[str, Iterable[_Part]]]) -> Iterator[_Part]:
    yield f"{type(node).__name__}("
    comma = ""
    for name, parts in fields:
        yield f"{comma}{name}="
        yield from parts
        comma = ","
    yield ")"


def _listed(items: Iterable[object], scope: _Scope) -> Iterator[_Part]:
    for place, item in enumerate(items):
        if place:
            yield ","
        yield from _short(item, scope)


def _short(value: object, scope: _Scope) -> Iterable[_Part]:
    """The text of a value that is short, or else the value, whose text is made later."""
    if isinstance(value, ast.Name):
        return (f"Name(id={_plain(scope.here.get(value.id, value.id))})",)
    if isinstance(value, (ast.AST, list)):
        return ((value, scope),)
    return (_plain(value),)


def _plain(value: object) -> str:
    return f"{type(value).__name__}:{value!a}"


def _comprehension(node: Comprehension, scope: _Scope) -> Iterator[_Part]:
    """The first iterable is evaluated outside the comprehension."""
    targets = [name for generator in node.generators for name in _names_of(generator.target)]
    own = {name: new for name, new in scope.inside.items() if name not in targets}
    if not _sees_names(ast.walk(node)):
        own |= _numbered(targets, scope.inside)
    inner = _Scope(own, own)
    first, *others = node.generators
    texts = ((name, _short(each, scope if name == "iter" else inner)) for name, each in _fields(first).items())
    generators = ["[", *_node(first, texts), *(part for each in others for part in (",", (each, inner))), "]"]
    fields = _fields(node).items()
    yield from _node(
        node, ((name, generators if name == "generators" else _short(each, inner)) for name, each in fields)
    )


def _fields(node: ast.AST) -> dict[str, object]:
    """The fields that are part of the text, sorted by name."""
    found = {name: getattr(node, name, None) for name in _of_text(node._fields)}
    if isinstance(node, (*_DEFINITIONS, ast.Module)):
        found["body"] = _without_docstring(node.body)
    return {name: value for name, value in found.items() if value is not None and value != []}


@cache
def _of_text(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(name for name in names if name not in _LAYOUT_FIELDS))


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    is_text = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return body[1:] if is_text else body


def _body_scope(node: ast.AST, scope: _Scope) -> _Scope:
    """What the body of a definition sees; its decorators, default values, annotations and bases see what is around."""
    if isinstance(node, _FUNCTIONS):
        seen = _inside(node, scope.inside)
        return _Scope(seen, seen)
    if isinstance(node, ast.ClassDef):
        return _Scope(_in_class(node, scope.inside), scope.inside)
    return scope


def _inside(node: Function, names: Names) -> Names:
    """The variables that the body of a function sees, each with its number."""
    body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
    everything = [each for part in body for each in ast.walk(part)]
    if _sees_names(everything):
        return {}
    inner = list(_walk(body))
    arguments = node.args
    parameters = {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    parameters |= {each.arg for each in (arguments.vararg, arguments.kwarg) if each is not None}
    shared = _declared(inner, ast.Global)
    fixed = parameters | _bound_by_statements(inner) | _fixed_further_in(everything)
    found = [name for name in _stored(inner) if name not in fixed | shared | _declared(inner, ast.Nonlocal)]
    seen = {name: new for name, new in names.items() if name not in fixed | shared}
    return {**seen, **_numbered(found, seen)}


def _in_class(node: ast.ClassDef, names: Names) -> Names:
    """The variables of the functions around a class that its body sees."""
    inner = list(_walk([*node.body]))
    bound = {*_stored(inner), *_bound_by_statements(inner)} - _declared(inner, ast.Nonlocal)
    hidden = bound | _declared(inner, ast.Global)
    return {name: new for name, new in names.items() if name not in hidden}


def _sees_names(nodes: Iterable[ast.AST]) -> bool:
    """Whether code can read the names of its variables."""
    return any(
        (isinstance(each, ast.Name) and each.id in _SEES_NAMES)
        or (isinstance(each, ast.Attribute) and each.attr == _FRAME_VARIABLES)
        or (isinstance(each, ast.Attribute) and each.attr in _SEES_NAMES and _is_builtins(each.value))
        for each in nodes
    )


def _is_builtins(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "builtins"


def _numbered(found: list[str], seen: Names) -> dict[str, str]:
    """A number for each variable that none has which is seen there; no name in source text is a number."""
    start = max(map(int, seen.values()), default=-1) + 1
    ordinary = dict.fromkeys(name for name in found if "__" not in name)
    return {name: str(start + place) for place, name in enumerate(ordinary)}


def _walk(nodes: list[ast.AST]) -> Iterator[ast.AST]:
    """All nodes of one scope, in the order of the source."""
    waiting = list(reversed(nodes))
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, _COMPREHENSIONS):
            yield from _assigned_in(node)
        else:
            waiting.extend(reversed(_evaluated_here(node)))


def _evaluated_here(node: ast.AST) -> list[ast.AST]:
    """The children of a node; of a definition, all but its body, which is a scope of its own."""
    if not isinstance(node, (*_DEFINITIONS, ast.Lambda)):
        return list(ast.iter_child_nodes(node))
    values = [value for name, value in ast.iter_fields(node) if name != "body"]
    flat = [each for value in values for each in (value if isinstance(value, list) else [value])]
    return [each for each in flat if isinstance(each, ast.AST)]


def _assigned_in(node: Comprehension) -> Iterator[ast.Name]:
    """The targets of ``:=`` in a comprehension, which are variables of the function around it."""
    waiting: list[ast.AST] = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, ast.NamedExpr):
            yield each.target
        waiting.extend(reversed(_evaluated_here(each)))


def _stored(nodes: list[ast.AST]) -> list[str]:
    found = []
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.append(node.id)
        if isinstance(node, ast.ExceptHandler) and node.name is not None:
            found.append(node.name)
    return found


def _bound_by_statements(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that imports, definitions, patterns and ``type`` statements bind."""
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
        if type(node).__name__ == "TypeAlias":  # since Python 3.12
            found |= {each.id for each in ast.iter_child_nodes(node) if isinstance(each, ast.Name)}
    return found


def _fixed_further_in(nodes: list[ast.AST]) -> set[str]:
    """Names that code further in binds in a way that keeps them as they are: type parameters and ``nonlocal`` ones."""
    parameters = {each.name for node in nodes for each in getattr(node, "type_params", ())}  # since Python 3.12
    return parameters | (_declared(nodes, ast.Nonlocal) & _bound_by_statements(nodes))


def _declared(nodes: Iterable[ast.AST], kind: type[ast.Nonlocal] | type[ast.Global]) -> set[str]:
    return {name for node in nodes if isinstance(node, kind) for name in node.names}


def _names_of(target: ast.expr) -> list[str]:
    """The variables that the target of a comprehension binds."""
    if isinstance(target, ast.Name):
        return [target.id]
    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else ()
    parts = [target.value] if isinstance(target, ast.Starred) else parts
    return [name for part in parts for name in _names_of(part)]
