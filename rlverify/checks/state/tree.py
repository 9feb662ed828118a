"""The state of any Python object as a tree of paths and leaves, read without its help.

`walk` gives a digest of every leaf that can be reached, for comparing states in different processes. `differences`
compares two live objects and can copy a leaf from one to the other, for finding out which part of a state matters.

Locks, files and objects of compiled code without attributes are opaque: they count by the name of their type, and
what they hold inside is not seen. Neither are attributes of classes, variables of modules, and gradients (``.grad``).
"""

from __future__ import annotations

import copy
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from rlverify.checks.state.leaves import (
    Leaf,
    generator_state,
    is_tensor,
    object_leaf,
    set_generator_state,
    shortened,
    unreadable_leaf,
    value_leaf,
)
from rlverify.checks.state.parts import children as parts_of
from rlverify.checks.state.parts import frame, is_optimizer, order_of, remove_part, set_order, setter
from rlverify.records.attempts import Crash, attempt

Places = tuple[dict[int, str], dict[int, str]]
"""The paths of the parts of two objects, by identity."""


@dataclass(frozen=True)
class Difference:
    """A path at which two objects differ.

    :param path: from the object to the leaf, such as ``env.envs[0].state``
    """

    path: str
    first: str
    second: str
    restore: Callable[[], None]


def walk(root: Any) -> dict[str, Leaf]:
    """Every leaf that can be reached from an object, by its shortest path.

    An object that can be reached by several paths counts once.
    """
    everything = list(reached(root))
    found = {path: leaf for path, _, leaf in everything if leaf is not None}
    places = {id(node): path for path, node, leaf in everything if leaf is None or leaf.mutable}
    for optimizer in (node for _, node, leaf in everything if leaf is None and is_optimizer(node)):
        order = order_of(optimizer, places).items()
        found |= {_joined(places[id(optimizer)], key): Leaf(f"order:{names}", shortened(names)) for key, names in order}
    return found


def reached(
    root: Any, is_closed: Callable[[Any], bool] = lambda _node: False
) -> Iterator[tuple[str, Any, Leaf | None]]:
    """Everything that can be reached from an object: its shortest path, itself, and the leaf that it is, if it is one.

    A value that cannot change comes at each of its paths.

    :param is_closed: whether the parts of an object are left out
    """
    seen: dict[int, Any] = {}
    waiting = deque([("", root)])
    while waiting:
        path, node = waiting.popleft()
        if id(node) in seen:
            continue
        leaf = leaf_of(node)
        if leaf is None or leaf.mutable:
            seen[id(node)] = node  # kept alive, so that no other object gets its identity
        yield path, node, leaf
        if leaf is None and not is_closed(node):
            waiting.extend((_joined(path, key), child) for key, child in children(node).items())


def differences(first: Any, second: Any) -> list[Difference]:
    """Where two objects differ, by shortest path; the second is the one that `Difference.restore` changes."""
    seen: dict[tuple[int, int], Any] = {}
    twins: dict[int, Any] = {}
    places: Places = {}, {}
    found = list(_differences(first, second, seen, twins, places))
    for old, new in seen.values():
        if is_optimizer(old):  # its groups can hold the same parameters in another order
            held, holds = order_of(old, places[0]), order_of(new, places[1])
            for key in [key for key in held if holds.get(key, held[key]) != held[key]]:
                place, restore = _joined(places[0][id(old)], key), partial(set_order, new, old, twins)
                found.append(Difference(place, held[key], holds[key], restore))
    return found


def _differences(
    first: Any, second: Any, seen: dict[tuple[int, int], Any], twins: dict[int, Any], places: Places
) -> Iterator[Difference]:
    waiting: deque[tuple[str, Any, Any, Callable[[Any], None]]] = deque([("", first, second, _cannot_replace)])
    while waiting:
        path, old, new, replace = waiting.popleft()
        pair = id(old), id(new)
        if old is new or pair in seen:
            continue
        leaf, other = leaf_of(old), leaf_of(new)
        has_parts = leaf is None and other is None and _is_one_class(old, new) and frame(old) == frame(new)
        if has_parts or (leaf is not None and leaf.mutable):
            seen[pair] = old, new  # kept alive, so that no other objects get their identities
        if has_parts or (leaf is not None and leaf.mutable and _fits(old, new)):
            twins.setdefault(id(old), new)
            places[0][id(old)] = places[1][id(new)] = path
        if not has_parts:
            if leaf is None or other is None or leaf.digest != other.digest:
                yield Difference(path, _text(old), _text(new), partial(_restore, old, new, replace, twins))
            continue
        mine, theirs, set_part = children(old), children(new), setter(new, replace, old)
        for key in {**mine, **theirs}:
            place, own = _joined(path, key), partial(set_part, key)
            if key in mine and key in theirs:
                waiting.append((place, mine[key], theirs[key], own))
            elif key in mine:
                yield Difference(place, _text(mine[key]), "", partial(_set_copy, mine[key], own, twins))
            else:
                yield Difference(place, "", _text(theirs[key]), partial(remove_part, new, key))


def find(root: Any, path: str) -> tuple[Any, Callable[[Any], None]]:
    """The value at a path that `walk` gives, and what replaces it there."""
    node, replace, place = root, _cannot_replace, ""
    for owner, key, child in way(root, path):
        node, replace, place = child, partial(setter(owner, replace, owner), key), _joined(place, key)
    if place != path:
        raise KeyError(path)
    return node, replace


def way(root: Any, path: str) -> Iterator[tuple[Any, str, Any]]:
    """Each object along a path, and the name and value of its part on it, as far as there are such parts."""
    node, place = root, ""
    while place != path:
        inside = {key: child for key, child in children(node).items() if _leads(_joined(place, key), path)}
        if not inside:
            return
        key = max(inside, key=len)
        yield node, key, inside[key]
        node, place = inside[key], _joined(place, key)


def _leads(start: str, path: str) -> bool:
    return path.startswith(start) and path[len(start) : len(start) + 1] in ("", ".", "[")


def leaves_below(root: Any, path: str) -> list[str]:
    """The path itself if it is that of a leaf, and otherwise those of all leaves that belong to it; empty for none."""
    found = attempt(lambda: find(root, path)[0])
    if isinstance(found, Crash):
        return [each for each in walk(root) if is_below(each, path)]
    if leaf_of(found) is not None:
        return [path]
    return [f"{path}{'' if each.startswith('[') else '.'}{each}" for each in walk(found)]


def put(root: Any, path: str, value: Any) -> None:
    """Give the leaf at a path another value; in place where both are arrays, tensors or generators of one kind."""
    node, replace = find(root, path)
    _restore(value, node, replace, {})


def digests(root: Any) -> dict[str, str]:
    """Return the digest of every leaf that can be reached from an object, by its path."""
    return {path: leaf.digest for path, leaf in walk(root).items()}


def unequal(first: Mapping[str, object], second: Mapping[str, object]) -> list[str]:
    """Return the keys of two tables whose values differ, and those that only one has."""
    return [key for key in {**first, **second} if first.get(key) != second.get(key)]


def leaf_of(node: Any) -> Leaf | None:
    """The leaf that an object is, or None if it has parts."""
    leaf = attempt(lambda: value_leaf(node))
    if isinstance(leaf, Crash):
        return unreadable_leaf(node)
    if leaf is not None or isinstance(node, dict | list | tuple | deque):
        return leaf
    parts = attempt(lambda: parts_of(node))
    if isinstance(parts, Crash):
        return unreadable_leaf(node)
    return None if parts else object_leaf(node)


def children(node: Any) -> dict[str, Any]:
    """The parts of an object, by attribute (``.name``), key (``['name']``) or index (``[0]``); none if it raises."""
    found = attempt(lambda: parts_of(node))
    return {} if isinstance(found, Crash) else found


def _is_one_class(old: Any, new: Any) -> bool:
    """Whether two objects are of one class; a class inside of a factory is another one in each call."""
    first, second = type(old), type(new)
    return first is second or (first.__module__, first.__qualname__) == (second.__module__, second.__qualname__)


def _fits(old: Any, new: Any) -> bool:
    """Whether the value of a leaf can be copied into another in place."""
    if is_tensor(old) and is_tensor(new):
        return bool(old.shape == new.shape and old.dtype == new.dtype and _is_dense(old) and _is_dense(new))
    if isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
        plain = not old.dtype.hasobject and new.flags.writeable
        return plain and old.shape == new.shape and old.dtype == new.dtype
    return type(old) is type(new) and generator_state(old) is not None


def _is_dense(tensor: Any) -> bool:
    return str(tensor.layout) == "torch.strided"


def _restore(old: Any, new: Any, replace: Callable[[Any], None], twins: dict[int, Any]) -> None:
    """Make ``new`` equal to ``old``: in place where both are arrays, tensors or generators of one kind."""
    if not _fits(old, new):
        _set_copy(old, replace, twins)
    elif is_tensor(old):
        new.data.copy_(old.data)
    elif isinstance(old, np.ndarray):
        new[...] = old
    else:
        set_generator_state(new, old)


def _set_copy(value: Any, replace: Callable[[Any], None], twins: dict[int, Any]) -> None:
    """Replace a value by a copy that refers to counterparts (``twins``) instead of the original objects."""
    replace(value.detach().clone() if is_tensor(value) and not value.is_leaf else copy.deepcopy(value, twins))


def _cannot_replace(_value: Any) -> None:
    raise TypeError("the object as a whole cannot be replaced")


def _joined(path: str, key: str) -> str:
    return (path + key).lstrip(".") if not path else path + key


def _text(node: Any) -> str:
    leaf = leaf_of(node)
    return leaf.text if leaf is not None else f"{type(node).__name__} of {len(children(node))} parts"


NAME: Final = re.compile(r"""\[(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^]'"])*\]|\.?[^.[]+""")


def names_of(path: str) -> list[str]:
    """The attributes, keys and indices of a path, one by one."""
    return NAME.findall(path) or [path]


def is_below(path: str, start: str) -> bool:
    """Whether a path is that of an object or of a part of it."""
    names = names_of(start) if start else []
    return names_of(path)[: len(names)] == names
