"""Why production code does not run a planted fault, as far as it can be known, and what to target instead."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from rlverify.project.planting import Planted

SHOWN = 3
"""How many places one hint names."""


def unreached_hint(planted: Planted, is_production: Callable[[str], bool]) -> str | None:
    """Why production code does not run the fault, while it is planted; None if it does, or if nothing is known.

    A fault that only the probe has run counts as unreached if a module holds the healthy function by name: production
    code runs that one. Otherwise production code would have run the fault, which the probe called directly.

    :param is_production: whether a module, given by its dotted name, is code under test
    """
    if planted.by_production:
        return None
    found = [*_holders(planted.original, is_production)]
    if not found and planted.executions == 0:
        found = [*_overrides(planted, is_production)]
    return "; ".join(found[:SHOWN]) or None


def _holders(original: Callable[..., Any], is_production: Callable[[str], bool]) -> Iterator[str]:
    """The modules under test that use the healthy function by a name of their own."""
    for module_name, module in sorted(sys.modules.items()):
        if not is_production(module_name):
            continue
        for name, value in list(vars(module).items()):
            if value is original and _reads(module, name):
                uses = f"uses its own `{name}`" if original.__module__ == module_name else f"imports `{name}` by name"
                yield f"`{_file(module)}` {uses}; target `{module_name}:{name}`"


def _reads(module: ModuleType, name: str) -> bool:
    """Whether the code of a module uses one of its names, and does not only pass it on, as a package does."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError):
        return False
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return any(node.id == name and isinstance(node.ctx, ast.Load) for node in nodes)


def _file(module: ModuleType) -> str:
    """The path of a module below the folder that it is imported from."""
    parts = module.__name__.split(".")
    file = Path(inspect.getfile(module))
    return "/".join([*parts, file.name] if file.stem == "__init__" else [*parts[:-1], file.name])


def _overrides(planted: Planted, is_production: Callable[[str], bool]) -> Iterator[str]:
    """The subclasses under test that replace the member by one of their own."""
    member = planted.fault.member
    for each in _subclasses(planted.owner) if isinstance(planted.owner, type) else ():
        if is_production(each.__module__) and member in vars(each):
            place = f"{each.__module__}:{each.__qualname__}"
            yield f"`{place}` overrides `{member}`; target `{place}.{member}`"


def _subclasses(owner: type) -> Iterator[type]:
    own: list[type] = owner.__subclasses__()
    for each in own:
        yield each
        yield from _subclasses(each)
