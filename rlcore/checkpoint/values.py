"""Checks that a saved state holds dense tensors and plain Python alone, so that reading executes nothing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch

from rlcore.checkpoint.refusal import RefusedError, quoted
from rlcore.types import StateDict

MAX_DEPTH = 64
"""How deep lists and dicts may be nested."""

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

_MAX_INT_BITS = 2000  # the file format holds integers of up to 255 bytes
_ALLOWED = "tensors, bool, int, float, str, None, lists, dicts with str or int keys and tuples of plain values"


def plain(payload: object) -> StateDict:
    """Return the payload with every tensor detached, on the CPU, contiguous and in a storage that no other has.

    A tensor that is all that already is taken as it is, so that the result shares its memory; any other is copied, a
    view without the storage behind it. An OrderedDict stays one and keeps the ``_metadata`` that
    ``nn.Module.state_dict`` attaches. Equal payloads give equal bytes when pickled: which texts and tuples of the
    payload are one object does not show, so that a state that was loaded is written as the one that was saved.

    :raises RefusedError: a value that a checkpoint cannot hold, with the path of keys to it
    """
    storages: set[int] = set()  # the addresses of those that the tensors so far have
    texts: dict[str, str] = {}  # the object that is written for each text

    def copied(value: Any, place: str = "payload", depth: int = 0) -> Any:
        parts = [copied(part, where, depth + 1) for where, part in _checked(value, place, depth)]
        if isinstance(value, torch.Tensor):
            return _alone(value.detach(), storages)
        if isinstance(value, str):
            return texts.setdefault(value, value)
        if isinstance(value, tuple):
            return tuple(parts)
        if not isinstance(value, dict):
            return parts if isinstance(value, list) else value
        keys = [texts.setdefault(key, key) if isinstance(key, str) else key for key in value]
        made = type(value)(zip(keys, parts, strict=False))
        if hasattr(value, "_metadata"):
            made._metadata = parts[-1] if len(parts) > len(keys) else None  # type: ignore[attr-defined]
        return made

    if not isinstance(payload, dict):
        raise RefusedError(f"a checkpoint holds a dict, not {type(payload).__name__}")
    state: StateDict = copied(payload)
    return state


def _alone(tensor: torch.Tensor, storages: set[int]) -> torch.Tensor:
    storage = tensor.untyped_storage()
    is_whole = storage.nbytes() == tensor.nbytes and storage.data_ptr() not in storages
    if not tensor.is_cpu or not tensor.is_contiguous() or tensor.is_neg() or not is_whole:
        tensor = tensor.to("cpu").clone(memory_format=torch.contiguous_format)
    storages.add(tensor.untyped_storage().data_ptr())
    return tensor


def check_values(payload: object) -> None:
    """Refuse what a checkpoint may not hold in what was read, and a list or dict that is in two places.

    So the cost is bounded by the size of the file.

    :raises RefusedError: with the path of keys to it
    """
    seen: set[int] = set()

    def check(value: object, place: str = "payload", depth: int = 0) -> None:
        if isinstance(value, list | dict):
            if id(value) in seen:
                raise RefusedError(f"{place} is a {type(value).__name__} that is in two places")
            seen.add(id(value))
        for where, part in _checked(value, place, depth):
            check(part, where, depth + 1)

    check(payload)


def _checked(value: Any, place: str, depth: int) -> Iterator[tuple[str, object]]:
    """Check the value itself, and yield the parts of a list, tuple or dict, each with the path of keys to it."""
    if isinstance(value, torch.Tensor):
        _check_tensor(value, place)
    elif isinstance(value, dict) or type(value) is list:
        if depth >= MAX_DEPTH:
            raise RefusedError(f"{place[:80]}... is nested deeper than {MAX_DEPTH} levels")
        items = _checked_items(value, place) if isinstance(value, dict) else enumerate(value)
        yield from ((f"{place}[{quoted(key)}]", item) for key, item in items)
        metadata = getattr(value, "_metadata", None)
        if metadata is not None:
            yield f"{place}._metadata", metadata
    elif type(value) is tuple:
        for item in value:
            _check_plain(item, f"{place} is a tuple that holds")
        yield from ((place, item) for item in value)
    else:
        _check_plain(value, f"{place} is")


def _checked_items(value: dict[Any, object], place: str) -> Iterator[tuple[object, object]]:
    if type(value) not in (dict, OrderedDict):
        raise RefusedError(f"{place} is a {type(value).__name__}; save a plain dict of it")
    if getattr(value, "__dict__", {}).keys() - {"_metadata"}:
        names = quoted(sorted(map(str, vars(value))))
        raise RefusedError(f"{place} carries attributes {names}; only _metadata may be attached")
    for key, item in value.items():
        if type(key) not in (int, str):
            raise RefusedError(f"{place} has a key of type {type(key).__name__}; keys must be str or int")
        _check_plain(key, f"a key of {place} is")
        yield key, item


def _check_tensor(tensor: torch.Tensor, place: str) -> None:
    if tensor.layout != torch.strided or tensor.device.type == "meta" or tensor.dtype not in DTYPES.values():
        kind = f"{tensor.layout}, {tensor.dtype}, on {tensor.device}"
        raise RefusedError(f"{place} is a tensor that cannot be saved ({kind}): it must be dense, real and hold data")
    if type(tensor) is not torch.Tensor and type(tensor.detach()) is not torch.Tensor:
        raise RefusedError(f"{place} is a {type(tensor).__name__}; save a plain torch.Tensor of it")


def _check_plain(value: object, what: str) -> None:
    if value is not None and type(value) not in (bool, int, float, str):
        kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
        hint = "; use .item() for a NumPy scalar, torch.as_tensor for an array" if kind.startswith("numpy.") else ""
        raise RefusedError(f"{what} a {kind}; a checkpoint holds {_ALLOWED}{hint}")
    if isinstance(value, int) and value.bit_length() > _MAX_INT_BITS:
        raise RefusedError(f"{what} an integer of {value.bit_length()} bits; at most {_MAX_INT_BITS} can be saved")
