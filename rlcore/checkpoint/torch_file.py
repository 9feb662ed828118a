"""Reads the zip file that torch.save writes: plain values, and tensors over the file's own bytes; executes nothing.

torch.load is not used: its weights_only reader executes no code either, but it allocates what a file claims to need.
"""

from __future__ import annotations

import io
import math
import pickle
import re
import struct
import sys
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from rlcore.errors import quoted
from rlcore.types import StateDict

DTYPES: dict[str, torch.dtype] = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
"""The element types that can be saved, under the names that torch.save gives their storages."""

MAX_DEPTH = 64  # of lists and dicts in each other
MAX_KEY = 1000  # characters: readers name the place of a value by all keys that lead to it
MAX_DIRECTORY_BYTES = 2**22  # some 60,000 records, of which each costs half a kilobyte to list
MAX_PICKLE_BYTES = 2**23  # the tensors' contents lie outside it
# So many instructions may a pickle have, more for each record of tensor data, and never more than the last. A model has
# about 60 for each record and 10 for each episode that it remembers. A million cost some 170 MiB and 10 s.
OPERATIONS, OPERATIONS_OF_A_TENSOR, MAX_OPERATIONS = 2**19, 2**6, 2**20
LARGE_KEYS = 1000  # integers of more than 60 bits: their hashes can all be equal, which takes quadratic time
MAX_PLAIN_BYTES = 2**25  # of texts, numbers and tuples, wherever one is: what describes them writes each out
# Tied weights are in a state dict under each name; whoever copies the tensors one by one takes memory for all.
MAX_SHARING = 4  # how many times the bytes of its records a file's tensors may be

_END_RECORD = struct.Struct("<4s4H2LH")
_END_RECORDS_64 = struct.Struct("<4sQ4s2L4Q4sLQL")
_ENTRY = struct.Struct("<4s4x2H4x3L3H8xL")
_LOCAL_HEADER = struct.Struct("<4s2x2H16x2H")
_DATA_DESCRIPTOR_OR_UTF8 = 0x808
_LONGEST_COMMENT = 78  # rlcore-sha256: and 64 digits
_DAMAGED_DIRECTORY = "its zip directory is damaged"
_NO_TORCH_FILE = "is not a file that torch.save wrote in its zip format"
_RECORDS = re.compile(
    r"data\.pkl|version|byteorder|data/(0|[1-9][0-9]{0,8})"
    r"|\.format_version|\.storage_alignment|\.data/serialization_id"
)


class RefusedError(ValueError):
    """A file's content or values to be saved are wrong; the public functions add the name of the file."""


def plain(payload: object, *, is_read: bool = False) -> StateDict:
    """Return a copy of a dict of tensors and plain Python; an OrderedDict keeps the ``_metadata`` of a module.

    To be written, each tensor is detached, on the CPU, contiguous and in a storage of its own; it is copied only if it
    is not. Equal payloads give equal bytes when pickled, whichever texts in them are one object.

    :param is_read: the payload comes from a file. Tensors stay as they are, and a tensor, list or dict that is in two
        places is refused, so that the size of the file bounds the cost
    :raises RefusedError: a value that a checkpoint cannot hold, with the path of keys to it
    """
    if not isinstance(payload, dict):
        raise RefusedError(f"holds a {type(payload).__name__}, not a dict")
    state: StateDict = _Copier(is_read).copied(payload, "payload", 0)
    return state


class _Copier:
    def __init__(self, is_read: bool) -> None:
        self._is_read = is_read
        self._storages: set[int] = set()  # the addresses of those that the tensors so far have
        self._texts: dict[str, str] = {}  # the object that is written for each text
        self._seen: set[int] = set()
        self._left = MAX_PLAIN_BYTES

    def copied(self, value: Any, place: str, depth: int) -> Any:
        if isinstance(value, torch.Tensor):
            _check_tensor(value, place)
            self._enter(value, place)
            return value if self._is_read else _alone(value.detach(), self._storages)
        if type(value) is tuple:
            self._left -= sys.getsizeof(value)
            return tuple(self._plain(part, f"{place} is a tuple that holds") for part in value)
        if type(value) not in (list, dict, OrderedDict):
            return self._plain(value, f"{place} is")
        if depth >= MAX_DEPTH:
            raise RefusedError(f"{place[:80]} is nested deeper than {MAX_DEPTH} levels")
        self._enter(value, place)
        if isinstance(value, list):
            return [self.copied(part, f"{place}[{index}]", depth + 1) for index, part in enumerate(value)]
        return self._copied_dict(value, place, depth + 1)

    def _plain(self, value: Any, what: str) -> Any:
        if value is not None and type(value) not in (bool, int, float, str):
            kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
            hint = "; use torch.as_tensor, or .item() if its dtype may change" if kind.startswith("numpy.") else ""
            raise RefusedError(
                f"{what} a {kind}; a checkpoint holds tensors, bool, int, float, str, None, lists, dicts with str or "
                f"int keys and tuples of plain values{hint}"
            )
        self._left -= sys.getsizeof(value)
        if self._left < 0:
            raise RefusedError(f"its texts, numbers and tuples need more than {MAX_PLAIN_BYTES} bytes in all places")
        return self._texts.setdefault(value, value) if isinstance(value, str) else value

    def _enter(self, value: object, place: str) -> None:
        if self._is_read and id(value) in self._seen:
            raise RefusedError(f"{place[:80]} is in two places")
        self._seen.add(id(value))

    def _copied_dict(self, value: dict[Any, Any], place: str, depth: int) -> Any:
        made = type(value)()
        for key, part in value.items():
            if type(key) not in (int, str):
                raise RefusedError(f"{place} has a key of type {type(key).__name__}; keys must be str or int")
            if isinstance(key, str) and len(key) > MAX_KEY:
                raise RefusedError(f"{place} has a key of {len(key)} characters; keys have at most {MAX_KEY}")
            made[self._plain(key, place)] = self.copied(part, f"{place}[{quoted(key)}]", depth)
        metadata = getattr(value, "_metadata", None)
        if metadata is not None:
            made._metadata = self.copied(metadata, f"{place}._metadata", depth)  # type: ignore[attr-defined]
        return made


def _alone(tensor: torch.Tensor, storages: set[int]) -> torch.Tensor:
    storage = tensor.untyped_storage()
    is_whole = storage.nbytes() == tensor.nbytes and storage.data_ptr() not in storages
    if not tensor.is_cpu or not tensor.is_contiguous() or tensor.is_neg() or not is_whole:
        tensor = tensor.to("cpu").clone(memory_format=torch.contiguous_format)
    storages.add(tensor.untyped_storage().data_ptr())
    return tensor


def _check_tensor(tensor: torch.Tensor, place: str) -> None:
    is_dense = tensor.layout == torch.strided and tensor.device.type != "meta" and tensor.dtype in DTYPES.values()
    if not is_dense or type(tensor.detach()) is not torch.Tensor:
        kind = f"{type(tensor).__name__}, {tensor.layout}, {tensor.dtype}, on {tensor.device}"
        raise RefusedError(f"{place} is a tensor that cannot be saved ({kind}): it must be dense, real and hold data")


def end_record(content: memoryview) -> tuple[int, bytes]:
    """Return where the zip's end record is, and the comment behind it, which torch.save leaves empty."""
    tail = bytes(content[-_END_RECORD.size - _LONGEST_COMMENT :])
    start = tail.rfind(b"PK\x05\x06")
    comment = tail[start + _END_RECORD.size :]
    if start < 0 or tail[start + _END_RECORD.size - 2 :] != struct.pack("<H", len(comment)) + comment:
        raise RefusedError(f"is truncated, has a digest of a newer version, or {_NO_TORCH_FILE}")
    return len(content) - len(tail) + start, comment


def read_records(content: memoryview, *, is_intact: bool = False) -> dict[str, memoryview]:
    """Return the records of a torch.save file as views into ``content``, by name without their folder.

    :param is_intact: a digest of the whole content has been compared, so that the records' own checksums need not be
    :raises RefusedError: truncated, or with compressed, encrypted, duplicate, overlapping, foreign or damaged records
    """
    records: dict[str, memoryview] = {}
    end_of_previous = 0
    try:
        entries = sorted(_entries(content))
        folder = entries[0][1].partition(b"/")[0] + b"/"
        for offset, raw_name, flags, crc, size in entries:
            *header, length, extra_length = _LOCAL_HEADER.unpack_from(content, offset)
            header.append(bytes(content[offset + _LOCAL_HEADER.size :][:length]))
            start = offset + _LOCAL_HEADER.size + length + extra_length
            data, name = content[start : start + size], _name_in(folder, raw_name)
            is_alone = (
                name not in records and offset >= end_of_previous and header == [b"PK\x03\x04", flags, 0, raw_name]
            )
            if not is_alone or len(data) != size or not (is_intact or zlib.crc32(data) == crc):
                raise RefusedError(f"its record {quoted(name)} is damaged, there twice, or overlaps another")
            records[name], end_of_previous = data, start + size
    except (struct.error, IndexError):
        raise RefusedError(_DAMAGED_DIRECTORY) from None
    if not {"data.pkl", "version"} <= records.keys() or bytes(records.get("byteorder", b"little")) != b"little":
        raise RefusedError("lacks its record 'data.pkl' or 'version', or was written in another byte order")
    return records


def _entries(content: memoryview) -> list[tuple[int, bytes, int, int, int]]:
    """Return offset, name, flags, CRC-32 and size of each record that the zip's directory lists."""
    end, _ = end_record(content)
    _, disk, directory_disk, entries_here, count, size, offset, _ = _END_RECORD.unpack_from(content, end)
    if bytes(content[:4]) != b"PK\x03\x04":
        raise RefusedError(_NO_TORCH_FILE)
    # torch.save always adds the 64-bit end records, which must repeat these numbers; only their versions may be any.
    start, after = offset + size, bytes(content[offset + size : end])
    fields = (44, after[12:16], 0, 0, count, count, size, offset, b"PK\x06\x07", 0, start, 1)
    is_repeated = start == end or after == _END_RECORDS_64.pack(b"PK\x06\x06", *fields)
    if size > MAX_DIRECTORY_BYTES:
        raise RefusedError(f"its zip directory has {size} bytes; at most {MAX_DIRECTORY_BYTES} are read")
    if (disk, directory_disk, entries_here) != (0, 0, count) or not is_repeated:
        raise RefusedError(_DAMAGED_DIRECTORY)
    directory, entries = content[offset:start], []
    while directory:
        signature, flags, method, crc, packed, size, length, *additions, offset = _ENTRY.unpack_from(directory)
        name = bytes(directory[_ENTRY.size :][:length])
        if signature != b"PK\x01\x02" or len(name) != length:
            raise RefusedError(_DAMAGED_DIRECTORY)
        if method or packed != size or flags & ~_DATA_DESCRIPTOR_OR_UTF8 or any(additions):
            raise RefusedError(f"its record {quoted(name)} is compressed or encrypted, or carries additions")
        entries.append((offset, name, flags, crc, size))
        directory = directory[_ENTRY.size + length :]
    if len(entries) != count:
        raise RefusedError(_DAMAGED_DIRECTORY)
    return entries


def _name_in(folder: bytes, raw_name: bytes) -> str:
    """Return the name of a record in its folder; refuse a record that torch.save does not write."""
    if raw_name in (b"data", b"policy.pth", b"pytorch_variables.pth", b"_stable_baselines3_version"):
        raise RefusedError(
            "is a file of Stable-Baselines3's save(), which holds pickles that could run code; if you trust it, load "
            "it with load() of the class that wrote it"
        )
    name = raw_name.removeprefix(folder).decode("utf-8", "backslashreplace")
    if not raw_name.startswith(folder) or not _RECORDS.fullmatch(name):
        raise RefusedError(f"holds the foreign record {quoted(name)}; torch.save writes no such file")
    return name


def read_pickle(records: Mapping[str, memoryview], device: torch.device) -> object:
    """Return what the pickle ``data.pkl`` holds; :func:`plain` checks where its values are.

    :param records: what :func:`read_records` returned, writable
    :param device: of the tensors; those on the CPU are the records' own memory
    :raises RefusedError: an instruction or name that no checkpoint needs, damage, or a tensor beyond its record
    """
    pickled = records["data.pkl"]
    if len(pickled) > MAX_PICKLE_BYTES:
        raise RefusedError(f"its pickle has {len(pickled)} bytes; at most {MAX_PICKLE_BYTES} are read")
    file = io.BytesIO(pickled)
    reader = _Unpickler(file, records, device)
    try:
        _require(bytes(pickled[:2]) == b"\x80\x02")
        found = reader.load()
        _require(not reader.stack and not reader.metastack and not file.read(1))
    except RefusedError:
        raise
    except (*_DAMAGED, pickle.UnpicklingError):
        raise RefusedError("its pickle is damaged, or not of the kind that torch.save writes") from None
    unused = {name for name in records if name.startswith("data/")} - reader.storages.keys()
    if unused:
        raise RefusedError(f"its record {quoted(min(unused))} belongs to no tensor")
    return found


class _Storage(NamedTuple):
    elements: torch.Tensor


_DAMAGED = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, EOFError, struct.error)
_REBUILD_TENSOR = object()
_GLOBALS: dict[str, object] = {
    "collections OrderedDict": OrderedDict,
    "torch._utils _rebuild_tensor_v2": _REBUILD_TENSOR,
    **{f"torch {name}": dtype for name, dtype in DTYPES.items()},
}
_PYTHONS_OWN = (
    "PROTO STOP NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE EMPTY_TUPLE EMPTY_LIST "
    "EMPTY_DICT MARK TUPLE TUPLE1 TUPLE2 TUPLE3 APPEND APPENDS BINGET LONG_BINGET GLOBAL BINPERSID"
)


class _Instructions(dict[int, Any]):
    """Function by code; refuses every other code, and more than ``most`` instructions in all."""

    def __init__(self, functions: Mapping[int, Any], most: int) -> None:
        super().__init__(functions)
        self._most = self._left = most

    def __getitem__(self, code: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise RefusedError(f"its pickle has more than {self._most} instructions")
        return super().__getitem__(code)

    def __missing__(self, code: int) -> Any:
        raise RefusedError(
            f"its pickle uses the instruction {quoted(chr(code))}, which a checkpoint never needs; do not load it"
        )


class _Unpickler(pickle._Unpickler):
    """The unpickler in Python, without the instructions that could call, import or change anything else."""

    stack: list[Any]
    metastack: list[list[Any]]
    memo: dict[int, Any]
    read: Callable[[int], bytes]

    def __init__(self, file: io.BytesIO, records: Mapping[str, memoryview], device: torch.device) -> None:
        super().__init__(file)
        sizes = [len(record) for name, record in records.items() if name.startswith("data/")]
        most = min(OPERATIONS + OPERATIONS_OF_A_TENSOR * len(sizes), MAX_OPERATIONS)
        self.dispatch = _Instructions(_FUNCTIONS, most)  # type: ignore[misc]
        self.storages: dict[str, _Storage] = {}
        self._records, self._device = records, device
        self._large_keys, self._claimable = LARGE_KEYS, MAX_SHARING * sum(sizes)

    def find_class(self, module: str, name: str) -> Any:
        if f"{module} {name}" not in _GLOBALS:
            raise RefusedError(
                f"its pickle refers to {quoted(f'{module} {name}')}, which a checkpoint never needs and which could "
                "run code: it may be an attack; do not load it"
            )
        return _GLOBALS[f"{module} {name}"]

    def persistent_load(self, pid: Any) -> _Storage:
        _require(type(pid) is tuple and list(map(type, pid)) == [str, torch.dtype, str, str, int])
        kind, dtype, key, _, numel = pid
        record, known = self._records.get(f"data/{key}"), self.storages.get(f"data/{key}")
        _require(kind == "storage")
        if record is None or len(record) != numel * dtype.itemsize or (known and known.elements.dtype != dtype):
            claimed = f"the {numel} elements of {dtype} that its pickle claims"
            raise RefusedError(f"its tensor data {quoted(key)} is not {claimed}")
        if known is None:
            elements = torch.frombuffer(record, dtype=dtype) if record else torch.empty(0, dtype=dtype)
            elements = elements.clone() if elements.data_ptr() % dtype.itemsize else elements
            known = self.storages[f"data/{key}"] = _Storage(elements.to(self._device))
        return known

    def put(self, size: int) -> None:
        """Remember a value, under the next number as torch.save does it; any other could claim a huge table."""
        _require(int.from_bytes(self.read(size), "little") == len(self.memo))
        self.memo[len(self.memo)] = self.stack[-1]

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        _require(isinstance(target, dict))
        for key, value in zip(items[::2], items[1::2], strict=True):
            # The type first: the hash of a deeply nested tuple overflows the C stack.
            _require(type(key) in (str, int))
            self._large_keys -= isinstance(key, int) and key.bit_length() > 60
            _require(self._large_keys >= 0 and key not in target)
            target[key] = value

    def call(self) -> None:
        function, arguments = self.stack[-2:]
        _require(type(arguments) is tuple)
        is_empty = function is OrderedDict and not arguments
        self.stack[-2:] = [OrderedDict() if is_empty else self.tensor(function, *arguments)]

    def tensor(self, function: Any, storage: Any, offset: Any, size: Any, stride: Any, grad: Any, hooks: Any) -> Any:
        _require(function is _REBUILD_TENSOR and grad is False and type(storage) is _Storage)
        _require(type(hooks) is OrderedDict and not hooks and not vars(hooks) and type(size) is type(stride) is tuple)
        _require(all(type(number) is int and 0 <= number < 2**63 for number in (offset, *size, *stride)))
        _require(len(size) <= 64 and math.prod(max(1, length) for length in size) < 2**63)
        elements, numel, step = storage.elements, math.prod(size), 1
        if offset + numel > elements.numel():
            stored = f"the {elements.numel()} elements that are stored"
            raise RefusedError(f"a tensor of shape {quoted(size)} claims more than {stored}")
        for length, stride_of in zip(reversed(size), reversed(stride), strict=True):
            if numel and length != 1 and stride_of != step:
                raise RefusedError(f"a tensor of shape {quoted(size)} is not contiguous; save a contiguous copy of it")
            step *= length
        self._claimable -= numel * elements.itemsize
        if self._claimable < 0:
            raise RefusedError(f"its tensors share their data, and would need more than {MAX_SHARING} times its memory")
        return elements.as_strided(size, stride, offset)

    def attach(self) -> None:
        attributes, target = self.stack.pop(), self.stack[-1]
        _require(type(target) is OrderedDict and type(attributes) is dict and list(attributes) == ["_metadata"])
        vars(target).update(attributes)


def _require(condition: bool) -> None:
    if not condition:
        raise ValueError


_FUNCTIONS: dict[int, Any] = {
    **{code: pickle._Unpickler.dispatch[code] for code in (getattr(pickle, name)[0] for name in _PYTHONS_OWN.split())},
    pickle.BINPUT[0]: lambda reader: reader.put(1),
    pickle.LONG_BINPUT[0]: lambda reader: reader.put(4),
    pickle.SETITEM[0]: lambda reader: reader.set_items([reader.stack.pop(-2), reader.stack.pop()]),
    pickle.SETITEMS[0]: lambda reader: reader.set_items(reader.pop_mark()),
    pickle.REDUCE[0]: _Unpickler.call,
    pickle.BUILD[0]: _Unpickler.attach,
}
