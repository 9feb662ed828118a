"""Compares programs up to the names of local variables; the digests of source code are checked against the answer.

Python's own compiler decides here which names are local, so that no rule of the digests is repeated.
"""

from __future__ import annotations

import dis
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import CodeType

_SORTED_BY_NAME = frozenset({"LOAD_CLOSURE", "MAKE_CELL", "COPY_FREE_VARS"})
_VARIABLES = frozenset({*dis.haslocal, *dis.hasfree})


@dataclass
class _Pairs:
    """The variables of a function, each with that of the other program."""

    forth: dict[str, str] = field(default_factory=dict)
    back: dict[str, str] = field(default_factory=dict)

    def take(self, first: str, second: str) -> bool:
        """Pair two variables; False where one of them is paired with another."""
        return self.forth.setdefault(first, second) == second and self.back.setdefault(second, first) == first


_Owners = Mapping[str, _Pairs]


def are_alike(first: str, second: str) -> bool:
    """Whether two source texts are the same program but for the names of local variables.

    :raises SyntaxError: if one of them is not Python
    """
    one, other = (compile(source, "<source>", "exec", dont_inherit=True, optimize=2) for source in (first, second))
    return _alike(one, other, {}, {})


def _alike(one: CodeType, other: CodeType, owners: _Owners, other_owners: _Owners) -> bool:
    pairs = _Pairs()
    owners = {**owners, **dict.fromkeys((*one.co_varnames, *one.co_cellvars), pairs)}
    other_owners = {**other_owners, **dict.fromkeys((*other.co_varnames, *other.co_cellvars), pairs)}
    if _head(one) != _head(other) or not all(pairs.take(name, name) for name in _parameters(one)):
        return False
    steps = [
        [each for each in dis.get_instructions(code) if each.opname not in _SORTED_BY_NAME] for code in (one, other)
    ]
    if [each.opcode for each in steps[0]] != [each.opcode for each in steps[1]]:
        return False
    for step, other_step in zip(*steps, strict=True):
        value, other_value = step.argval, other_step.argval
        if step.opcode in _VARIABLES:
            owner = owners[value]
            if owner is not other_owners[other_value] or not owner.take(value, other_value):
                return False
        elif isinstance(value, CodeType) and isinstance(other_value, CodeType):
            if not _alike(value, other_value, owners, other_owners):
                return False
        elif (type(value), repr(value)) != (type(other_value), repr(other_value)):
            return False
    return True


def _head(code: CodeType) -> tuple[object, ...]:
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    return (*counts, code.co_name, _parameters(code), len(code.co_freevars))


def _parameters(code: CodeType) -> tuple[str, ...]:
    more = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)  # *arguments, **arguments
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + more]
