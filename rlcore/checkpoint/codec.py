"""Settings as plain values of a model file and back, without pickle: spaces, schedules and classes by name."""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, cast

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import CombinedExtractor, FlattenExtractor, NatureCNN
from stable_baselines3.common.utils import ConstantSchedule, FloatSchedule, LinearSchedule

from rlcore.checkpoint.refusal import quoted
from rlcore.errors import CheckpointError, SettingError
from rlcore.types import StateValue

KIND = "__kind__"
"""The key that marks a dict as the form of something that is not a dict."""

_NUMERIC = "biuf"  # kinds of dtype whose arrays a file can hold as bytes
_MAX_DEPTH = 50  # how many dots the path of a part may have; settings have three or four
_UNNAMED = ("items", "spaces", "value_schedule")  # entries that add no name to the path, as users know their parts


def encode(value: object, field: str) -> StateValue:
    """Return ``value`` as tensors, plain Python numbers, strs, lists and dicts.

    Taken are None, bool, int, float, str, list, tuple, dict, NumPy numbers (they become Python's), NumPy arrays and
    tensors, ``torch.device``, ``torch.dtype``, Gymnasium's Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple
    (without their generators), the schedules of Stable-Baselines3, and classes of :func:`register_class`. Anything else
    (a lambda, an unregistered class, an array of texts or objects) leaves a placeholder that describes it.

    :param field: name of the setting; parts are named ``policy_kwargs.activation_fn``, ``net_arch.0``
    :raises CheckpointError: lists or dicts are nested deeper than any setting, or contain themselves
    """
    if field.count(".") > _MAX_DEPTH:
        what = f"the setting {quoted(field, 120)} is nested more than {_MAX_DEPTH} deep"
        raise CheckpointError(None, f"{what}; give it without such nesting")
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in (bool, int, float, str):
        return cast("StateValue", value)
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    if type(value) is list:
        return [encode(part, f"{field}.{position}") for position, part in enumerate(value)]
    # Other dicts have keys that a file cannot hold, or one that would look like a mark.
    if isinstance(value, dict) and type(value) in (dict, OrderedDict) and KIND not in value and _has_keys(value):
        return {key: encode(part, f"{field}.{key}") for key, part in value.items()}
    form = _FORMS.get(type if isinstance(value, type) else type(value))
    is_unknown = value not in _NAMES if isinstance(value, type) else form is None
    if form is None or is_unknown or (isinstance(value, np.ndarray) and value.dtype.kind not in _NUMERIC):
        return {KIND: "placeholder", "description": _described(value)}
    return {KIND: form.kind, **{name: encode(part, _of(field, name)) for name, part in form.parts(value).items()}}


def decode(value: StateValue, field: str, custom_objects: Mapping[str, object]) -> object:
    """Return what :func:`encode` was given.

    :param field: name of the setting, as in :func:`encode`
    :param custom_objects: objects by field, which stand in place of whatever the file has there
    :raises CheckpointError: a placeholder without its custom object, an unregistered class, or a malformed value
    """
    if field in custom_objects:
        return custom_objects[field]
    if value is None or isinstance(value, bool | int | float | str | torch.Tensor):
        return value
    if isinstance(value, list):
        return [decode(part, f"{field}.{position}", custom_objects) for position, part in enumerate(value)]
    if not isinstance(value, dict):
        raise _malformed(field, f"a {type(value).__name__}, which a model file cannot hold")
    if KIND not in value:
        return {key: decode(part, f"{field}.{key}", custom_objects) for key, part in value.items()}
    entries = cast("dict[str, Any]", {**value})
    form = _form_of(entries.pop(KIND), entries, field)
    parts = {name: decode(part, _of(field, name), custom_objects) for name, part in entries.items()}
    try:
        return form.make(**parts)
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise _malformed(field, f"a {form.kind} that cannot be built ({quoted(str(error), 120)})") from error


def _form_of(kind: object, entries: Mapping[str, object], field: str) -> _Form:
    remedy = f"pass custom_objects={{{field!r}: ...}} with the object to use"
    if kind == "placeholder":
        was = quoted(entries.get("description"), 120)
        raise CheckpointError(None, f"the setting {field!r} was {was}, which no model file can hold; {remedy}")
    name = entries.get("name")
    if kind == "class" and not (isinstance(name, str) and name in _CLASSES):
        message = f"the setting {field!r} is the class {quoted(name, 120)}, which is not registered; {remedy}"
        raise CheckpointError(None, f"{message}, or register it with rlcore.checkpoint.codec.register_class")
    for form in _FORMS.values():
        if form.kind == kind:
            return form
    raise _malformed(field, f"a value of the unknown kind {quoted(kind, 120)}")


def same(left: object, right: object) -> bool:
    """Say if two encoded values are equal; what no file can hold counts by its description."""
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict) and isinstance(right, dict):
        return set(left) == set(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    scalar = bool | int | float | str
    return left is right or (isinstance(left, scalar) and isinstance(right, scalar) and left == right)


def register_class(name: str, cls: type) -> None:
    """Let model files hold ``cls`` under ``name``, so that it needs no custom object; repeating it changes nothing.

    :param name: stable dotted name (``rlcore.optim.UPGD``); files refer to it, so it must never change
    :raises SettingError: the name is that of another class, or the class has another name
    """
    known, known_name = _CLASSES.get(name, cls), _NAMES.get(cls, name)
    if known is not cls or known_name != name:
        message = f"{name!r} is the name of {known.__name__}, and {cls.__name__} has {known_name!r}; give one name"
        raise SettingError("name", message)
    _CLASSES[name], _NAMES[cls] = cls, name


class _Form(NamedTuple):
    kind: str  # in the file
    parts: Callable[[Any], dict[str, Any]]  # of an object, the other entries of its dict; they are encoded in turn
    make: Callable[..., object]  # of decoded entries, the object; may raise what the type's constructor raises


def _of(field: str, name: object) -> str:
    return field if name in _UNNAMED else f"{field}.{name}"


def _described(value: object) -> str:
    """Describe an object by its names alone: the same text in every process, without addresses or paths."""
    if isinstance(value, type):
        return f"the class {value.__module__}.{value.__qualname__}"
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType | types.MethodType):
        return f"the function {value.__module__}.{value.__qualname__}"
    return f"an object of the class {type(value).__module__}.{type(value).__qualname__}"


def _has_keys(value: dict[Any, object]) -> bool:
    return all(type(key) in (str, int) for key in value)


def _malformed(field: str, found: str) -> CheckpointError:
    message = f"the setting {field!r} holds {found}; the file is damaged or was written by a newer version"
    return CheckpointError(None, message)


def _typed(value: object, *kinds: type) -> Any:
    if type(value) not in kinds:
        raise TypeError(f"{quoted(value, 120)} is not of the type {kinds[0].__name__}")
    return value


def _parts_of_array(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return an array as its bytes, little-endian: exact for every dtype, also those that torch lacks."""
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    content = torch.from_numpy(np.frombuffer(little.tobytes(), np.uint8).copy())
    return {"dtype": array.dtype.name, "shape": list(array.shape), "bytes": content}


def _array(*, dtype: object, shape: object, bytes: object) -> np.ndarray[Any, Any]:
    content = _typed(bytes, torch.Tensor)
    if content.dtype != torch.uint8 or content.ndim != 1:
        raise ValueError("the bytes of an array must be a tensor of torch.uint8 with one dimension")
    numbers = np.frombuffer(content.detach().cpu().numpy().tobytes(), _dtype(dtype).newbyteorder("<"))
    return numbers.reshape(_shape(shape)).astype(_dtype(dtype))


def _dtype(name: object) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(_typed(name, str))
    if dtype.kind not in _NUMERIC or dtype.name != name:
        raise ValueError(f"{quoted(name, 120)} is not the name of a numeric dtype")
    return dtype


def _shape(sizes: Any) -> tuple[int, ...]:
    if not all(type(size) is int and size >= 0 for size in _typed(sizes, list)):
        raise ValueError(f"{quoted(sizes, 120)} is not a shape")
    return tuple(sizes)


def _as_array(value: Any) -> np.ndarray[Any, Any]:
    """Return an array, also of the entries that older files have without their kind."""
    return value if isinstance(value, np.ndarray) else _array(**value)


def _box(*, low: Any, high: Any, bounded_below: Any, bounded_above: Any) -> spaces.Box[Any]:
    low, high, below, above = arrays = [_as_array(each) for each in (low, high, bounded_below, bounded_above)]
    if low.dtype != high.dtype or any(array.shape != low.shape for array in arrays):
        raise ValueError("the bounds differ in shape or dtype")
    box = spaces.Box(low, high, shape=low.shape, dtype=low.dtype)
    # Of an integer Box the bounds alone do not tell an infinite one from the smallest integer.
    box.bounded_below, box.bounded_above = below.astype(bool), above.astype(bool)
    return box


def _discrete(*, n: object, start: object, dtype: object) -> object:
    # An older Gymnasium has one dtype alone, and no argument for it.
    more: dict[str, Any] = {} if dtype == "int64" else {"dtype": _dtype(dtype).type}
    return spaces.Discrete(_typed(n, int), start=_typed(start, int), **more)


def _multi_discrete(*, nvec: Any, start: Any) -> spaces.MultiDiscrete:
    counts = _as_array(nvec)
    return spaces.MultiDiscrete(counts, dtype=counts.dtype.type, start=_as_array(start))


def _multi_binary(*, n: Any) -> spaces.MultiBinary:
    return spaces.MultiBinary(n if type(n) is int else _shape(list(n)))


def _dict_space(*, spaces: Any) -> gymnasium.spaces.Dict:
    parts = dict(spaces)  # or pairs, in older files
    return gymnasium.spaces.Dict(OrderedDict((_typed(key, str), part) for key, part in parts.items()))


def _torch_dtype(*, name: object) -> torch.dtype:
    dtype: torch.dtype = _typed(vars(torch).get(_typed(name, str)), torch.dtype)
    return dtype


def _of_numbers(cls: type, **numbers: object) -> object:
    return cls(**{name: _typed(number, float, int) for name, number in numbers.items()})


def _attributes(*names: str) -> Callable[[object], dict[str, Any]]:
    return lambda value: {name: getattr(value, name) for name in names}


_FORMS: dict[type, _Form] = {
    type: _Form("class", lambda cls: {"name": _NAMES[cls]}, lambda name: _CLASSES[name]),
    tuple: _Form("tuple", lambda value: {"items": list(value)}, lambda items: tuple(_typed(items, list))),
    np.ndarray: _Form("numpy.ndarray", _parts_of_array, _array),
    torch.device: _Form("torch.device", lambda device: {"name": str(device)}, lambda name: torch.device(str(name))),
    torch.dtype: _Form("torch.dtype", lambda dtype: {"name": str(dtype).removeprefix("torch.")}, _torch_dtype),
    spaces.Box: _Form("Box", _attributes("low", "high", "bounded_below", "bounded_above"), _box),
    spaces.Discrete: _Form(
        "Discrete", lambda space: {"n": space.n, "start": space.start, "dtype": np.dtype(space.dtype).name}, _discrete
    ),
    spaces.MultiDiscrete: _Form("MultiDiscrete", _attributes("nvec", "start"), _multi_discrete),
    spaces.MultiBinary: _Form("MultiBinary", _attributes("n"), _multi_binary),
    spaces.Dict: _Form("Dict", _attributes("spaces"), _dict_space),
    spaces.Tuple: _Form("Tuple", lambda space: {"items": list(space.spaces)}, lambda items: spaces.Tuple(items)),
    # The callable inside has the name of the setting: that is what the user would pass as a custom object.
    FloatSchedule: _Form("FloatSchedule", _attributes("value_schedule"), FloatSchedule),
    ConstantSchedule: _Form("ConstantSchedule", _attributes("val"), partial(_of_numbers, ConstantSchedule)),
    LinearSchedule: _Form(
        "LinearSchedule", _attributes("start", "end", "end_fraction"), partial(_of_numbers, LinearSchedule)
    ),
}
_CLASSES: dict[str, type] = {}
_NAMES: dict[type, str] = {}

for _class in (FlattenExtractor, CombinedExtractor, NatureCNN):
    register_class(f"stable_baselines3.{_class.__name__}", _class)
for _name in ("Tanh", "ReLU", "ELU", "GELU", "SiLU", "LeakyReLU", "Mish", "Identity"):
    register_class(f"torch.nn.{_name}", getattr(torch.nn, _name))
for _name in ("Adam", "AdamW", "SGD", "RMSprop"):
    register_class(f"torch.optim.{_name}", getattr(torch.optim, _name))
