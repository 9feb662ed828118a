"""Lines of Python that run one check again."""

from __future__ import annotations

import ast
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from rlverify.checks.leaves import NUMBERS
from rlverify.records.attempts import Crash, attempt

LINES: Final = 5


def reproduction(factory: Any, adapter: Any, check: str) -> str:
    """At most five lines that run; where there are none, a comment that says where the factory is.

    A lambda is written out with the imports of the names in it.
    """
    found = attempt(lambda: _lines(factory, adapter, check))
    if isinstance(found, Crash) or found is None or len(found) > LINES:
        return f"# run check_algorithm with checks=[{check!r}] on the factory in {_place(factory)}"
    return "\n".join(found)


def _lines(factory: Any, adapter: Any, check: str) -> list[str] | None:
    needed: dict[str, Any] = {}
    made = _expression(factory, needed)
    used = "" if adapter is None else _adapter(adapter, needed)
    if made is None or used is None:
        return None
    imports = _imports(needed)
    if imports is None:
        return None
    given = f", adapter={used}" if used else ""
    call = f"print(table(check_algorithm({made}{given}, checks=[{check!r}])))"
    return ["from rlverify.checks import check_algorithm, table", *imports, call]


def _expression(factory: Any, needed: dict[str, Any]) -> str | None:
    """What makes the subject, with the names that it needs."""
    name = _global_name(factory, getattr(factory, "__module__", ""))
    if name:
        needed[name] = factory
        return name
    if not isinstance(factory, types.FunctionType) or factory.__name__ != "<lambda>":
        return None
    nodes = [node for node in ast.walk(ast.parse(_file_of(factory).read_text("utf-8"))) if isinstance(node, ast.Lambda)]
    sources = [ast.unparse(node) for node in nodes if _is_node_of(node, factory.__code__)]
    if len(sources) != 1:
        return None
    known = inspect.getclosurevars(factory)
    used = {node.id for node in ast.walk(ast.parse(sources[0])) if isinstance(node, ast.Name)}
    needed.update({name: value for name, value in {**known.globals, **known.nonlocals}.items() if name in used})
    return None if known.unbound & used else sources[0]


def _is_node_of(node: ast.Lambda, code: types.CodeType) -> bool:
    """Whether code was compiled from a node, by the place of its body."""
    body = node.body
    return (body.lineno, body.end_lineno, body.col_offset, body.end_col_offset) in set(code.co_positions())


def _adapter(adapter: Any, needed: dict[str, Any]) -> str | None:
    kind = type(adapter)
    if not vars(adapter) and _global_name(kind, kind.__module__):
        needed[kind.__name__] = kind
        return f"{kind.__name__}()"
    return None


def _imports(needed: Mapping[str, Any]) -> list[str] | None:
    """Lines that give names their values, those of one module together; None if a value cannot be written."""
    modules: dict[str, list[str]] = {}
    lines: list[str] = []
    for name, value in needed.items():
        if isinstance(value, types.ModuleType):
            lines.append(f"import {value.__name__} as {name}" if value.__name__ != name else f"import {name}")
        elif isinstance(value, (*NUMBERS, types.NoneType)) and type(value) in (*NUMBERS, types.NoneType):
            lines.append(f"{name} = {value!r}")
        else:
            module = getattr(value, "__module__", "")
            own = _global_name(value, module)
            if not own:
                return None
            modules.setdefault(module, []).append(own if own == name else f"{own} as {name}")
    return [*(f"from {module} import {', '.join(names)}" for module, names in modules.items()), *lines]


def _global_name(value: Any, module: Any) -> str:
    """The name of a value in its module, if it can be imported from there; empty otherwise."""
    if not isinstance(module, str) or module in ("", "__main__") or module not in sys.modules:
        return ""
    own: dict[str, Any] = vars(sys.modules[module])
    return next((name for name, each in own.items() if each is value and name.isidentifier()), "")


def _file_of(factory: Callable[..., Any]) -> Path:
    return Path(inspect.getsourcefile(factory) or "")


def _place(factory: Any) -> str:
    code = getattr(factory, "__code__", None)
    return f"{code.co_filename}, line {code.co_firstlineno}" if code is not None else repr(type(factory).__qualname__)
