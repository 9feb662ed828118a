"""What a saved state may hold: dense tensors and plain Python in lists and dicts, so that reading executes nothing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import torch

from rlcore.checkpoint.refusal import RefusedError, quoted
from rlcore.types import StateDict, StateValue

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
    ``nn.Module.state_dict`` attaches.

    :raises RefusedError: a value that a checkpoint cannot hold, with the path of keys to it
    """
    if not isinstance(payload, dict):
        raise RefusedError(f"a checkpoint holds a dict, not {type(payload).__name__}")
    return _plain_dict(payload, "payload", 1, set())


def _plain(value: object, place: str, depth: int, storages: set[int]) -> StateValue:
    if isinstance(value, torch.Tensor):
        return _plain_tensor(value, place, storages)
    _check_depth(place, depth)
    if isinstance(value, dict):
        return _plain_dict(value, place, depth, storages)
    if type(value) is list:
        return [_plain(item, f"{place}[{index}]", depth + 1, storages) for index, item in enumerate(value)]
    _check_plain(value, place)
    return value  # type: ignore[return-value]  # just checked; mypy cannot follow


def _plain_dict(value: dict[object, object], place: str, depth: int, storages: set[int]) -> StateDict:
    _check_keys(value, place)
    made = type(value)()
    for key, item in value.items():
        made[key] = _plain(item, _inside(place, key), depth + 1, storages)
    metadata = _metadata_of(value, place)
    if metadata is not None:
        made._metadata = _plain(metadata, f"{place}._metadata", depth + 1, storages)  # type: ignore[attr-defined]
    return made  # type: ignore[return-value]  # keys were checked; mypy cannot follow


def _plain_tensor(tensor: torch.Tensor, place: str, storages: set[int]) -> torch.Tensor:
    """
    :param storages: addresses of those that tensors before this one have; its own is added
    """
    if tensor.layout != torch.strided or tensor.device.type == "meta" or tensor.dtype not in DTYPES.values():
        kind = f"{tensor.layout}, {tensor.dtype}, on {tensor.device}"
        raise RefusedError(f"{place} is a tensor that cannot be saved ({kind}): it must be dense, real and hold data")
    found = tensor.detach()
    if type(found) is not torch.Tensor:
        raise RefusedError(f"{place} is a {type(tensor).__name__}; save a plain torch.Tensor of it")
    if not found.is_cpu or not found.is_contiguous() or found.is_neg() or not _owns(found, storages):
        found = found.to("cpu").clone(memory_format=torch.contiguous_format)
    storages.add(found.untyped_storage().data_ptr())
    return found


def _owns(tensor: torch.Tensor, storages: set[int]) -> bool:
    """Whether the storage of a tensor holds it alone, and none of those before."""
    storage = tensor.untyped_storage()
    return storage.nbytes() == tensor.nbytes and storage.data_ptr() not in storages


def check_values(payload: object) -> None:
    """Refuse everything that a checkpoint may not hold: a foreign type, a bad key, a shared or too deeply nested list.

    The walk keeps its own stack, of the lists and dicts that it is inside of, and refuses one that stands in two
    places: its cost is bounded by the size of the file.
    """
    seen: set[int] = set()
    inside: list[Iterator[tuple[str, object]]] = [iter([("payload", payload)])]
    while inside:
        place, value = next(inside[-1], (None, None))
        if place is None:
            inside.pop()
        elif type(value) in (list, dict, OrderedDict):
            _check_depth(place, len(inside))
            if id(value) in seen:
                raise RefusedError(f"{place} is a {type(value).__name__} that stands in two places")
            seen.add(id(value))
            inside.append(_items(value, place))
        elif type(value) is not torch.Tensor:
            _check_plain(value, place)


def _items(container: object, place: str) -> Iterator[tuple[str, object]]:
    if isinstance(container, list):
        yield from ((f"{place}[{index}]", item) for index, item in enumerate(container))
    elif isinstance(container, dict):
        _check_keys(container, place)
        yield from ((_inside(place, key), item) for key, item in container.items())
        metadata = _metadata_of(container, place)
        if metadata is not None:
            yield f"{place}._metadata", metadata


def _check_keys(container: dict[object, object], place: str) -> None:
    if type(container) not in (dict, OrderedDict):
        raise RefusedError(f"{place} is a {type(container).__name__}; save a plain dict of it")
    for key in container:
        if type(key) is int:
            _check_int(key, f"a key of {place}")
        elif type(key) is not str:
            raise RefusedError(f"{place} has a key of type {type(key).__name__}; keys must be str or int")


def _metadata_of(container: dict[object, object], place: str) -> object:
    attributes = getattr(container, "__dict__", {})
    if attributes.keys() - {"_metadata"}:
        raise RefusedError(
            f"{place} carries attributes {quoted(sorted(map(str, attributes)))}; only _metadata may be attached"
        )
    return attributes.get("_metadata")


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


def _check_depth(place: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise RefusedError(f"{place[:80]}... is nested deeper than {MAX_DEPTH} levels")


def _inside(place: str, key: object) -> str:
    return f"{place}[{quoted(key)}]"
