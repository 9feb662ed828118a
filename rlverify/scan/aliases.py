"""Which dotted names the names of a module stand for: imports, plain assignments, subclasses and instances."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Final

from rlverify.scan.loading_calls import LOADING_FUNCTIONS, is_model_class

MAX_MEANINGS: Final = 8
"""How many dotted names one name may stand for, as in a file that imports it in several branches."""
_IMPORTERS: Final = frozenset({"__import__", "importlib.import_module"})


class Aliases:
    """The meanings of names in one module, whichever function they are in.

    :param nodes: of the module, in the order of `ast.walk`
    """

    def __init__(self, nodes: Collection[ast.AST]) -> None:
        self._meanings: defaultdict[str, set[str]] = defaultdict(set)
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                for name, meaning in _imported(node):
                    self._add(name, meaning)
        for node in sorted(nodes, key=lambda node: getattr(node, "lineno", 0)):
            self._add_definition(node)

    def meanings_of(self, expression: ast.expr) -> tuple[str, ...]:
        """The dotted names that an expression may stand for, sorted; its own spelling counts if it has no other."""
        attributes: list[str] = []
        while isinstance(expression, ast.Attribute):
            attributes.append(expression.attr)
            expression = expression.value
        suffix = "".join(f".{name}" for name in reversed(attributes))
        return tuple(sorted(f"{name}{suffix}" for name in self._of_root(expression)))

    def _of_root(self, root: ast.expr) -> Collection[str]:
        if isinstance(root, ast.Name):
            return self._meanings.get(root.id, ()) or (root.id,)
        if isinstance(root, ast.NamedExpr):
            return self.meanings_of(root.value)
        return self._of_call(root) if isinstance(root, ast.Call) else ("",)

    def _of_call(self, call: ast.Call) -> Collection[str]:
        """``getattr(module, "name")``, ``import_module("name")`` and instances of classes of Stable-Baselines3."""
        called = self.meanings_of(call.func)
        texts = [
            each.value if isinstance(each, ast.Constant) and isinstance(each.value, str) else "" for each in call.args
        ]
        if called == ("getattr",) and len(texts) > 1 and texts[1]:
            return [f"{name}.{texts[1]}" for name in self.meanings_of(call.args[0])]
        if _IMPORTERS.intersection(called) and texts and texts[0]:
            return texts[:1]
        classes = (each.removesuffix(".load") for each in called)
        return [each for each in classes if is_model_class(each)] or ("",)

    def _add(self, name: str, meaning: str) -> None:
        if meaning and len(self._meanings[name]) < MAX_MEANINGS:
            self._meanings[name].add(meaning)

    def _add_definition(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in (each.id for each in targets if isinstance(each, ast.Name)):
                self._add_all(name, node.value)
        elif isinstance(node, ast.ClassDef) and not _replaces_loading(node):
            for base in node.bases:
                self._add_all(node.name, base)

    def _add_all(self, name: str, value: ast.expr) -> None:
        for meaning in self.meanings_of(value):
            if meaning in LOADING_FUNCTIONS or is_model_class(meaning) or _is_module(meaning):
                self._add(name, meaning)


_MODULES: Final = frozenset(name.rpartition(".")[0] for name in LOADING_FUNCTIONS)


def _is_module(name: str) -> bool:
    return name in _MODULES


def _replaces_loading(node: ast.ClassDef) -> bool:
    """Whether a class has its own way of loading, or of choosing what an unpickler may import."""
    return any(isinstance(each, ast.FunctionDef) and each.name in ("load", "find_class") for each in node.body)


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Each name that an import binds, and what it stands for."""
    if isinstance(node, ast.Import):
        for each in node.names:
            top = each.name.partition(".")[0]
            yield (each.asname, each.name) if each.asname else (top, top)
    elif node.module is not None and not node.level:
        for each in node.names:
            if each.name == "*":
                yield from _all_of(node.module)
            else:
                yield each.asname or each.name, f"{node.module}.{each.name}"


def _all_of(module: str) -> Iterator[tuple[str, str]]:
    for name in LOADING_FUNCTIONS:
        owner, _, function = name.rpartition(".")
        if owner == module:
            yield function, name
