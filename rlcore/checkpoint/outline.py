"""Reads the pickle inside a checkpoint: builds lists, dicts and tensors over the file's own bytes, and nothing else.

torch.load is not used: its weights_only reader executes no code either, but it allocates what the file tells it to,
and a tensor's claimed size need not fit the bytes behind it.
"""

from __future__ import annotations

import math
import pickletools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from rlcore.checkpoint.refusal import RefusedError, quoted
from rlcore.checkpoint.values import DTYPES, check_values

MAX_PICKLE_BYTES = 2**23
"""Largest pickle that is read (8 MiB): the tensors' contents lie outside it."""

OPERATIONS, OPERATIONS_OF_A_TENSOR, MAX_OPERATIONS = 2**19, 2**6, 2**20
"""Instructions that a pickle may have: so many, more for each record of tensor data, and never more than the last.

A model file has about 60 for each record and 10 for each finished episode that it remembers. A million cost some
170 MiB and 10 s."""

LARGE_KEYS = 1000
"""How many keys may be integers of more than 60 bits: their hashes can all be equal, which takes quadratic time."""

MAX_SHARING = 4
"""How many times the bytes of its records a file's tensors may be: tied weights stand in a state dict under each name.

Whoever copies the tensors one by one takes memory for all of them."""

_MAX_DIMENSIONS = 64


class _Storage(NamedTuple):
    """A record's elements as a tensor of one dimension; the record has the size that the pickle claims."""

    elements: torch.Tensor


_REBUILD_TENSOR = object()
_GLOBALS: dict[object, object] = {
    "collections OrderedDict": OrderedDict,
    "torch._utils _rebuild_tensor_v2": _REBUILD_TENSOR,
    **{f"torch {name}": dtype for name, dtype in DTYPES.items()},
}


def read_pickle(records: Mapping[str, memoryview], device: torch.device) -> object:
    """Return what the pickle ``data.pkl`` holds: plain values, and tensors that fit their records.

    :param records: what :func:`rlcore.checkpoint.archive.read_records` returned, writable
    :param device: of the tensors; those on the CPU are the records' own memory
    :raises RefusedError: an instruction or name that a checkpoint never needs, a damaged pickle, a foreign value, a
        tensor whose claimed size does not fit its record
    """
    pickled = records["data.pkl"]
    if len(pickled) > MAX_PICKLE_BYTES:
        raise RefusedError(f"its pickle has {len(pickled)} bytes; at most {MAX_PICKLE_BYTES} are read")
    reader = _PickleReader(records, device)
    found = reader.read(bytes(pickled))
    check_values(found)
    unused = {name for name in records if name.startswith("data/")} - reader.storages.keys()
    if unused:
        raise RefusedError(f"its record {quoted(min(unused))} belongs to no tensor")
    return found


class _PickleReader:
    """A machine for the instructions that torch.save emits for plain values and tensors, and for no others."""

    def __init__(self, records: Mapping[str, memoryview], device: torch.device) -> None:
        self.storages: dict[str, _Storage] = {}
        self.stack: list[Any] = []
        self.outer_stacks: list[list[Any]] = []
        self._memo: list[object] = []
        self._records, self._device = records, device
        data = [len(record) for name, record in records.items() if name.startswith("data/")]
        self._operations = min(OPERATIONS + OPERATIONS_OF_A_TENSOR * len(data), MAX_OPERATIONS)
        self._large_keys = LARGE_KEYS
        self._claimable = MAX_SHARING * sum(data)

    def read(self, pickled: bytes) -> object:
        """Return the pickled value."""
        try:
            _require(pickled.startswith(b"\x80\x02"))
            end = 0
            for count, (opcode, argument, position) in enumerate(pickletools.genops(pickled), 1):
                if count > self._operations:
                    raise RefusedError(f"its pickle has more than {self._operations} instructions")
                if opcode.name in _LITERALS:
                    self.stack.append(argument)
                elif opcode.name in _INSTRUCTIONS:
                    _INSTRUCTIONS[opcode.name](self, argument)
                else:
                    raise RefusedError(
                        f"its pickle uses the instruction {opcode.name}, which a checkpoint never needs; do not load it"
                    )
                end = position or 0
            _require(end == len(pickled) - 1 and len(self.stack) == 1 and not self.outer_stacks)
        except RefusedError:
            raise
        except (ValueError, TypeError, IndexError, OverflowError):
            raise RefusedError("its pickle is damaged, or not of the kind that torch.save writes") from None
        return self.stack[0]

    def push(self, value: object) -> None:
        self.stack.append(value)

    def mark(self, _: object) -> None:
        self.outer_stacks.append(self.stack)
        self.stack = []

    def pop_to_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.outer_stacks.pop()
        return items

    def pop(self, count: int) -> list[Any]:
        _require(len(self.stack) >= count)
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def remember(self, index: object) -> None:
        _require(index == len(self._memo))  # as torch.save numbers them; anything else could claim a huge table
        self._memo.append(self.stack[-1])

    def recall(self, index: Any) -> None:
        self.stack.append(self._memo[index])

    def extend_list(self, items: list[object]) -> None:
        target = self.stack[-1]
        _require(type(target) is list)
        target.extend(items)

    def extend_dict(self, items: list[object]) -> None:
        target = self.stack[-1]
        _require(isinstance(target, dict))
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Before hashing: the hash of a deeply nested tuple overflows the C stack.
            _require(type(key) in (str, int))
            if isinstance(key, int) and key.bit_length() > 60:
                self._large_keys -= 1
                _require(self._large_keys >= 0)
            _require(key not in target)
            target[key] = value

    def look_up(self, name: object) -> None:
        if name not in _GLOBALS:
            raise RefusedError(
                f"its pickle refers to {quoted(name)}, which a checkpoint never needs and which could run code: "
                "it may be an attack; do not load it"
            )
        self.stack.append(_GLOBALS[name])

    def open_storage(self, _: object) -> None:
        """Replace ('storage', type, record's number, device, length) by the storage that it claims."""
        (claim,) = self.pop(1)
        _require(type(claim) is tuple)
        kind, dtype, key, location, numel = claim
        _require(isinstance(dtype, torch.dtype) and isinstance(key, str) and type(numel) is int)
        _require(kind == "storage" and isinstance(location, str))
        name = f"data/{key}"
        record, known = self._records.get(name), self.storages.get(name)
        same_type = known is None or known.elements.dtype is dtype
        if record is None or len(record) != numel * dtype.itemsize or not same_type:
            claimed = f"the {numel} elements of {dtype} that its pickle claims"
            raise RefusedError(f"its tensor data {quoted(key)} is not {claimed}")
        if known is None:
            known = self.storages[name] = _Storage(_elements(record, dtype).to(self._device))
        self.stack.append(known)

    def call(self, _: object) -> None:
        """Make an empty OrderedDict or a tensor; nothing else can be called."""
        function, arguments = self.pop(2)
        _require(type(arguments) is tuple)
        if function is OrderedDict and not arguments:
            self.stack.append(OrderedDict())
            return
        _require(function is _REBUILD_TENSOR)
        storage, offset, size, stride, requires_grad, hooks = arguments
        _require(requires_grad is False and type(hooks) is OrderedDict and not hooks)
        _require(type(storage) is _Storage and type(offset) is int and offset >= 0)
        elements = storage.elements
        _check_shape(elements.numel(), offset, size, stride)
        self._claimable -= math.prod(size) * elements.itemsize
        if self._claimable < 0:
            message = f"its tensors share their data, and would need more than {MAX_SHARING} times its memory"
            raise RefusedError(message)
        self.stack.append(elements.as_strided(size, stride, offset))

    def attach(self, _: object) -> None:
        """Attach ``_metadata`` to an OrderedDict, as nn.Module.state_dict does; nothing else can be attached."""
        (attributes,) = self.pop(1)
        target = self.stack[-1]
        _require(type(target) is OrderedDict and type(attributes) is dict and list(attributes) == ["_metadata"])
        target.__dict__.update(attributes)


def _elements(record: memoryview, dtype: torch.dtype) -> torch.Tensor:
    if not record:
        return torch.empty(0, dtype=dtype)
    elements = torch.frombuffer(record, dtype=dtype)
    return elements if elements.data_ptr() % dtype.itemsize == 0 else elements.clone()


def _check_shape(stored: int, offset: int, size: object, stride: object) -> None:
    """Refuse a tensor that is not contiguous, or has elements beyond those that are stored."""
    sizes, strides = _dimensions(size), _dimensions(stride)
    _require(math.prod(max(1, length) for length in sizes) < 2**63)
    numel = math.prod(sizes)
    if offset + numel > stored:
        message = f"a tensor of shape {quoted(sizes)} claims more than the {stored} elements that are stored"
        raise RefusedError(message)
    step = 1
    for length, stride_of in zip(reversed(sizes), reversed(strides), strict=True):
        if numel and length != 1 and stride_of != step:
            raise RefusedError(f"a tensor of shape {quoted(sizes)} is not contiguous; save a contiguous copy of it")
        step *= length


def _dimensions(value: Any) -> tuple[int, ...]:
    _require(type(value) is tuple and len(value) <= _MAX_DIMENSIONS)
    _require(all(type(number) is int and 0 <= number < 2**63 for number in value))
    dimensions: tuple[int, ...] = value
    return dimensions


def _require(condition: bool) -> None:
    if not condition:
        raise ValueError


_LITERALS = frozenset({"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE"})
_INSTRUCTIONS: dict[str, Callable[[_PickleReader, Any], None]] = {
    "PROTO": lambda _, version: _require(version == 2),
    "STOP": lambda *_: None,
    "NONE": lambda reader, _: reader.push(None),
    "NEWTRUE": lambda reader, _: reader.push(True),
    "NEWFALSE": lambda reader, _: reader.push(False),
    "EMPTY_TUPLE": lambda reader, _: reader.push(()),
    "EMPTY_LIST": lambda reader, _: reader.push([]),
    "EMPTY_DICT": lambda reader, _: reader.push({}),
    "MARK": _PickleReader.mark,
    "TUPLE": lambda reader, _: reader.push(tuple(reader.pop_to_mark())),
    "TUPLE1": lambda reader, _: reader.push(tuple(reader.pop(1))),
    "TUPLE2": lambda reader, _: reader.push(tuple(reader.pop(2))),
    "TUPLE3": lambda reader, _: reader.push(tuple(reader.pop(3))),
    "APPEND": lambda reader, _: reader.extend_list(reader.pop(1)),
    "APPENDS": lambda reader, _: reader.extend_list(reader.pop_to_mark()),
    "SETITEM": lambda reader, _: reader.extend_dict(reader.pop(2)),
    "SETITEMS": lambda reader, _: reader.extend_dict(reader.pop_to_mark()),
    "BINPUT": _PickleReader.remember,
    "LONG_BINPUT": _PickleReader.remember,
    "BINGET": _PickleReader.recall,
    "LONG_BINGET": _PickleReader.recall,
    "GLOBAL": _PickleReader.look_up,
    "BINPERSID": _PickleReader.open_storage,
    "REDUCE": _PickleReader.call,
    "BUILD": _PickleReader.attach,
}
