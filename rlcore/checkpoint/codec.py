"""Settings as plain values of a model file and back, without pickle: spaces, schedules and classes by name."""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import CombinedExtractor, FlattenExtractor, NatureCNN
from stable_baselines3.common.utils import ConstantSchedule, FloatSchedule, LinearSchedule

from rlcore.checkpoint.refusal import quoted
from rlcore.errors import CheckpointError, SettingError
from rlcore.types import StateDict, StateValue

KIND = "__kind__"
"""The key that marks a dict as the form of something that is not a dict."""

_NUMERIC = "biuf"  # kinds of dtype whose arrays a file can hold as bytes
_MAX_DEPTH = 50  # how many dots the path of a part may have; settings have three or four

Nested = Callable[..., Any]
"""Encodes or decodes a part: (part, the names that are added to the field) -> result."""


class Form(NamedTuple):
    """How the objects of one exact type are written.

    :param kind: name in the file
    :param keys: the entries of its dict, besides the kind
    :param encode: (object, nested) -> entries
    :param decode: (entries, nested) -> object; may raise what the type's constructor raises
    """

    kind: str
    keys: tuple[str, ...]
    encode: Callable[[Any, Nested], StateDict]
    decode: Callable[[dict[str, Any], Nested], object]


def encode(value: object, field: str) -> StateValue:
    """Return ``value`` as tensors, plain Python numbers, strs, lists and dicts.

    Taken are None, bool, int, float, str, list, tuple, dict, NumPy numbers (they become Python's), NumPy arrays and
    tensors, ``torch.device``, ``torch.dtype``, Gymnasium's Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple
    (without their generators), the schedules of Stable-Baselines3, and classes of :func:`register_class`. Anything else
    (a lambda, an unregistered class, an array of texts or objects) leaves a placeholder that describes it.

    :param field: name of the setting; parts are named ``policy_kwargs.activation_fn``, ``net_arch.0``
    :raises CheckpointError: lists or dicts are nested deeper than any setting, or contain themselves
    """

    def nested(part: Any, *names: object) -> StateValue:
        return encode(part, ".".join((field, *map(str, names))))

    _require_shallow(field)
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in (bool, int, float, str):
        return cast("StateValue", value)
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    if type(value) is list:
        return [nested(part, position) for position, part in enumerate(value)]
    if isinstance(value, dict) and type(value) in (dict, OrderedDict):
        # Others have keys that a file cannot hold, or one that would look like a mark.
        if KIND not in value and all(type(key) in (str, int) for key in value):
            return {key: nested(part, key) for key, part in value.items()}
    elif isinstance(value, type) and value in _NAMES:
        return {KIND: "class", "name": _NAMES[value]}
    form = _FORMS.get(type(value))
    if form is None or (isinstance(value, np.ndarray) and value.dtype.kind not in _NUMERIC):
        return {KIND: "placeholder", "description": _described(value)}
    return {KIND: form.kind, **form.encode(value, nested)}


def same(left: object, right: object) -> bool:
    """Whether two encoded values are equal; what no file can hold counts by its description."""
    if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
        if not (isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)):
            return False
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict) and isinstance(right, dict):
        return set(left) == set(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(*pair) for pair in zip(left, right, strict=True))
    return left is right or (isinstance(left, bool | int | float | str) and left == right)


def decode(value: StateValue, field: str, custom_objects: Mapping[str, object]) -> object:
    """Return what :func:`encode` was given.

    :param field: name of the setting, as in :func:`encode`
    :param custom_objects: objects by field, which stand in place of whatever the file has there
    :raises CheckpointError: a placeholder without its custom object, an unregistered class, or a malformed value
    """

    def nested(part: Any, *names: object) -> object:
        return decode(part, ".".join((field, *map(str, names))), custom_objects)

    if field in custom_objects:
        return custom_objects[field]
    _require_shallow(field)
    if value is None or isinstance(value, bool | int | float | str | torch.Tensor):
        return value
    if isinstance(value, list):
        return [nested(part, position) for position, part in enumerate(value)]
    if not isinstance(value, dict):
        raise _malformed(field, f"a {type(value).__name__}, which a model file cannot hold")
    if KIND not in value:
        return {key: nested(part, key) for key, part in value.items()}
    return _decode_marked(cast("dict[str, Any]", value), field, nested)


def register_class(name: str, cls: type) -> None:
    """Let model files hold ``cls`` under ``name``, so that it needs no custom object; repeating it changes nothing.

    :param name: stable dotted name (``rlcore.optim.UPGD``); files refer to it, so it must never change
    :raises SettingError: the name stands for another class, or the class has another name
    """
    known, known_name = _CLASSES.get(name, cls), _NAMES.get(cls, name)
    if known is not cls:
        raise SettingError(
            "name", f"{name!r} already stands for {known.__name__}; give {cls.__name__} a name of its own"
        )
    if known_name != name:
        raise SettingError("name", f"{cls.__name__} is already registered as {known_name!r}; a class has one name")
    _CLASSES[name] = cls
    _NAMES[cls] = name


def _decode_marked(value: dict[str, Any], field: str, nested: Nested) -> object:
    kind, name, keys = value[KIND], value.get("name"), set(value) - {KIND}
    if kind == "class":
        if not isinstance(name, str) or name not in _CLASSES:
            raise CheckpointError(
                None,
                f"the setting {field!r} is the class {quoted(name, 120)}, which is not registered; register it with "
                f"rlcore.checkpoint.codec.register_class or pass custom_objects={{{field!r}: ...}}",
            )
        return _CLASSES[name]
    if kind == "placeholder":
        raise CheckpointError(
            None,
            f"the setting {field!r} was {quoted(value.get('description'), 120)}, which no model file can hold; "
            f"pass custom_objects={{{field!r}: ...}} with the object to use",
        )
    form = _KINDS.get(kind) if isinstance(kind, str) else None
    if form is None:
        raise _malformed(field, f"a value of the unknown kind {quoted(kind, 120)}")
    if keys != set(form.keys):
        raise _malformed(field, f"a {form.kind} with the entries {quoted(sorted(map(str, keys)), 120)}")
    try:
        return form.decode(value, nested)
    except CheckpointError:
        raise
    except (AssertionError, ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise _malformed(field, f"a {form.kind} that cannot be built ({quoted(str(error), 120)})") from error


def _described(value: object) -> str:
    """Describe an object by its names alone: the same text in every process, without addresses or paths."""
    if isinstance(value, type):
        return f"the class {value.__module__}.{value.__qualname__}"
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType | types.MethodType):
        return f"the function {value.__module__}.{value.__qualname__}"
    return f"an object of the class {type(value).__module__}.{type(value).__qualname__}"


def _require_shallow(field: str) -> None:
    if field.count(".") > _MAX_DEPTH:
        raise CheckpointError(
            None,
            f"the setting {quoted(field, 120)} is nested more than {_MAX_DEPTH} deep; give it without such nesting",
        )


def _malformed(field: str, found: str) -> CheckpointError:
    return CheckpointError(
        None, f"the setting {field!r} holds {found}; the file is damaged or was written by a newer version"
    )


def _encode_array(array: np.ndarray[Any, Any]) -> StateDict:
    """Write an array as its bytes, little-endian: exact for every dtype, also those that torch lacks."""
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    content = torch.from_numpy(np.frombuffer(little.tobytes(), np.uint8).copy())
    return {"dtype": array.dtype.name, "shape": [int(size) for size in array.shape], "bytes": content}


def _decode_array(value: object) -> np.ndarray[Any, Any]:
    """Read an array; whatever does not fit together raises ValueError or TypeError."""
    entries = _typed(value, dict)
    dtype, content = _decode_dtype(entries.get("dtype")), entries.get("bytes")
    if not isinstance(content, torch.Tensor) or content.dtype != torch.uint8 or content.ndim != 1:
        raise ValueError("the bytes of an array must be a tensor of torch.uint8 with one dimension")
    raw = content.detach().cpu().numpy().tobytes()
    return np.frombuffer(raw, dtype.newbyteorder("<")).reshape(_decode_shape(entries.get("shape"))).astype(dtype)


def _decode_dtype(name: object) -> np.dtype[Any]:
    dtype = np.dtype(name) if isinstance(name, str) else None
    if dtype is None or dtype.kind not in _NUMERIC or dtype.name != name:
        raise ValueError(f"{quoted(name, 120)} is not the name of a numeric dtype")
    return dtype


def _decode_shape(shape: object) -> tuple[int, ...]:
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"{quoted(shape, 120)} is not a shape")
    return tuple(shape)


def _typed(value: object, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{quoted(value, 120)} is not of the type {kind.__name__}")
    return value


_BOUNDS = ("low", "high", "bounded_below", "bounded_above")


def _decode_box(entries: dict[str, Any], _: Nested) -> spaces.Box[Any]:
    low, high, below, above = arrays = [_decode_array(entries[name]) for name in _BOUNDS]
    if low.dtype != high.dtype or any(array.shape != low.shape for array in arrays):
        raise ValueError("the bounds differ in shape or dtype")
    box = spaces.Box(low, high, shape=low.shape, dtype=low.dtype)
    # Of an integer Box the bounds alone do not tell an infinite one from the smallest integer.
    box.bounded_below, box.bounded_above = below.astype(bool), above.astype(bool)
    return box


def _decode_discrete(entries: dict[str, Any], _: Nested) -> object:
    n, start, dtype = _typed(entries["n"], int), _typed(entries["start"], int), _decode_dtype(entries["dtype"])
    if dtype == np.int64:
        return spaces.Discrete(n, start=start)
    return spaces.Discrete(n, start=start, dtype=dtype.type)


def _decode_multi_discrete(entries: dict[str, Any], _: Nested) -> object:
    nvec, start = _decode_array(entries["nvec"]), _decode_array(entries["start"])
    return spaces.MultiDiscrete(nvec, dtype=nvec.dtype.type, start=start)


def _decode_dict_space(entries: dict[str, Any], nested: Nested) -> object:
    return spaces.Dict(OrderedDict((_typed(key, str), nested(part, key)) for key, part in entries["spaces"]))


def _encode_items(items: Any, nested: Nested) -> StateDict:
    return {"items": [nested(part, position) for position, part in enumerate(items)]}


def _decode_items(entries: dict[str, Any], nested: Nested) -> tuple[Any, ...]:
    return tuple(nested(part, position) for position, part in enumerate(_typed(entries["items"], list)))


def _decode_torch_dtype(entries: dict[str, Any], _: Nested) -> torch.dtype:
    dtype = vars(torch).get(_typed(entries["name"], str))
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"torch has no dtype {quoted(entries['name'], 120)}")
    return dtype


def _numbers(kind: str, cls: type, names: tuple[str, ...]) -> Form:
    """Return the form of a class that is built from numbers, which it keeps under the names of its parameters."""

    def read(entries: dict[str, Any], nested: Nested) -> object:
        numbers = [nested(entries[name], name) for name in names]
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise TypeError(f"{quoted(number, 120)} is not a number")
        return cls(*numbers)

    return Form(kind, names, lambda value, nested: {name: nested(getattr(value, name), name) for name in names}, read)


_FORMS: dict[type, Form] = {
    tuple: Form("tuple", ("items",), _encode_items, _decode_items),
    np.ndarray: Form(
        "numpy.ndarray",
        ("dtype", "shape", "bytes"),
        lambda array, _: _encode_array(array),
        lambda entries, _: _decode_array(entries),
    ),
    torch.device: Form(
        "torch.device",
        ("name",),
        lambda device, _: {"name": str(device)},
        lambda entries, _: torch.device(_typed(entries["name"], str)),
    ),
    torch.dtype: Form(
        "torch.dtype",
        ("name",),
        lambda dtype, _: {"name": str(dtype).removeprefix("torch.")},
        _decode_torch_dtype,
    ),
    spaces.Box: Form(
        "Box",
        _BOUNDS,
        lambda box, _: {name: _encode_array(getattr(box, name)) for name in _BOUNDS},
        _decode_box,
    ),
    spaces.Discrete: Form(
        "Discrete",
        ("n", "start", "dtype"),
        lambda space, _: {"n": int(space.n), "start": int(space.start), "dtype": np.dtype(space.dtype).name},
        _decode_discrete,
    ),
    spaces.MultiDiscrete: Form(
        "MultiDiscrete",
        ("nvec", "start"),
        lambda space, _: {"nvec": _encode_array(space.nvec), "start": _encode_array(space.start)},
        _decode_multi_discrete,
    ),
    spaces.MultiBinary: Form(
        "MultiBinary",
        ("n",),
        lambda space, _: {"n": space.n if isinstance(space.n, int) else [int(size) for size in space.n]},
        lambda entries, _: spaces.MultiBinary(n if type(n := entries["n"]) is int else _decode_shape(n)),
    ),
    spaces.Dict: Form(
        "Dict",
        ("spaces",),
        lambda space, nested: {"spaces": [[key, nested(part, key)] for key, part in space.spaces.items()]},
        _decode_dict_space,
    ),
    spaces.Tuple: Form(
        "Tuple",
        ("items",),
        lambda space, nested: _encode_items(space.spaces, nested),
        lambda entries, nested: spaces.Tuple(_decode_items(entries, nested)),
    ),
    # The callable inside has the name of the setting: that is what the user would pass as a custom object.
    FloatSchedule: Form(
        "FloatSchedule",
        ("value_schedule",),
        lambda schedule, nested: {"value_schedule": nested(schedule.value_schedule)},
        lambda entries, nested: FloatSchedule(nested(entries["value_schedule"])),
    ),
    ConstantSchedule: _numbers("ConstantSchedule", ConstantSchedule, ("val",)),
    LinearSchedule: _numbers("LinearSchedule", LinearSchedule, ("start", "end", "end_fraction")),
}
_KINDS: dict[str, Form] = {form.kind: form for form in _FORMS.values()}
_CLASSES: dict[str, type] = {}
_NAMES: dict[type, str] = {}

for _class in (FlattenExtractor, CombinedExtractor, NatureCNN):
    register_class(f"stable_baselines3.{_class.__name__}", _class)
for _name in ("Tanh", "ReLU", "ELU", "GELU", "SiLU", "LeakyReLU", "Mish", "Identity"):
    register_class(f"torch.nn.{_name}", getattr(torch.nn, _name))
for _name in ("Adam", "AdamW", "SGD", "RMSprop"):
    register_class(f"torch.optim.{_name}", getattr(torch.optim, _name))
