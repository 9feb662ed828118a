"""Digests of source code that do not change with comments, docstrings and layout.

Files are found without importing anything, so that a digest costs no import of the package it is taken of.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlverify.records.errors import StaleFaultError

COMPILERS = ("numba", "triton")
"""Libraries that compile functions. What is compiled runs without the interpreter, so no profiler can name it."""
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_WITH_DOCSTRING = (*_DEFINITIONS, ast.Module)
_LAYOUT = ("ctx", "kind", "type_comment", "type_ignores")


def digest(texts: Iterable[str]) -> str:
    """16 hexadecimal digits of SHA-256 over the texts and the borders between them."""
    total = hashlib.sha256()
    for text in texts:
        data = text.encode()
        total.update(f"{len(data)}:".encode() + data)
    return total.hexdigest()[:16]


def tree_text(tree: ast.AST) -> str:
    """`ast.dump` without docstrings, and without what differs between Python versions: empty fields and layout."""
    for node in ast.walk(without_docstrings(tree)):
        for name, value in list(ast.iter_fields(node)):
            if name in _LAYOUT or value == []:
                vars(node).pop(name, None)
    return ast.dump(tree)


def without_docstrings(tree: ast.AST) -> ast.AST:
    """The tree itself, after removing its docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return tree


def source_digest(source: str | bytes, qualified_name: str = "") -> str:
    """Digest of a source text, or of every definition in it under one qualified name (``Class.method``)."""
    return digest(tree_text(node) for node in definitions(ast.parse(source), qualified_name))


def definitions(tree: ast.Module, qualified_name: str) -> list[ast.AST]:
    """Every definition of a module under one qualified name; the module itself if that is empty."""
    nodes: list[ast.AST] = [tree]
    for part in filter(None, qualified_name.split(".")):
        nodes = [found for node in nodes for found in _inside(node) if found.name == part]
    if not nodes:
        raise LookupError(f"no definition of {qualified_name}")
    return nodes


def _inside(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Definitions directly inside a node, those under an ``if``, ``try`` or ``for`` included."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _DEFINITIONS):
            yield child
        elif isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield from _inside(child)


def code_parts(source: str) -> dict[str, str]:
    """The digest of each function of a source text by its qualified name, and of all other code under the empty name.

    The other code is what runs when the module is imported: constants, class bodies, decorators, default values. In a
    module that imports one of `COMPILERS`, or is not Python, all code is other code.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # the latter of a null character
        return {"": digest([source])}
    functions = [] if _imports(tree, "", COMPILERS) else list(_functions(tree, ""))
    texts: dict[str, list[str]] = {}
    for name, node in functions:
        texts.setdefault(name, []).append(tree_text(node))
    for _, node in functions:
        node.body = []
    return {"": digest([tree_text(tree)]), **{name: digest(found) for name, found in texts.items()}}


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function that is not inside another one, with its qualified name."""
    for child in _inside(node):
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield prefix + child.name, child


def member_digest(function: Any) -> str:
    """Digest of a function's or method's own source, as it is written in the module that defines it.

    :raises StaleFaultError: if it cannot be found there (made by a call, or defined inside another function)
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "?")
    path = getattr(sys.modules.get(module or ""), "__file__", None)
    try:
        if path is None:
            raise LookupError(f"module {module} has no source file")
        return file_digest(Path(path), name)
    except (LookupError, OSError) as error:
        raise StaleFaultError(f"{module}:{name} cannot be fingerprinted: {error.args[0]}") from error


def file_digest(path: Path, qualified_name: str) -> str:
    """`source_digest` of a file."""
    return _file_digest(path, path.stat().st_mtime_ns, qualified_name)


@lru_cache(maxsize=1024)
def _file_digest(path: Path, _modified: int, qualified_name: str) -> str:
    return source_digest(path.read_bytes(), qualified_name)


def place_of(name: str) -> Path | None:
    """The folder of a package, or the file of a module, found without importing its parents; None if there is none."""
    top, *inside = name.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None:
        return None
    folders = [Path(folder).joinpath(*inside) for folder in spec.submodule_search_locations or ()]
    if not folders:
        return None if inside else Path(str(spec.origin))
    packages = [folder for folder in folders if (folder / "__init__.py").is_file()]
    files = [folder.with_name(f"{folder.name}.py") for folder in folders]
    return next((place for place in (*packages, *files, *folders) if place.exists()), None)


def module_path(name: str) -> Path:
    """The source file of a dotted module name, found without importing its parents."""
    place = place_of(name)
    file = place / "__init__.py" if place is not None and place.is_dir() else place
    if file is None or not file.is_file():
        raise LookupError(f"no module {name}")
    return file


def module_name(package: str, place: Path, path: Path) -> str:
    """The dotted name of the module in a source file."""
    inside = [] if path == place else [*path.relative_to(place).with_suffix("").parts]
    return ".".join((package, *(inside[:-1] if inside[-1:] == ["__init__"] else inside)))


def module_exists(name: str) -> bool:
    """Whether a dotted name is that of a module with a source file."""
    try:
        module_path(name)
    except LookupError:
        return False
    return True


def module_closure(names: Iterable[str], within: tuple[str, ...]) -> set[str]:
    """Modules, and all that they import from some packages, directly or not."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(_imports_within(name, within))
    return found


def _imports_within(name: str, within: tuple[str, ...]) -> tuple[str, ...]:
    path = module_path(name)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return _imports_of_file(path, path.stat().st_mtime_ns, package, within)


@lru_cache(maxsize=1024)
def _imports_of_file(path: Path, _modified: int, package: str, within: tuple[str, ...]) -> tuple[str, ...]:
    """The modules that a file imports from some packages; of one that is not Python none, which its import reports."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return ()
    return tuple(filter(module_exists, _imports(tree, package, within)))


def _imports(tree: ast.Module, package: str, within: tuple[str, ...]) -> list[str]:
    """The modules that a module of a package imports from some packages, and names that may be such modules."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += _imported_from(node, package, within)
    return [each for each in found if is_within(each, within)]


def is_within(name: str, packages: Iterable[str]) -> bool:
    """Whether a dotted name is one of the packages, or inside one of them."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _imported_from(node: ast.ImportFrom, package: str, within: tuple[str, ...]) -> list[str]:
    """What ``from module import names`` may import: the submodules of these names, and the module itself."""
    try:
        module = importlib.util.resolve_name("." * node.level + (node.module or ""), package or None)
    except ImportError:  # a relative import beyond the top, which fails at run time as well
        return []
    submodules = [f"{module}.{alias.name}" for alias in node.names]
    if module in within and all(map(module_exists, submodules)):
        return submodules
    return [module, *submodules]
