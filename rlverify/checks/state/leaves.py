"""The ends of paths in a state tree: values that are compared as a whole, each with a digest."""

from __future__ import annotations

import datetime
import hashlib
import random
import sys
import types
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import PurePath
from socket import socket
from subprocess import Popen
from typing import Any, Final
from uuid import UUID

import numpy as np

NUMBERS: Final = (bool, int, float, complex, str, bytes)
TIMES: Final = (datetime.date, datetime.time, datetime.timedelta)
PLAIN: Final = (
    type(None), *NUMBERS, bytearray, np.generic, np.dtype, Enum, type, range, slice, PurePath, *TIMES,
    Decimal, Fraction, UUID,
)  # fmt: skip
FUNCTIONS: Final = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)
HANDLES: Final = (BaseProcess, Connection, Popen, socket)
"""What the operating system numbers: the numbers are no state, and what is behind them cannot be seen."""
SEQUENCES: Final = (list, tuple, deque)
SHOWN: Final = 60
"""Characters of a value that are shown."""
LONG: Final = 1000
"""Characters of a text that a digest keeps, and items of a list of numbers that are leaves of their own."""


@dataclass(frozen=True)
class Leaf:
    """The end of a path.

    :param digest: equal for equal values; of opaque objects, the name of their type
    :param opaque: whether the object can hold more than its digest says
    :param mutable: whether its value can change in place, so that two paths to it are one
    """

    digest: str
    text: str
    opaque: bool = False
    mutable: bool = False


def value_leaf(node: Any) -> Leaf | None:
    """The leaf of a plain value, an array, a tensor, a random generator or a set; None for other objects."""
    if is_plain(node):
        return _plain_leaf(node)
    if isinstance(node, np.ndarray) and not has_objects(node):
        return _array_leaf(node)
    if is_tensor(node):
        return _tensor_leaf(node)
    if isinstance(node, HANDLES):
        name = f"{type(node).__module__}.{type(node).__qualname__}"
        return Leaf(f"handle:{name}", name, opaque=True)
    state = generator_state(node)
    if state is not None:
        digest = _digest(repr(_listed(state)).encode())
        return Leaf(digest, f"generator {digest[:8]}", mutable=True)
    if isinstance(node, set | frozenset):
        return _set_leaf(node)
    if isinstance(node, SEQUENCES) and len(node) > LONG and all(type(each) in (bool, int, float) for each in node):
        digest = _digest(repr(list(node)).encode())
        return Leaf(f"{type(node).__name__}:{digest}", f"{type(node).__name__} of {len(node)} numbers")
    return None


def object_leaf(node: Any) -> Leaf:
    """The leaf of an object that has no parts: its name, or that of its type."""
    if isinstance(node, types.ModuleType):
        return Leaf(f"module:{node.__name__}", node.__name__)
    if isinstance(node, FUNCTIONS):
        return Leaf(f"function:{function_name(node)}", function_name(node))
    name = f"{type(node).__module__}.{type(node).__qualname__}"
    return Leaf(f"object:{name}", name, opaque=not hasattr(node, "__dict__"))


def unreadable_leaf(node: Any) -> Leaf:
    """The leaf of an object that raises an error when it is read."""
    name = f"{type(node).__module__}.{type(node).__qualname__}"
    return Leaf(f"object:{name}", f"{name}, which cannot be read", opaque=True)


def function_name(node: Any) -> str:
    """Module and name of a function or method."""
    return f"{getattr(node, '__module__', '')}.{getattr(node, '__qualname__', node)}"


def is_plain(node: Any) -> bool:
    """Whether an object is a value without parts that its text describes in full."""
    if isinstance(node, PLAIN):
        return True
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(node, torch.dtype | torch.device)


def is_tensor(node: Any) -> bool:
    """Whether an object is a tensor of torch."""
    return "torch" in sys.modules and isinstance(node, sys.modules["torch"].Tensor)


def in_doubles(numbers: Any) -> Any:
    """An array of a number, an array, or a tensor with or without gradient."""
    return np.asarray(numbers.detach().cpu() if is_tensor(numbers) else numbers, dtype=np.float64)


def has_objects(array: Any) -> bool:
    """Whether an array of NumPy holds Python objects, which are parts of their own."""
    return bool(array.dtype.hasobject and array.size)


def is_printable(node: Any) -> bool:
    """Whether the text of a key is the same in every process."""
    return all(map(is_printable, node)) if isinstance(node, tuple) else is_plain(node)


def generator_state(node: Any) -> Any:
    """The state of a random generator of NumPy, torch or Python; None for other objects."""
    if isinstance(node, np.random.Generator):
        return node.bit_generator.state
    if isinstance(node, np.random.BitGenerator):
        return node.state
    if isinstance(node, np.random.RandomState):
        return node.get_state(legacy=False)
    if isinstance(node, random.Random) and not isinstance(node, random.SystemRandom):
        return node.getstate()
    if "torch" in sys.modules and isinstance(node, sys.modules["torch"].Generator):
        return node.get_state().tolist()
    return None


def set_generator_state(generator: Any, source: Any) -> None:
    """Give a random generator the state of another of its kind."""
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = source.bit_generator.state
    elif isinstance(generator, np.random.BitGenerator):
        generator.state = source.state
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(source.get_state(legacy=False))
    elif isinstance(generator, random.Random):
        generator.setstate(source.getstate())
    else:
        generator.set_state(source.get_state())


def shortened(text: str) -> str:
    """A text for people, cut where it is long."""
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def _plain_leaf(node: Any) -> Leaf:
    text = plain_text(node)
    kept = text if len(text) <= LONG else f"{text[:SHOWN]}... {_digest(text.encode())}"
    return Leaf(f"{type(node).__name__}:{kept}", shortened(text))


def plain_text(node: Any) -> str:
    """The text of a plain value, the same in every process, whatever its class prints."""
    if isinstance(node, Enum):
        return f"{type(node).__qualname__}.{node.name or node.value}"
    if isinstance(node, type):
        return f"{node.__module__}.{node.__qualname__}"
    base = next((kind for kind in NUMBERS if isinstance(node, kind)), None)
    return base.__repr__(node) if base is not None else repr(node)


def _array_leaf(array: np.ndarray[Any, Any]) -> Leaf:
    flat = np.ascontiguousarray(array).reshape(-1)
    content: Any = flat.view(np.ndarray).view(np.uint8) if flat.nbytes else b""
    mask = np.ma.getmaskarray(array).tobytes() if isinstance(array, np.ma.MaskedArray) else b""
    return _of_numbers(f"{array.dtype}", array.shape, content, flat[:3].tolist(), len(flat) > 3, mask)


def _tensor_leaf(tensor: Any) -> Leaf:
    torch = sys.modules["torch"]
    if tensor.is_meta:
        text = f"{tensor.dtype}{list(tensor.shape)} without values"
        return Leaf(_digest(text.encode()), text, opaque=True, mutable=True)
    dense = tensor.detach() if tensor.layout is torch.strided else tensor.detach().to_dense()
    flat = dense.cpu().resolve_conj().resolve_neg().reshape(-1).contiguous()
    content: Any = flat.view(torch.uint8).numpy() if flat.numel() else b""
    return _of_numbers(f"{tensor.dtype}", tensor.shape, content, flat[:3].tolist(), len(flat) > 3)


def _of_numbers(kind: str, shape: Iterable[int], content: Any, first: list[Any], more: bool, mask: bytes = b"") -> Leaf:
    head = f"{kind}{list(shape)}"
    values = (
        ", ".join(f"{each:.4g}" if isinstance(each, float) else shortened(repr(each)) for each in first)
        + ", ..." * more
    )
    return Leaf(_digest(head.encode(), content, mask), f"{head} {values}", mutable=True)


def _set_leaf(node: set[Any] | frozenset[Any]) -> Leaf:
    kind = type(node).__name__
    if not all(map(is_printable, node)):
        return Leaf(f"{kind}:{len(node)} objects", f"{kind} of {len(node)} objects", opaque=True)
    text = f"{{{', '.join(sorted(map(repr, node)))}}}"
    return Leaf(f"{kind}:{text}", shortened(text))


def _listed(state: Any) -> Any:
    """The state of a generator without arrays, whose text NumPy may cut."""
    if isinstance(state, dict):
        return {name: _listed(value) for name, value in state.items()}
    return state.tolist() if isinstance(state, np.ndarray) else state


def _digest(*contents: Any) -> str:
    found = hashlib.blake2b(digest_size=8)
    for content in contents:
        found.update(content)
    return found.hexdigest()
