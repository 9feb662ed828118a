"""Attributes of an object as plain state values: read exactly, checked completely before anything is written back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch

from rlcore.state.generators import generator_from_state, generator_state
from rlcore.state.schema import FLOATS, misfit, read_count, read_record, read_tensor
from rlcore.types import StateDict, StateValue

Encode = Callable[[object], StateValue]
Decode = Callable[[StateValue, str], object]
Change = tuple[object, str, object]
"""(object, attribute, new value): one assignment that has been checked and not yet made."""


@dataclass(frozen=True)
class Field:
    """One attribute that belongs to the state of an object.

    :param attribute: its name
    :param encode: attribute value -> plain state value
    :param decode: plain state value, where it stands -> attribute value; raises :class:`StateError`
    :param source: the attribute that is read, where it is not the one that is written
    :param created_at_reset: whether the attribute may be missing until the first reset
    """

    attribute: str
    encode: Encode
    decode: Decode
    source: str | None = None
    created_at_reset: bool = False

    def read(self, owner: object) -> StateValue:
        """Return the attribute of ``owner`` as a plain value that shares no memory with it."""
        name = self.source or self.attribute
        if self.created_at_reset and not hasattr(owner, name):
            return None
        return self.encode(getattr(owner, name))


def read_fields(owner: object, fields: Iterable[Field]) -> StateDict:
    """Return ``{attribute: plain value}`` for every field of ``owner``."""
    return {field.attribute: field.read(owner) for field in fields}


def plan_changes(owner: object, fields: Iterable[Field], state: StateValue, where: str) -> list[Change]:
    """Check ``state`` against ``fields`` and return the assignments that restore it; nothing is assigned.

    :param where: what ``owner`` is, for the error
    :raises StateError: an attribute is missing, unknown, or has a value of the wrong type or shape
    """
    fields = tuple(fields)
    record = read_record(state, where, (field.attribute for field in fields))
    return [(owner, f.attribute, f.decode(record[f.attribute], f"{where}.{f.attribute}")) for f in fields]


def apply_changes(changes: Iterable[Change]) -> None:
    """Make assignments that :func:`plan_changes` has checked."""
    for owner, attribute, value in changes:
        setattr(owner, attribute, value)


def to_tensor(values: object) -> torch.Tensor:
    """Return an array, tuple or NumPy scalar as a tensor of exactly its dtype, in memory of its own."""
    return torch.from_numpy(np.array(values))


def _optional(attribute: str, encode: Encode, decode: Decode, *, created_at_reset: bool = False) -> Field:
    """A field that may be None, too."""
    return Field(
        attribute,
        lambda value: None if value is None else encode(value),
        lambda value, where: None if value is None else decode(value, where),
        created_at_reset=created_at_reset,
    )


def tensor_field(
    attribute: str, shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...] = FLOATS, *, optional: bool = False
) -> Field:
    """Return a field that holds an array of ``shape`` and one of ``dtypes``; ``optional`` allows None before reset."""

    def decode(value: StateValue, where: str) -> object:
        return np.array(read_tensor(value, where, shape, dtypes, finite=False).detach().cpu().numpy())

    if optional:
        return _optional(attribute, to_tensor, decode, created_at_reset=True)
    return Field(attribute, to_tensor, decode)


def scalar_field(attribute: str) -> Field:
    """Return a field that holds a NumPy float scalar of any precision, or None."""

    def decode(value: StateValue, where: str) -> object:
        return read_tensor(value, where, (), None, finite=False).detach().cpu().numpy()[()]

    return _optional(attribute, to_tensor, decode, created_at_reset=True)


def float_list_field(attribute: str) -> Field:
    """Return a field that holds a list of Python floats; in the state it is a float64 tensor of shape (length,)."""

    def decode(value: StateValue, where: str) -> object:
        shape = (len(value),) if isinstance(value, torch.Tensor) and value.ndim == 1 else (0,)
        return read_tensor(value, where, shape, (torch.float64,), finite=False).tolist()

    return Field(attribute, lambda values: torch.tensor(values, dtype=torch.float64), decode)


def flag_field(attribute: str, *, source: str | None = None) -> Field:
    """Return a field that holds a bool."""

    def decode(value: StateValue, where: str) -> object:
        if not isinstance(value, bool):
            raise misfit(where, "True or False", value)
        return value

    return Field(attribute, lambda value: bool(value), decode, source)


def counter_field(attribute: str, *, optional: bool = False, minimum: int = 0) -> Field:
    """Return a field that holds an int of at least ``minimum``; ``optional`` allows None."""

    def encode(value: object) -> StateValue:
        return int(value)  # type: ignore[call-overload,no-any-return]

    def decode(value: StateValue, where: str) -> object:
        return read_count(value, where, math.inf, minimum)

    return _optional(attribute, encode, decode) if optional else Field(attribute, encode, decode)


def emptied_field(attribute: str) -> Field:
    """Return a field whose content is not part of the state: it is None after a restore."""

    def decode(value: StateValue, where: str) -> object:
        if value is not None:
            raise misfit(where, "None", value)
        return None

    return Field(attribute, lambda _: None, decode)


def generator_field(attribute: str) -> Field:
    """Return a field that holds a :class:`numpy.random.Generator` or None; a restore puts a new generator there."""

    def encode(value: object) -> StateValue:
        return generator_state(cast("np.random.Generator", value))

    return _optional(attribute, encode, generator_from_state)
