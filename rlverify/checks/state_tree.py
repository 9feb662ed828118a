"""The state of any Python object as a tree of paths and leaves, read without its help.

`walk` gives a digest of every leaf that can be reached, for comparing states in different processes. `differences`
compares two live objects and can copy a leaf from one to the other, for finding out which part of a state matters.

Functions, locks, files and objects of compiled code without attributes are opaque: they count by the name of their
type, and what they hold inside is not seen.
"""

from __future__ import annotations

import copy
import hashlib
import random
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final

import numpy as np

PLAIN: Final = (type(None), bool, int, float, complex, str, bytes, bytearray, np.generic, Enum, type, range)
FUNCTIONS: Final = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)
HIDDEN: Final = ("_parameters", "_buffers", "_modules")
"""Where a module of torch keeps what has a name of its own."""
HOOKS: Final = "_hooks"
SHOWN: Final = 60
"""Characters of a value that are shown."""


@dataclass(frozen=True)
class Leaf:
    """The end of a path.

    :param digest: equal for equal values; of opaque objects, the name of their type
    :param text: the value in short, for people
    :param opaque: whether the object can hold more than its digest says
    """

    digest: str
    text: str
    opaque: bool = False


@dataclass(frozen=True)
class Difference:
    """A path at which two objects differ.

    :param path: from the object to the leaf, such as ``env.envs[0].state``
    :param first: the value in the first object, in short; empty where it has none
    :param second: the value in the second, likewise
    :param restore: copies the value of the first object into the second
    """

    path: str
    first: str
    second: str
    restore: Callable[[], None]


def walk(root: Any) -> dict[str, Leaf]:
    """Every leaf that can be reached from an object, by its shortest path.

    An object that can be reached by several paths counts once.
    """
    found: dict[str, Leaf] = {}
    seen: set[int] = set()
    waiting = deque([("", root)])
    while waiting:
        path, node = waiting.popleft()
        leaf = leaf_of(node)
        if leaf is not None:
            found[path] = leaf
            continue
        if id(node) in seen:
            continue
        seen.add(id(node))
        waiting.extend((_joined(path, key), child) for key, child in children(node).items())
    return found


def differences(first: Any, second: Any) -> list[Difference]:
    """Where two objects differ, by shortest path; the second is the one that `Difference.restore` changes."""
    return list(_differences(first, second))


def _differences(first: Any, second: Any) -> Iterator[Difference]:
    seen: set[tuple[int, int]] = set()
    waiting: deque[tuple[str, Any, Any, Callable[[Any], None]]] = deque([("", first, second, _cannot_replace)])
    while waiting:
        path, old, new, replace = waiting.popleft()
        leaf, other = leaf_of(old), leaf_of(new)
        if leaf is not None or other is not None or type(old) is not type(new):
            if leaf is None or other is None or leaf.digest != other.digest:
                yield Difference(path, _text(old), _text(new), partial(_restore, old, new, replace))
            continue
        if (id(old), id(new)) in seen:
            continue
        seen.add((id(old), id(new)))
        mine, theirs = children(old), children(new)
        if mine.keys() != theirs.keys() and not isinstance(old, Mapping) and not hasattr(old, "__dict__"):
            yield Difference(path, _text(old), _text(new), partial(_restore, old, new, replace))
            continue
        for key in {**mine, **theirs}:
            setter = partial(_set_child, new, key, names=old)
            if key in mine and key in theirs:
                waiting.append((_joined(path, key), mine[key], theirs[key], setter))
            elif key in mine:
                yield Difference(_joined(path, key), _text(mine[key]), "", partial(_set_copy, mine[key], setter))
            else:
                yield Difference(_joined(path, key), "", _text(theirs[key]), partial(_remove_child, new, key))


def find(root: Any, path: str) -> tuple[Any, Callable[[Any], None]]:
    """The value at a path that `walk` gives, and what replaces it there.

    :raises KeyError: if there is no such path
    """
    seen: set[int] = set()
    waiting: deque[tuple[str, Any, Callable[[Any], None]]] = deque([("", root, _cannot_replace)])
    while waiting:
        place, node, replace = waiting.popleft()
        if place == path:
            return node, replace
        if leaf_of(node) is not None or id(node) in seen:
            continue
        seen.add(id(node))
        parts = children(node).items()
        waiting.extend((_joined(place, key), child, partial(_set_child, node, key)) for key, child in parts)
    raise KeyError(path)


def put(root: Any, path: str, value: Any) -> None:
    """Give the leaf at a path another value; in place where both are arrays, tensors or generators of one kind."""
    node, replace = find(root, path)
    _restore(value, node, replace)


def leaf_of(node: Any) -> Leaf | None:
    """The leaf that an object is, or None if it has parts."""
    if isinstance(node, PLAIN):
        return Leaf(f"{type(node).__name__}:{node!r}", _shortened(repr(node)))
    if isinstance(node, np.ndarray):
        return _array_leaf(node)
    if is_tensor(node):
        return _array_leaf(node.detach().cpu().contiguous(), f"{node.dtype}")
    state = generator_state(node)
    if state is not None:
        digest = _digest(repr(state).encode())
        return Leaf(digest, f"generator {digest[:8]}")
    if isinstance(node, set | frozenset):
        text = repr(sorted(map(repr, node)))
        return Leaf(f"set:{text}", _shortened(text))
    if isinstance(node, FUNCTIONS) and not getattr(node, "__closure__", None):
        name = f"{getattr(node, '__module__', '')}.{getattr(node, '__qualname__', node)}"
        return Leaf(f"function:{name}", name, opaque=isinstance(node, types.MethodType))
    if not children(node) and not isinstance(node, Mapping | list | tuple | deque):
        name = f"{type(node).__module__}.{type(node).__qualname__}"
        return Leaf(f"object:{name}", name, opaque=not hasattr(node, "__dict__"))
    return None


def children(node: Any) -> dict[str, Any]:
    """The parts of an object, by attribute (``.name``), key (``['name']``) or index (``[0]``)."""
    if isinstance(node, Mapping):
        return {f"[{key!r}]": value for key, value in _items(node)}
    if isinstance(node, list | tuple | deque):
        return {f"[{index}]": value for index, value in enumerate(node)}
    if isinstance(node, partial):
        return {".func": node.func, ".args": node.args, ".keywords": node.keywords}
    if isinstance(node, types.FunctionType):
        cells = zip(node.__code__.co_freevars, node.__closure__ or (), strict=True)
        return {f".<{name}>": _cell(cell) for name, cell in cells}
    if _is_optimizer(node):
        return _of_optimizer(node)
    return {f".{name}": value for name, value in _attributes(node).items()}


def _attributes(node: Any) -> dict[str, Any]:
    """What an object has in its dictionary and its slots; of a module, without hooks."""
    own = dict(getattr(node, "__dict__", {}))
    if _is_module(node):
        for name in HIDDEN:
            own.update(own.pop(name, {}))
        own = {name: value for name, value in own.items() if not name.endswith(HOOKS)}
    for kind in type(node).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(node, name):
                own.setdefault(name, getattr(node, name))
    return own


def generator_state(node: Any) -> Any:
    """The state of a random generator of NumPy, torch or Python; None for other objects."""
    if isinstance(node, np.random.Generator):
        return node.bit_generator.state
    if isinstance(node, np.random.BitGenerator):
        return node.state
    if isinstance(node, np.random.RandomState):
        return node.get_state(legacy=False)
    if isinstance(node, random.Random):
        return node.getstate()
    if "torch" in sys.modules and isinstance(node, sys.modules["torch"].Generator):
        return node.get_state().tolist()
    return None


def is_tensor(node: Any) -> bool:
    """Whether an object is a tensor of torch."""
    return "torch" in sys.modules and isinstance(node, sys.modules["torch"].Tensor)


def _is_module(node: Any) -> bool:
    return "torch" in sys.modules and isinstance(node, sys.modules["torch"].nn.Module)


def _is_optimizer(node: Any) -> bool:
    return "torch" in sys.modules and isinstance(node, sys.modules["torch"].optim.Optimizer)


def _of_optimizer(node: Any) -> dict[str, Any]:
    """Settings and state by the number of the parameter, since parameters have no name here."""
    parameters = [parameter for group in node.param_groups for parameter in group["params"]]
    found: dict[str, Any] = {}
    for number, group in enumerate(node.param_groups):
        settings = {key: value for key, value in group.items() if key != "params"}
        found.update({f".param_groups[{number}][{key!r}]": value for key, value in settings.items()})
    for number, parameter in enumerate(parameters):
        state = node.state.get(parameter, {})
        found.update({f".state[{number}][{key!r}]": value for key, value in state.items()})
    own = {name for name in vars(node) if name not in ("param_groups", "state", "defaults") and HOOKS not in name}
    return {**found, **{f".{name}": getattr(node, name) for name in sorted(own)}}


def _items(node: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Items by a key that is the same in every process; keys that print an address are numbered."""
    for number, (key, value) in enumerate(node.items()):
        yield (key if isinstance(key, (*PLAIN, tuple)) else number), value


def _cell(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _array_leaf(array: Any, kind: str = "") -> Leaf:
    """The leaf of an array of NumPy, or of a tensor on the CPU, whose type is ``kind``."""
    flat = array.reshape(-1)
    if kind:
        content = flat.view(sys.modules["torch"].uint8).numpy().tobytes()
    elif array.dtype == object:
        content = repr(array.tolist()).encode()
    else:
        content = array.tobytes()
    kind, shape = kind or str(array.dtype), list(array.shape)
    values = ", ".join(_number(each) for each in flat[:3].tolist())
    more = ", ..." if len(flat) > 3 else ""
    return Leaf(_digest(f"{kind}{shape}".encode() + content), f"{kind}{shape} {values}{more}")


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else _shortened(repr(value))


def _restore(old: Any, new: Any, replace: Callable[[Any], None]) -> None:
    """Make ``new`` equal to ``old``: in place where both are arrays, tensors or generators of one kind."""
    if is_tensor(old) and is_tensor(new) and old.shape == new.shape and old.dtype == new.dtype:
        new.data.copy_(old.data)
    elif isinstance(old, np.ndarray) and isinstance(new, np.ndarray) and old.shape == new.shape and new.flags.writeable:
        new[...] = old
    elif type(old) is type(new) and generator_state(old) is not None:
        set_generator_state(new, old)
    else:
        _set_copy(old, replace)


def set_generator_state(generator: Any, source: Any) -> None:
    """Give a random generator the state of another of its kind."""
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = source.bit_generator.state
    elif isinstance(generator, np.random.BitGenerator):
        generator.state = source.state
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(source.get_state())
    elif isinstance(generator, random.Random):
        generator.setstate(source.getstate())
    else:
        generator.set_state(source.get_state())


def _set_copy(value: Any, replace: Callable[[Any], None]) -> None:
    replace(copy.deepcopy(value))


def _set_child(node: Any, key: str, value: Any, *, names: Any = None) -> None:
    """Set the part of an object that `children` calls ``key``.

    :param names: an object that has this part, by default the object itself
    """
    if _is_optimizer(node) and key.startswith((".param_groups", ".state")):
        kind, number, name = key[1:].replace("]", "").split("[")
        if kind == "param_groups":
            node.param_groups[int(number)][name.strip("'")] = value
        else:
            parameters = [parameter for group in node.param_groups for parameter in group["params"]]
            node.state[parameters[int(number)]][name.strip("'")] = value
    elif key.startswith("."):
        setattr(node, key[1:], value)
    elif isinstance(node, Mapping):
        node[_real_key(names if names is not None else node, key)] = value  # type: ignore[index]
    else:
        node[int(key[1:-1])] = value


def _remove_child(node: Any, key: str) -> None:
    if key.startswith("."):
        delattr(node, key[1:])
    elif isinstance(node, Mapping):
        del node[_real_key(node, key)]  # type: ignore[attr-defined]
    else:
        del node[int(key[1:-1])]


def _real_key(mapping: Mapping[Any, Any], key: str) -> Any:
    """The key that `children` shows as ``[key]``."""
    return next(own for own, (shown, _) in zip(mapping, _items(mapping), strict=True) if f"[{shown!r}]" == key)


def _cannot_replace(_value: Any) -> None:
    raise TypeError("the object as a whole cannot be replaced")


def _joined(path: str, key: str) -> str:
    return (path + key).lstrip(".")


def _text(node: Any) -> str:
    leaf = leaf_of(node)
    return leaf.text if leaf is not None else f"{type(node).__name__} of {len(children(node))} parts"


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()
