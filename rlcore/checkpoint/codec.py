"""Settings as plain values of a model file and back, without pickle: spaces, schedules and classes by name."""

from __future__ import annotations

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

from rlcore.checkpoint.torch_file import MAX_KEY
from rlcore.errors import CheckpointError, quoted
from rlcore.types import StateValue

KIND = "__kind__"
"""The key that marks a dict as the form of something that is not a dict."""
MOST_NUMBERS, MOST_CHOICES = 2**22, 2**20
"""Of a space, of eight bytes; Stable-Baselines3 makes objects for each of several choices."""
MOST_ARRAY_BYTES = 2**26
"""Of settings and spaces together; a Box takes three times its arrays while it is made."""

_NUMERIC = "biuf"  # kinds of dtype whose arrays a file can hold as bytes
_UNNAMED = ("items", "spaces", "value_schedule")  # entries that add no name to the path, as users know their parts


def encode(value: object, field: str, *, exact: bool = False, left_out: dict[str, object] | None = None) -> StateValue:
    """Return ``value`` as tensors, plain Python numbers, strs, lists and dicts.

    Taken are None, bool, int, float, str, list, tuple, dict, NumPy numbers (they become Python's), NumPy arrays and
    tensors, ``torch.device``, ``torch.dtype``, Gymnasium's Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple
    (without their generators), the schedules of Stable-Baselines3, and classes of :func:`register_class`. Anything else
    (a lambda, an unregistered class, an array of texts or objects) leaves a placeholder that describes it.

    :param field: name of the setting; parts are named ``policy_kwargs.activation_fn``, ``net_arch.0``
    :param exact: NumPy numbers keep their dtype, by which NumPy rounds, and an OrderedDict is no dict
    :param left_out: gets what leaves a placeholder, by the name of the part
    """
    part_of = partial(encode, exact=exact, left_out=left_out)
    if isinstance(value, np.generic):
        dtype, value = value.dtype.name, value.item()
        if exact and type(value) in (bool, int, float):
            return {KIND: "numpy.generic", "dtype": dtype, "value": cast("float", value)}
    if value is None or type(value) in (bool, int, float, str):
        return cast("StateValue", value)
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    if type(value) is list:
        return [part_of(part, f"{field}.{position}") for position, part in enumerate(value)]
    # Other dicts have keys that a file cannot hold, or one that would look like a mark.
    is_dict = type(value) is dict or (type(value) is OrderedDict and not exact)
    if is_dict and isinstance(value, dict) and KIND not in value and _has_keys(value):
        return {key: part_of(part, f"{field}.{key}") for key, part in value.items()}
    form = _FORMS.get(type if isinstance(value, type) else type(value))
    is_unknown = value not in _NAMES if isinstance(value, type) else form is None
    if form is None or is_unknown or (isinstance(value, np.ndarray) and value.dtype.kind not in _NUMERIC):
        if left_out is not None:
            left_out[field[:MAX_KEY]] = value
        named: Any = value if hasattr(value, "__qualname__") else type(value)  # the same in every process
        return {KIND: "placeholder", "description": f"{named.__module__}.{named.__qualname__}"}
    parts = form.parts(value).items()
    return {KIND: form.kind, **{name: part_of(part, _of(field, name)) for name, part in parts}}


def decode(value: StateValue, field: str, custom_objects: Mapping[str, object]) -> object:
    """Return what :func:`encode` was given.

    :param field: name of the setting, as in :func:`encode`
    :param custom_objects: objects by field, which replace whatever the file has there
    :raises CheckpointError: a placeholder without its custom object, an unregistered class, or a malformed value
    """
    field = field[:MAX_KEY]  # that of an entry is a copy, and there may be a million
    if field in custom_objects:
        return custom_objects[field]
    if isinstance(value, list):
        return [decode(part, f"{field}.{position}", custom_objects) for position, part in enumerate(value)]
    if not isinstance(value, dict):
        return value
    entries = cast("dict[str, Any]", {**value})
    kind = entries.pop(KIND, "numpy.ndarray" if set(value) == {"dtype", "shape", "bytes"} else None)  # in older files
    if kind is None:
        return {key: decode(part, f"{field}.{key}", custom_objects) for key, part in entries.items()}
    form = next((form for form in _FORMS.values() if form.kind == kind), None)
    if form is None or (kind == "class" and entries.get("name") not in list(_CLASSES)):
        what = quoted(entries.get("description" if kind == "placeholder" else "name", kind), 120)
        message = f"the setting {field!r} was {what}, which no file can hold or which is not registered"
        raise CheckpointError(None, f"{message}; pass custom_objects={{{field!r}: ...}} with the object to use")
    parts = {name: decode(part, _of(field, name), custom_objects) for name, part in entries.items()}
    try:
        return form.make(**parts)
    except Exception as error:  # the constructors raise anything for values of a hostile file
        what = f"a {form.kind} that cannot be built ({quoted(str(error), 120)})"
        raise CheckpointError(None, f"the setting {field!r} holds {what}; the file is damaged") from error


def is_whole(value: StateValue) -> bool:
    """Say whether :func:`encode` could hold every part of a value."""
    parts: Any = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return not (isinstance(value, dict) and value.get(KIND) == "placeholder") and all(map(is_whole, parts))


def array_bytes(value: Any) -> int:
    """Return how many bytes the arrays in encoded values have; decoded, they are copies."""
    content = value.get("bytes") if isinstance(value, dict) else None
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (content.nbytes if isinstance(content, torch.Tensor) else 0) + sum(map(array_bytes, parts))


def same(left: object, right: object) -> bool:
    """Say if two encoded values are equal; what no file can hold counts by its description."""
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict) and isinstance(right, dict):
        return set(left) == set(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return not isinstance(left, torch.Tensor) and not isinstance(right, torch.Tensor) and left == right


def register_class(name: str, cls: type) -> None:
    """Let model files hold ``cls`` under ``name``, so that it needs no custom object.

    :param name: stable dotted name (``rlcore.optim.UPGD``); files refer to it, so it must never change
    """
    _CLASSES[name], _NAMES[cls] = cls, name


class _Form(NamedTuple):
    kind: str  # in the file
    parts: Callable[[Any], dict[str, Any]]  # of an object, the other entries of its dict; they are encoded in turn
    make: Callable[..., object]  # of decoded entries, the object; may raise what the type's constructor raises


def _of(field: str, name: object) -> str:
    return field if name in _UNNAMED else f"{field}.{name}"


def _has_keys(value: dict[Any, object]) -> bool:
    return all(type(key) in (str, int) for key in value)


def _parts_of_array(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return an array as its bytes, little-endian: exact for every dtype and order of its axes in memory."""
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    content = torch.from_numpy(np.frombuffer(little.tobytes(), np.uint8).copy())
    order: Any = np.argsort([-stride for stride in array.strides], kind="stable")
    axes = {} if array.flags.c_contiguous else {"axes": order.tolist()}
    return {"dtype": array.dtype.name, "shape": list(array.shape), "bytes": content, **axes}


def _array(*, dtype: object, shape: Any, bytes: Any, axes: Any = None) -> np.ndarray[Any, Any]:
    order = range(len(shape)) if axes is None else axes
    numbers = bytes.cpu().flatten().numpy().view(_dtype(dtype).newbyteorder("<")).reshape(shape)
    array: np.ndarray[Any, Any] = numbers.transpose(order).astype(_dtype(dtype), order="C")  # the only copy
    return array.transpose(np.argsort(order))


def _dtype(name: object) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(str(name))
    if dtype.kind not in _NUMERIC:
        raise ValueError(f"{quoted(name, 120)} is not the name of a numeric dtype")
    return dtype


def _torch_dtype(name: str) -> torch.dtype:
    dtype = vars(torch).get(name)  # to ask torch for an attribute may import a module
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"{name!r} is not the name of a dtype")
    return dtype


def _limited(numbers: np.ndarray[Any, Any], most: int) -> np.ndarray[Any, Any]:
    if numbers.size * max(8, numbers.itemsize) > 8 * most:
        raise ValueError(f"{numbers.size} numbers, of at most {most}")
    return numbers


def _box(*, low: Any, high: Any, bounded_below: Any, bounded_above: Any) -> spaces.Box[Any]:
    box = spaces.Box(_limited(low, MOST_NUMBERS), high, low.shape, low.dtype)
    # The bounds of an integer Box do not tell an infinite one from the smallest integer.
    for name, flags in (("bounded_below", bounded_below), ("bounded_above", bounded_above)):
        setattr(box, name, flags.astype(bool).reshape(low.shape))
    return box


def _discrete(*, n: Any, start: Any, dtype: object) -> object:
    # An older Gymnasium has one dtype alone, and no argument for it.
    more: dict[str, Any] = {} if dtype == "int64" else {"dtype": _dtype(dtype).type}
    return spaces.Discrete(n, start=start, **more)


def _attributes(*names: str) -> Callable[[object], dict[str, Any]]:
    return lambda value: {name: getattr(value, name) for name in names}


def _linear(**numbers: Any) -> LinearSchedule:
    return LinearSchedule(**{n: x if isinstance(x, np.generic) else float(x) for n, x in numbers.items()})  # type: ignore[arg-type]


_FORMS: dict[type, _Form] = {
    type: _Form("class", lambda cls: {"name": _NAMES[cls]}, lambda name: _CLASSES[name]),
    tuple: _Form("tuple", lambda value: {"items": list(value)}, lambda items: tuple(items)),
    np.ndarray: _Form("numpy.ndarray", _parts_of_array, _array),
    np.generic: _Form("numpy.generic", _attributes(), lambda dtype, value: _dtype(dtype).type(value)),
    torch.device: _Form("torch.device", lambda device: {"name": str(device)}, lambda name: torch.device(name)),
    torch.dtype: _Form("torch.dtype", lambda dtype: {"name": str(dtype).removeprefix("torch.")}, _torch_dtype),
    spaces.Box: _Form("Box", _attributes("low", "high", "bounded_below", "bounded_above"), _box),
    spaces.Discrete: _Form(
        "Discrete", lambda space: {"n": space.n, "start": space.start, "dtype": np.dtype(space.dtype).name}, _discrete
    ),
    spaces.MultiDiscrete: _Form(
        "MultiDiscrete",
        _attributes("nvec", "start"),
        lambda nvec, start: spaces.MultiDiscrete(_limited(nvec, MOST_CHOICES), nvec.dtype.type, start=start),
    ),
    spaces.MultiBinary: _Form("MultiBinary", _attributes("n"), lambda n: spaces.MultiBinary(n)),
    spaces.Dict: _Form(
        # a dict, or pairs in older files
        "Dict",
        _attributes("spaces"),
        lambda spaces: gymnasium.spaces.Dict(OrderedDict(dict(spaces))),
    ),
    spaces.Tuple: _Form("Tuple", lambda space: {"items": list(space.spaces)}, lambda items: spaces.Tuple(items)),
    # The callable inside has the name of the setting: that is what the user would pass as a custom object.
    FloatSchedule: _Form("FloatSchedule", _attributes("value_schedule"), FloatSchedule),
    ConstantSchedule: _Form("ConstantSchedule", _attributes("val"), lambda val: ConstantSchedule(float(val))),
    LinearSchedule: _Form("LinearSchedule", _attributes("start", "end", "end_fraction"), _linear),
}
_CLASSES: dict[str, type] = {}
_NAMES: dict[type, str] = {}

for _class in (FlattenExtractor, CombinedExtractor, NatureCNN):
    register_class(f"stable_baselines3.{_class.__name__}", _class)
for _name in ("Tanh", "ReLU", "ELU", "GELU", "SiLU", "LeakyReLU", "Mish", "Identity"):
    register_class(f"torch.nn.{_name}", getattr(torch.nn, _name))
for _name in ("Adam", "AdamW", "SGD", "RMSprop"):
    register_class(f"torch.optim.{_name}", getattr(torch.optim, _name))
