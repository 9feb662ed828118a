"""Attributes of an object as plain state values: read exactly, checked completely before anything is written back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from rlcore.errors import StateError
from rlcore.types import StateDict, StateValue

LARGEST_COUNT = 2**53
"""Largest counter of a saved state: a float holds every count up to it exactly."""

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
    encode: Callable[[object], StateValue]
    decode: Callable[[StateValue, str], object]
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
    record = require_dict(state, where)
    names = {field.attribute for field in fields}
    if set(record) != names:
        raise StateError(
            f"{where}: the state has the entries {sorted(map(str, record))}, but {sorted(names)} are needed; "
            "restore a state that was taken from the same kind of environment"
        )
    return [(owner, f.attribute, f.decode(record[f.attribute], f"{where}.{f.attribute}")) for f in fields]


def apply_changes(changes: Iterable[Change]) -> None:
    """Make assignments that :func:`plan_changes` has checked."""
    for owner, attribute, value in changes:
        setattr(owner, attribute, value)


def require_dict(value: object, where: str) -> StateDict:
    """Return ``value`` if it is a dict.

    :raises StateError: it is not
    """
    if not isinstance(value, dict):
        raise mistyped(where, "a dict", value)
    return value


def require_list(value: object, length: int, where: str) -> list[StateValue]:
    """Return ``value`` if it is a list of ``length`` entries.

    :raises StateError: it is not
    """
    if not isinstance(value, list) or len(value) != length:
        raise mistyped(where, f"a list of {length} entries", value)
    return value


def mistyped(where: str, wanted: str, found: object) -> StateError:
    """Return the error for a state value of the wrong type or shape."""
    return StateError(
        f"{where} must be {wanted}, but the state holds {describe(found)}; "
        "restore a state that was taken from the same kind of environment"
    )


def describe(value: object) -> str:
    """Return a short text for a value of a saved state: tensors by dtype and shape, the rest shown and cut."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of {value.dtype} with shape {tuple(value.shape)}"
    if isinstance(value, list | dict):
        return f"a {type(value).__name__} of {len(value)} entries"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def to_tensor(values: object) -> torch.Tensor:
    """Return an array, tuple or NumPy scalar as a tensor of exactly its dtype, in memory of its own."""
    return torch.from_numpy(np.array(values))


def tensor_field(
    attribute: str,
    shape: tuple[int, ...],
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float64),
    *,
    optional: bool = False,
) -> Field:
    """Return a field that holds an array of ``shape`` and one of ``dtypes``; ``optional`` allows None before reset."""

    def encode(value: object) -> StateValue:
        return None if optional and value is None else to_tensor(value)

    def decode(value: StateValue, where: str) -> object:
        if optional and value is None:
            return None
        if not isinstance(value, torch.Tensor) or tuple(value.shape) != shape or value.dtype not in dtypes:
            raise mistyped(where, f"a tensor of shape {shape} and one of {', '.join(map(str, dtypes))}", value)
        return np.array(value.detach().cpu().numpy())

    return Field(attribute, encode, decode, created_at_reset=optional)


def scalar_field(attribute: str) -> Field:
    """Return a field that holds a NumPy float scalar of any precision, or None."""

    def encode(value: object) -> StateValue:
        return None if value is None else to_tensor(value)

    def decode(value: StateValue, where: str) -> object:
        if value is None:
            return None
        if not isinstance(value, torch.Tensor) or value.ndim != 0 or not value.dtype.is_floating_point:
            raise mistyped(where, "a floating point tensor of shape () or None", value)
        return value.detach().cpu().numpy()[()]

    return Field(attribute, encode, decode, created_at_reset=True)


def float_list_field(attribute: str) -> Field:
    """Return a field that holds a list of Python floats; in the state it is a float64 tensor of shape (length,)."""

    def encode(value: object) -> StateValue:
        return torch.tensor(value, dtype=torch.float64)

    def decode(value: StateValue, where: str) -> object:
        if not isinstance(value, torch.Tensor) or value.ndim != 1 or value.dtype != torch.float64:
            raise mistyped(where, "a tensor of torch.float64 with one dimension", value)
        return value.tolist()

    return Field(attribute, encode, decode)


def flag_field(attribute: str, *, source: str | None = None) -> Field:
    """Return a field that holds a bool."""

    def decode(value: StateValue, where: str) -> object:
        if not isinstance(value, bool):
            raise mistyped(where, "True or False", value)
        return value

    return Field(attribute, lambda value: bool(value), decode, source)


def counter_field(attribute: str, *, optional: bool = False, minimum: int = 0) -> Field:
    """Return a field that holds an int of at least ``minimum``; ``optional`` allows None."""

    def encode(value: object) -> StateValue:
        return None if optional and value is None else int(value)  # type: ignore[call-overload]

    def decode(value: StateValue, where: str) -> object:
        if optional and value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise mistyped(where, f"an integer of at least {minimum}" + (" or None" if optional else ""), value)
        return value

    return Field(attribute, encode, decode)


def emptied_field(attribute: str) -> Field:
    """Return a field whose content is not part of the state: it is None after a restore."""

    def decode(value: StateValue, where: str) -> object:
        if value is not None:
            raise mistyped(where, "None", value)
        return None

    return Field(attribute, lambda _: None, decode)


_BIT_GENERATORS: Mapping[str, type[np.random.BitGenerator]] = {
    kind.__name__: kind
    for kind in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}


def generator_field(attribute: str) -> Field:
    """Return a field that holds a :class:`numpy.random.Generator` or None; a restore puts a new generator there."""

    def encode(value: object) -> StateValue:
        return None if value is None else generator_state(value)  # type: ignore[arg-type]

    def decode(value: StateValue, where: str) -> object:
        return None if value is None else generator_from_state(value, where)

    return Field(attribute, encode, decode)


def generator_state(generator: np.random.Generator) -> StateDict:
    """Return the state of a NumPy generator as ints, strs and lists of ints (128-bit integers stay Python ints).

    :raises StateError: the bit generator is not one of NumPy's own
    """
    state = generator.bit_generator.state
    if state["bit_generator"] not in _BIT_GENERATORS:
        raise StateError(
            f"the generator {state['bit_generator']} cannot be stored; use one of {', '.join(_BIT_GENERATORS)}"
        )
    return {key: _plain(value) for key, value in state.items()}


def generator_from_state(value: StateValue, where: str) -> np.random.Generator:
    """Return a new generator that continues where :func:`generator_state` was taken.

    :raises StateError: unknown bit generator, or a state that is not one of it
    """
    record = require_dict(value, where)
    name = record.get("bit_generator")
    if not isinstance(name, str) or name not in _BIT_GENERATORS:
        raise mistyped(f"{where}.bit_generator", f"one of {', '.join(_BIT_GENERATORS)}", name)
    bit_generator = _BIT_GENERATORS[name](0)
    state: Any = _like(bit_generator.state, record, where)
    if name == "MT19937" and state["state"]["pos"] > len(state["state"]["key"]):  # NumPy would read beyond the key
        raise mistyped(f"{where}.state.pos", "a position in the key", state["state"]["pos"])
    try:
        bit_generator.state = cast("Mapping[str, Any]", state)
    except (ValueError, OverflowError, TypeError) as error:
        raise StateError(f"{where}: {name} does not take this state ({error}); the state is damaged") from error
    return np.random.Generator(bit_generator)


def _plain(value: object) -> StateValue:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return [int(entry) for entry in value]
    return value if isinstance(value, str) else int(value)  # type: ignore[call-overload]


def _like(template: object, value: StateValue, where: str) -> object:
    """Return ``value`` in the form of ``template``, a state that NumPy itself gave."""
    if isinstance(template, dict):
        record = require_dict(value, where)
        if set(record) != set(template):
            raise mistyped(where, f"a dict with the keys {sorted(template)}", value)
        return {key: _like(entry, record[key], f"{where}.{key}") for key, entry in template.items()}
    if isinstance(template, np.ndarray):
        entries = require_list(value, len(template), where)
        return np.array([_unsigned(entry, 8 * template.dtype.itemsize, where) for entry in entries], template.dtype)
    if isinstance(template, str):
        return value
    return _unsigned(value, 128, where)


def _unsigned(value: StateValue, bits: int, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**bits:
        raise mistyped(where, f"an unsigned integer of {bits} bits", value)
    return value
