"""Paths of a state, such as ``policy.optimizer.state[0]['exp_avg']``, as the names that they consist of."""

from __future__ import annotations

import re
from typing import Final

NAME: Final = re.compile(r"""\[(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^]'"])*\]|\.?[^.[]+""")


def names_of(path: str) -> list[str]:
    """The attributes, keys and indices of a path, one by one."""
    return NAME.findall(path) or [path]


def is_below(path: str, start: str) -> bool:
    """Whether a path is that of an object or of a part of it."""
    names = names_of(start) if start else []
    return names_of(path)[: len(names)] == names
