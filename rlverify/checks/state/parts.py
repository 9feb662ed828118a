"""The parts of an object: which there are, and how one is replaced or removed."""

from __future__ import annotations

import sys
import types
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np

from rlverify.checks.state.leaves import SEQUENCES, function_name, has_objects, is_plain, is_printable, plain_text

HIDDEN: Final = ("_parameters", "_buffers", "_modules")
"""Where a module of torch keeps what has a name of its own."""
HOOKS: Final = "_hooks"
KNOWN: Final = (
    *("param_groups", "state", "defaults"),
    *("_warned_capturable_if_run_uncaptured", "_zero_grad_profile_name", "_opt_called"),
)
"""Attributes of an optimizer that are read otherwise, or that are no state: schedulers note there for a warning."""
METHODS: Final = (types.MethodType, types.BuiltinFunctionType)
FLAG: Final = ".requires_grad"
"""What the part that says whether a tensor is trained adds to the name of the tensor."""
ADDRESSES: Final = 1 << 32
"""Keys from this number on that are multiples of 8 are taken for identities, which differ from run to run."""


def children(node: Any) -> dict[str, Any]:
    """The parts of an object, by attribute (``.name``), key (``['name']``) or index (``[0]``).

    A tensor that is trained is followed by ``requires_grad``, a part of the object that holds the tensor.
    """
    found = _parts(node)
    flags = {name + FLAG: bool(each.requires_grad) for name, each in found.items() if _can_be_trained(each)}
    return {**found, **flags} if flags else found


def _can_be_trained(node: Any) -> bool:
    """Whether an object is a tensor that is trained, or a parameter that could be."""
    torch = sys.modules.get("torch")
    if torch is None or not issubclass(type(node), torch.Tensor):
        return False
    return isinstance(node, torch.nn.Parameter) or (node.is_leaf and bool(node.requires_grad))


def _parts(node: Any) -> dict[str, Any]:
    if isinstance(node, dict) or (isinstance(node, Mapping) and not hasattr(node, "__dict__")):
        return {key: node[own] for key, own in _keys(node).items()} | _own_attributes(node)
    if isinstance(node, SEQUENCES):
        return {f"[{index}]": value for index, value in enumerate(node)} | _own_attributes(node)
    if isinstance(node, np.ndarray):
        return (
            {f"[{', '.join(map(str, place))}]": node[place] for place in np.ndindex(node.shape)}
            if has_objects(node)
            else {}
        )
    if isinstance(node, partial):
        return {".func": node.func, ".args": node.args, ".keywords": node.keywords}
    if isinstance(node, types.ModuleType):
        return {}
    if isinstance(node, types.FunctionType):
        return _of_function(node)
    if isinstance(node, METHODS):
        return _of_method(node)
    if is_optimizer(node):
        return _of_optimizer(node)
    return _own_attributes(node)


def frame(node: Any) -> object:
    """What of an object with parts cannot be changed in place: the length of a list, the name of a function."""
    if isinstance(node, deque):
        return len(node), node.maxlen
    if isinstance(node, list | tuple):
        return len(node)
    if isinstance(node, np.ndarray):
        return node.shape, str(node.dtype)
    if isinstance(node, types.FunctionType | types.MethodType | types.BuiltinFunctionType):
        return function_name(node)
    return None


def setter(node: Any, replace: Callable[[Any], None], names: Any) -> Callable[[str, Any], None]:
    """What gives a part of an object another value, by the name that `children` gives it.

    :param replace: replaces the object itself, for tuples
    :param names: an object that has the part, for keys that `node` lacks
    """
    if not isinstance(node, tuple):
        return partial(_set_part, node, names)
    items = list(node)

    def set_item(key: str, value: Any) -> None:
        if key.endswith(FLAG):
            return _set_part(node, names, key, value)
        items[int(key[1:-1])] = value
        return replace(node._make(items) if hasattr(node, "_make") else type(node)(items))

    return set_item


def _set_part(node: Any, names: Any, key: str, value: Any) -> None:
    if key.endswith(FLAG):
        _parts(node)[key.removesuffix(FLAG)].requires_grad_(value)
    elif is_optimizer(node) and key in _optimizer_keys(names):
        _optimizer_place(node, names, key)[_optimizer_keys(names)[key][-1]] = value
    elif isinstance(node, partial):
        parts = {".func": node.func, ".args": node.args, ".keywords": node.keywords, key: value}
        node.__setstate__((*parts.values(), vars(node)))  # type: ignore[attr-defined]
    elif isinstance(node, types.FunctionType) and key.startswith(".<"):
        dict(zip(node.__code__.co_freevars, node.__closure__ or (), strict=True))[key[2:-1]].cell_contents = value
    elif key.startswith("."):
        _set_attribute(node, key[1:], value)
    elif isinstance(node, Mapping):
        node[_keys(names)[key]] = value  # type: ignore[index]
    else:
        node[_place(node, key)] = value


def remove_part(node: Any, key: str) -> None:
    """Remove the part of an object that `children` calls ``key``."""
    if key.endswith(FLAG):
        _parts(node)[key.removesuffix(FLAG)].requires_grad_(False)
    elif is_optimizer(node) and key in _optimizer_keys(node):
        del _optimizer_place(node, node, key)[_optimizer_keys(node)[key][-1]]
    elif not key.startswith("."):
        del node[_keys(node)[key] if isinstance(node, Mapping) else int(key[1:-1])]
    elif is_module(node):
        delattr(node, key[1:])
    elif key[1:] in getattr(node, "__dict__", {}):
        del vars(node)[key[1:]]
    else:
        object.__delattr__(node, key[1:])


def _set_attribute(node: Any, name: str, value: Any) -> None:
    """Set what `_own_attributes` reads, also in frozen objects and past properties."""
    if is_module(node):
        setattr(node, name, value)
    elif name in _slots(node) or not hasattr(node, "__dict__") or isinstance(node, types.FunctionType):
        object.__setattr__(node, name, value)
    else:
        vars(node)[name] = value


def _own_attributes(node: Any) -> dict[str, Any]:
    """What an object has in its dictionary and its slots; of a module, without hooks."""
    own = getattr(node, "__dict__", {})
    own = {} if own is node else dict(own)
    if is_module(node):
        for name in HIDDEN:
            own.update(own.pop(name, {}))
        own = {name: value for name, value in own.items() if not name.endswith(HOOKS)}
    return {f".{name}": value for name, value in {**own, **_slots(node)}.items()}


def _slots(node: Any) -> dict[str, Any]:
    """The slots of an object that are filled, read past whatever its class does on access."""
    found = {}
    for kind in type(node).__mro__:
        members = kind.__dict__ if "__slots__" in kind.__dict__ else {}
        for name, member in members.items():
            if isinstance(member, types.MemberDescriptorType):
                try:
                    found[name] = member.__get__(node)
                except AttributeError:  # not filled
                    continue
    return found


def _of_function(node: types.FunctionType) -> dict[str, Any]:
    """What a function keeps: variables of its closure, objects as default values, attributes."""
    cells = zip(node.__code__.co_freevars, node.__closure__ or (), strict=True)
    found = {f".<{name}>": _cell(cell) for name, cell in cells}
    defaults = {".__defaults__": node.__defaults__ or (), ".__kwdefaults__": node.__kwdefaults__ or {}}
    for name, values in defaults.items():
        if not all(map(is_plain, values.values() if isinstance(values, dict) else values)):
            found[name] = values
    return {**found, **{f".{name}": value for name, value in vars(node).items() if name != "__wrapped__"}}


def _of_method(node: Any) -> dict[str, Any]:
    owner = node.__self__
    return {} if owner is None or isinstance(owner, types.ModuleType | type) else {".__self__": owner}


def is_module(node: Any) -> bool:
    """Whether an object is a module of torch."""
    return "torch" in sys.modules and isinstance(node, sys.modules["torch"].nn.Module)


def is_optimizer(node: Any) -> bool:
    """Whether an object is an optimizer of torch."""
    return "torch" in sys.modules and isinstance(node, sys.modules["torch"].optim.Optimizer)


def _of_optimizer(node: Any) -> dict[str, Any]:
    """Settings and state by the number of the parameter, since parameters have no name here."""
    found = {key: _optimizer_place(node, node, key)[name] for key, (_, _, name) in _optimizer_keys(node).items()}
    own = {name for name in vars(node) if name not in KNOWN and HOOKS not in name}
    return {**found, **{f".{name}": getattr(node, name) for name in sorted(own)}}


def _optimizer_keys(node: Any) -> dict[str, tuple[str, int, Any]]:
    """By the name of a part: where it is (``param_groups`` or ``state``), number of group or parameter, and key."""
    found: dict[str, tuple[str, int, Any]] = {}
    for number, group in enumerate(node.param_groups):
        for name in group.keys() - {"params"}:
            found[f".param_groups[{number}][{name!r}]"] = ("param_groups", number, name)
    for number, parameter in enumerate(_parameters(node)):
        for name in node.state.get(parameter, {}):
            found[f".state[{number}][{name!r}]"] = ("state", number, name)
    return dict(sorted(found.items()))


def _optimizer_place(node: Any, names: Any, key: str) -> Any:
    """The mapping of an optimizer that holds the part which ``names`` calls ``key``."""
    kind, number, _ = _optimizer_keys(names)[key]
    return node.param_groups[number] if kind == "param_groups" else node.state[_parameters(node)[number]]


def _parameters(node: Any) -> list[Any]:
    return [parameter for group in node.param_groups for parameter in group["params"]]


def order_of(node: Any, places: Mapping[int, str]) -> dict[str, str]:
    """The parameters of an optimizer, which have no name here, by the places at which they were found."""
    found = {
        f".param_groups[{number}]['params']": [places.get(id(each), "") for each in group["params"]]
        for number, group in enumerate(node.param_groups)
    }
    return {key: ", ".join(names) for key, names in found.items() if all(names)}


def set_order(node: Any, source: Any, twins: Mapping[int, Any]) -> None:
    """Give an optimizer the order of parameters of another one; what it keeps by their number stays as it is."""
    states = [node.state.pop(each, None) for each in _parameters(node)]
    for group, other in zip(node.param_groups, source.param_groups, strict=True):
        group["params"] = [twins[id(each)] for each in other["params"]]
    for parameter, state in zip(_parameters(node), states, strict=True):
        if state is not None:
            node.state[parameter] = state


def _keys(node: Any) -> dict[str, Any]:
    """The keys of a mapping by a text that is the same in every process; addresses and what prints one are numbered."""
    found: dict[str, Any] = {}
    for number, key in enumerate(node):
        is_text = is_printable(key) and not (type(key) is int and key >= ADDRESSES and key % 8 == 0)
        text = (plain_text(key) if is_plain(key) else repr(key)) if is_text else f"#{number}"
        found[f"[{text}]" if f"[{text}]" not in found else f"[#{number}]"] = key
    return found


def _place(node: Any, key: str) -> Any:
    numbers = tuple(map(int, key[1:-1].split(", "))) if len(key) > 2 else ()
    return numbers if isinstance(node, np.ndarray) else numbers[0]


def _cell(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
