"""Reads the pickle inside a checkpoint: builds lists, dicts and tensors over the file's own bytes, and nothing else.

torch.load is not used: its weights_only reader executes no code either, but it allocates what the file tells it to,
and a tensor's claimed size need not fit the bytes behind it.
"""

from __future__ import annotations

import math
import pickletools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

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

_PROTOCOL_HEADER = b"\x80\x02"
_MAX_DIMENSIONS = 64


@dataclass(frozen=True)
class _Storage:
    """A record's elements as a tensor of one dimension; the record has the size that the pickle claims."""

    elements: torch.Tensor


_REBUILD_TENSOR = object()
_GLOBALS: dict[str, object] = {
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
        self._records = records
        self._device = device
        data = [len(record) for name, record in records.items() if name.startswith("data/")]
        self._operations = min(OPERATIONS + OPERATIONS_OF_A_TENSOR * len(data), MAX_OPERATIONS)
        self._large_keys = LARGE_KEYS
        self._claimable = MAX_SHARING * sum(data)
        self._stack: list[object] = []
        self._outer_stacks: list[list[object]] = []
        self._memo: list[object] = []

    def read(self, pickled: bytes) -> object:
        """Return the pickled value."""
        try:
            _require(pickled.startswith(_PROTOCOL_HEADER))
            end = 0
            for count, (opcode, argument, position) in enumerate(pickletools.genops(pickled), 1):
                if count > self._operations:
                    raise RefusedError(f"its pickle has more than {self._operations} instructions")
                self._execute(opcode.name, argument)
                end = position or 0
            _require(end == len(pickled) - 1 and len(self._stack) == 1 and not self._outer_stacks)
        except RefusedError:
            raise
        except (ValueError, TypeError, IndexError, OverflowError):
            raise RefusedError("its pickle is damaged, or not of the kind that torch.save writes") from None
        return self._stack[0]

    def _execute(self, name: str, argument: object) -> None:
        if name in _LITERALS:
            self._stack.append(argument)
        elif name in _INSTRUCTIONS:
            _INSTRUCTIONS[name](self, argument)
        else:
            raise RefusedError(
                f"its pickle uses the instruction {name}, which a checkpoint never needs; do not load it"
            )

    def push(self, value: object) -> None:
        self._stack.append(value)

    def mark(self) -> None:
        self._outer_stacks.append(self._stack)
        self._stack = []

    def pop_to_mark(self) -> list[object]:
        items, self._stack = self._stack, self._outer_stacks.pop()
        return items

    def pop(self, count: int) -> list[object]:
        _require(len(self._stack) >= count)
        items = self._stack[-count:]
        del self._stack[-count:]
        return items

    def remember(self, index: object) -> None:
        _require(index == len(self._memo))  # as torch.save numbers them; anything else could claim a huge table
        self._memo.append(self._stack[-1])

    def recall(self, index: object) -> None:
        if not isinstance(index, int):
            raise TypeError
        self._stack.append(self._memo[index])

    def extend_list(self, items: list[object]) -> None:
        target = self._stack[-1]
        if type(target) is not list:
            raise TypeError
        target.extend(items)

    def extend_dict(self, items: list[object]) -> None:
        target = self._stack[-1]
        if not isinstance(target, dict):
            raise TypeError
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Before hashing: the hash of a deeply nested tuple overflows the C stack.
            _require(type(key) in (str, int))
            if isinstance(key, int) and key.bit_length() > 60:
                self._large_keys -= 1
                _require(self._large_keys >= 0)
            _require(key not in target)
            target[key] = value

    def look_up(self, name: object) -> None:
        if str(name) not in _GLOBALS:
            raise RefusedError(
                f"its pickle refers to {quoted(name)}, which a checkpoint never needs and which could run code: "
                "it may be an attack; do not load it"
            )
        self._stack.append(_GLOBALS[str(name)])

    def open_storage(self) -> None:
        """Replace ('storage', type, record's number, device, length) by the storage that it claims."""
        (claim,) = self.pop(1)
        if type(claim) is not tuple:
            raise TypeError
        kind, dtype, key, location, numel = claim
        if not isinstance(dtype, torch.dtype) or not isinstance(key, str) or type(numel) is not int:
            raise TypeError
        _require(kind == "storage" and isinstance(location, str))
        name = f"data/{key}"
        record, known = self._records.get(name), self.storages.get(name)
        same_type = known is None or known.elements.dtype is dtype
        if record is None or len(record) != numel * dtype.itemsize or not same_type:
            raise RefusedError(
                f"its tensor data {quoted(key)} is not the {numel} elements of {dtype} that its pickle claims"
            )
        if known is None:
            known = self.storages[name] = _Storage(_elements(record, dtype).to(self._device))
        self._stack.append(known)

    def call(self) -> None:
        """Make an empty OrderedDict or a tensor; nothing else can be called."""
        function, arguments = self.pop(2)
        if function is OrderedDict and arguments == ():
            self._stack.append(OrderedDict())
        elif function is _REBUILD_TENSOR and type(arguments) is tuple:
            storage, offset, size, stride, requires_grad, hooks = arguments
            _require(requires_grad is False and type(hooks) is OrderedDict and not hooks)
            self._claim(_check_tensor(storage, offset, size, stride))
            self._stack.append(storage.elements.as_strided(size, stride, offset))
        else:
            raise TypeError

    def _claim(self, nbytes: int) -> None:
        self._claimable -= nbytes
        if self._claimable < 0:
            raise RefusedError(f"its tensors share their data, and would need more than {MAX_SHARING} times its memory")

    def attach(self) -> None:
        """Attach ``_metadata`` to an OrderedDict, as nn.Module.state_dict does; nothing else can be attached."""
        (attributes,) = self.pop(1)
        target = self._stack[-1]
        if type(target) is not OrderedDict or type(attributes) is not dict:
            raise TypeError
        _require(list(attributes) == ["_metadata"])
        target.__dict__.update(attributes)


def _elements(record: memoryview, dtype: torch.dtype) -> torch.Tensor:
    if not record:
        return torch.empty(0, dtype=dtype)
    elements = torch.frombuffer(record, dtype=dtype)
    return elements if elements.data_ptr() % dtype.itemsize == 0 else elements.clone()


def _check_tensor(storage: object, offset: object, size: object, stride: object) -> int:
    """The bytes of the tensor."""
    if type(storage) is not _Storage or type(offset) is not int or offset < 0:
        raise TypeError
    sizes, strides = _dimensions(size), _dimensions(stride)
    _require(math.prod(max(1, length) for length in sizes) < 2**63)
    numel = math.prod(sizes)
    stored = storage.elements.numel()
    if offset + numel > stored:
        raise RefusedError(f"a tensor of shape {quoted(sizes)} claims more than the {stored} elements that are stored")
    step = 1
    for length, stride_of in zip(reversed(sizes), reversed(strides), strict=True):
        if numel and length != 1 and stride_of != step:
            raise RefusedError(f"a tensor of shape {quoted(sizes)} is not contiguous; save a contiguous copy of it")
        step *= length
    return numel * storage.elements.itemsize


def _dimensions(value: object) -> tuple[int, ...]:
    if type(value) is not tuple or len(value) > _MAX_DIMENSIONS:
        raise TypeError
    _require(all(type(number) is int and 0 <= number < 2**63 for number in value))
    return value


def _require(condition: bool) -> None:
    if not condition:
        raise ValueError


_LITERALS = frozenset({"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE"})
_INSTRUCTIONS: dict[str, Callable[[_PickleReader, object], None]] = {
    "PROTO": lambda _, version: _require(version == _PROTOCOL_HEADER[1]),
    "STOP": lambda *_: None,
    "NONE": lambda reader, _: reader.push(None),
    "NEWTRUE": lambda reader, _: reader.push(True),
    "NEWFALSE": lambda reader, _: reader.push(False),
    "EMPTY_TUPLE": lambda reader, _: reader.push(()),
    "EMPTY_LIST": lambda reader, _: reader.push([]),
    "EMPTY_DICT": lambda reader, _: reader.push({}),
    "MARK": lambda reader, _: reader.mark(),
    "TUPLE": lambda reader, _: reader.push(tuple(reader.pop_to_mark())),
    "TUPLE1": lambda reader, _: reader.push(tuple(reader.pop(1))),
    "TUPLE2": lambda reader, _: reader.push(tuple(reader.pop(2))),
    "TUPLE3": lambda reader, _: reader.push(tuple(reader.pop(3))),
    "APPEND": lambda reader, _: reader.extend_list(reader.pop(1)),
    "APPENDS": lambda reader, _: reader.extend_list(reader.pop_to_mark()),
    "SETITEM": lambda reader, _: reader.extend_dict(reader.pop(2)),
    "SETITEMS": lambda reader, _: reader.extend_dict(reader.pop_to_mark()),
    "BINPUT": lambda reader, index: reader.remember(index),
    "LONG_BINPUT": lambda reader, index: reader.remember(index),
    "BINGET": lambda reader, index: reader.recall(index),
    "LONG_BINGET": lambda reader, index: reader.recall(index),
    "GLOBAL": lambda reader, name: reader.look_up(name),
    "BINPERSID": lambda reader, _: reader.open_storage(),
    "REDUCE": lambda reader, _: reader.call(),
    "BUILD": lambda reader, _: reader.attach(),
}
