"""Whose code a part of a state belongs to: the class that gives an object the attribute, yours or a library's."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rlverify.checks.state.tree import way

YOURS: Final = "yours"
"""The library of code that is not installed."""
INSTALLED: Final = {"site-packages", "dist-packages"}
"""Folders of installed code, wherever it is: an environment can see those of another one, or of the system."""
PLAIN: Final = (dict, list, tuple, set, str, bytes, int, float, bool, types.NoneType)


@dataclass(frozen=True)
class Owner:
    """A class, and the library that it is of.

    :param library: the name under which it is imported, such as ``gymnasium``; `YOURS` if it is not installed
    """

    library: str
    name: str

    @property
    def is_yours(self) -> bool:
        """Whether the class is of the user's own code."""
        return self.library == YOURS

    @property
    def place(self) -> tuple[bool, bool, str]:
        """The place in a list: yours, then libraries, then Python."""
        return not self.is_yours, self == OF_PYTHON, self.library


OF_PYTHON: Final = Owner("python", "")
"""The owner of what no object has, such as a global generator."""


def owner_of_class(kind: type) -> Owner:
    """The owner that a class is."""
    package = kind.__module__.partition(".")[0]
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    is_installed = file is not None and not INSTALLED.isdisjoint(Path(file).parts)
    is_python = package in sys.stdlib_module_names and package != "__main__"
    return Owner(package if is_installed or is_python else YOURS, kind.__qualname__)


def owner_of(root: Any, path: str) -> Owner:
    """The class that gives an object the part at a path.

    An attribute belongs to the first class, beginning with the base classes, whose code names it. What is below an
    attribute of your classes is yours, whatever it is made of. An attribute of the root that no class names was set
    from outside, and is yours as well.
    """
    owner = OF_PYTHON
    for node, key, _ in way(root, path):
        if key.startswith(".") and not isinstance(node, PLAIN):
            kind = _declaring(type(node), key[1:])
            owner = owner_of_class(kind or type(node))
            if owner.is_yours or (node is root and kind is None):
                return Owner(YOURS, owner.name)
    return owner


def _declaring(kind: type, attribute: str) -> type | None:
    """The first class, beginning with the base classes, that has or names an attribute."""
    for base in reversed(kind.__mro__[:-1]):
        named = (name for member in vars(base).values() for code in _codes(member) for name in code.co_names)
        if attribute in vars(base) or attribute in named:
            return base
    return None


def _codes(function: object) -> Iterator[types.CodeType]:
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    waiting = [code] if isinstance(code, types.CodeType) else []
    while waiting:
        code = waiting.pop()
        yield code
        waiting += [each for each in code.co_consts if isinstance(each, types.CodeType)]
