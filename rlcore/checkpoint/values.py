"""What a saved state may hold: dense tensors and plain Python in lists and dicts, so that reading executes nothing."""

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
    if not isinstance(payload, dict):
        raise RefusedError(f"a checkpoint holds a dict, not {type(payload).__name__}")
    check_values(payload, may_repeat=True)
    copied: StateDict = _copied(payload, set(), {})
    return copied


def _copied(value: Any, storages: set[int], texts: dict[str, str]) -> Any:
    """
    :param storages: addresses of those that tensors before this one have; those in ``value`` are added
    :param texts: the object that stands for each text; the texts in ``value`` are added
    """
    if isinstance(value, torch.Tensor):
        return _alone(value.detach(), storages)
    if isinstance(value, str):
        return texts.setdefault(value, value)
    if isinstance(value, list):
        return [_copied(item, storages, texts) for item in value]
    if isinstance(value, tuple):
        return tuple([_copied(item, storages, texts) for item in value])  # a new one, also where two are one object
    if not isinstance(value, dict):
        return value
    made = type(value)((_copied(key, storages, texts), _copied(item, storages, texts)) for key, item in value.items())
    if hasattr(value, "_metadata"):
        made._metadata = _copied(value._metadata, storages, texts)  # type: ignore[attr-defined]
    return made


def _alone(tensor: torch.Tensor, storages: set[int]) -> torch.Tensor:
    storage = tensor.untyped_storage()
    is_whole = storage.nbytes() == tensor.nbytes and storage.data_ptr() not in storages
    if not tensor.is_cpu or not tensor.is_contiguous() or tensor.is_neg() or not is_whole:
        tensor = tensor.to("cpu").clone(memory_format=torch.contiguous_format)
    storages.add(tensor.untyped_storage().data_ptr())
    return tensor


def check_values(payload: object, *, may_repeat: bool = False) -> None:
    """Refuse everything that a checkpoint may not hold: a foreign type, a bad key, a shared or too deeply nested list.

    The walk keeps its own stack, of the lists and dicts that it is inside of. As it refuses one that stands in two
    places, its cost is bounded by the size of the file.

    :param may_repeat: whether a list or dict may stand in several places, as it may in what is to be saved
    """
    seen: set[int] = set()
    inside: list[Iterator[tuple[str, object]]] = [iter([("payload", payload)])]
    while inside:
        place, value = next(inside[-1], (None, None))
        if place is None:
            inside.pop()
        elif isinstance(value, torch.Tensor):
            _check_tensor(value, place)
        elif isinstance(value, dict) or type(value) is list:
            if len(inside) > MAX_DEPTH:
                raise RefusedError(f"{place[:80]}... is nested deeper than {MAX_DEPTH} levels")
            if id(value) in seen and not may_repeat:
                raise RefusedError(f"{place} is a {type(value).__name__} that stands in two places")
            seen.add(id(value))
            inside.append(_items(value, place))
        else:
            _check_plain(value, place)


def _items(container: dict[object, object] | list[object], place: str) -> Iterator[tuple[str, object]]:
    if isinstance(container, list):
        yield from ((f"{place}[{index}]", item) for index, item in enumerate(container))
        return
    if type(container) not in (dict, OrderedDict):
        raise RefusedError(f"{place} is a {type(container).__name__}; save a plain dict of it")
    for key in container:
        if type(key) is int:
            _check_int(key, f"a key of {place}")
        elif type(key) is not str:
            raise RefusedError(f"{place} has a key of type {type(key).__name__}; keys must be str or int")
    yield from ((f"{place}[{quoted(key)}]", item) for key, item in container.items())
    attributes = getattr(container, "__dict__", {})
    if attributes.keys() - {"_metadata"}:
        names = quoted(sorted(map(str, attributes)))
        raise RefusedError(f"{place} carries attributes {names}; only _metadata may be attached")
    if attributes.get("_metadata") is not None:
        yield f"{place}._metadata", attributes["_metadata"]


def _check_tensor(tensor: torch.Tensor, place: str) -> None:
    if tensor.layout != torch.strided or tensor.device.type == "meta" or tensor.dtype not in DTYPES.values():
        kind = f"{tensor.layout}, {tensor.dtype}, on {tensor.device}"
        raise RefusedError(f"{place} is a tensor that cannot be saved ({kind}): it must be dense, real and hold data")
    if type(tensor) is not torch.Tensor and type(tensor.detach()) is not torch.Tensor:
        raise RefusedError(f"{place} is a {type(tensor).__name__}; save a plain torch.Tensor of it")


def _check_plain(value: object, place: str) -> None:
    items = value if type(value) is tuple else (value,)
    for item in items:
        if type(item) is int:
            _check_int(item, place)
        elif item is not None and type(item) not in (bool, float, str):
            kind = f"{type(item).__module__}.{type(item).__qualname__}".removeprefix("builtins.")
            held = "is" if items is not value else "is a tuple that holds"
            hint = "; use .item() for a NumPy scalar, torch.as_tensor for an array" if kind.startswith("numpy.") else ""
            raise RefusedError(f"{place} {held} a {kind}; a checkpoint holds {_ALLOWED}{hint}")


def _check_int(value: int, place: str) -> None:
    if value.bit_length() > _MAX_INT_BITS:
        raise RefusedError(f"{place} is an integer of {value.bit_length()} bits; at most {_MAX_INT_BITS} can be saved")
