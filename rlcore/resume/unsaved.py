"""Names what of a model no file holds: where it differs from a model that is built of the same settings."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import BaseBuffer
from stable_baselines3.common.distributions import Distribution
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor, nn

SEPARATE: Final = (VecEnv, gym.Env, spaces.Space, BaseBuffer, Logger, Distribution, torch.distributions.Distribution)
"""What is saved by itself, and what every forward pass makes again."""
FUNCTIONS: Final = (type, FunctionType, MethodType, BuiltinFunctionType, ModuleType)
PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
LEAVES: Final = (*PLAIN, *FUNCTIONS, np.generic, set, frozenset)
OF_THE_RUN: Final = {"params", "lr", "initial_lr", "seed"}
"""Entries of an optimizer's groups that its saved state has."""
OF_OPTIMIZERS: Final = {"state", "param_groups", "defaults"}
OF_MODULES: Final = frozenset(vars(nn.Module()))
Difference = tuple[str, str, str]


def differences(model: Mapping[str, Any], built: Mapping[str, Any], held: Collection[str]) -> Iterator[Difference]:
    """Yield the path of each difference between attributes of two models, and what is there in either.

    Compared are classes and order of modules, hooks, plain attributes, random generators, options of optimizers, and
    tensors outside of the state dict. The values that a file holds are left out.

    :param held: paths whose tensors a file holds
    """
    yield from _Comparison(frozenset(held)).parts(model, built, "", is_held=False)


class _Comparison:
    def __init__(self, held: frozenset[str]) -> None:
        self.held = held
        self.seen: dict[int, int] = {}
        self.stored: set[int] = set()

    def of(self, one: Any, other: Any, path: str, *, is_held: bool) -> Iterator[Difference]:
        """Compare two objects, and all that they refer to."""
        is_held |= path in self.held
        is_value = path in self.held and not isinstance(one, nn.Module | torch.optim.Optimizer)
        if one is other or is_value or isinstance(one, SEPARATE) or self._is_derived(one):
            return
        if id(one) in self.seen:
            if self.seen[id(one)] != id(other):
                yield path, "shared with another part", "one of its own"
        elif not _are_alike(type(one), type(other)):
            yield path, _described(one), _described(other)
        elif isinstance(one, (Tensor, np.ndarray, *LEAVES)):
            yield from _leaf(one, other, path, is_held)
        else:
            self.seen[id(one)] = id(other)
            if isinstance(one, nn.Module):
                yield from self._modules(one, other, path, is_held)
            elif isinstance(one, torch.optim.Optimizer):
                yield from self._optimizers(one, other, path, is_held)
            else:
                mine, theirs = _parts(one), _parts(other)
                yield from self.parts(mine, theirs, path, is_held=is_held)
                if not mine and (text := repr(one)) != repr(other) and " at 0x" not in text:  # such as a counter
                    yield path, text[:60], repr(other)[:60]

    def _is_derived(self, value: Any) -> bool:
        """Return whether a tensor was computed from others, or is a view of one that was compared."""
        if not isinstance(value, Tensor) or isinstance(value, nn.Parameter):
            return False
        return value.grad_fn is not None or (value.numel() > 0 and value.data_ptr() in self.stored)

    def parts(
        self, one: Mapping[str, Any], other: Mapping[str, Any], path: str, *, is_held: bool
    ) -> Iterator[Difference]:
        """Compare what two objects refer to, by what comes after their path."""
        for name in {**one, **other}:
            if name in one and name in other:
                yield from self.of(one[name], other[name], f"{path}{name}", is_held=is_held)
            elif not _is_ours(one.get(name, other.get(name))):
                texts = [_described(each[name]) if name in each else "missing" for each in (one, other)]
                yield f"{path}{name}", texts[0], texts[1]

    def _modules(self, one: nn.Module, other: nn.Module, path: str, is_held: bool) -> Iterator[Difference]:
        names = [", ".join(["the modules", *each._modules]) for each in (one, other)]
        if names[0] != names[1]:
            yield path, names[0], names[1]
            return
        for key in sorted(OF_MODULES):
            if key.endswith("_hooks") and (hooks := _hooks(vars(one)[key])) != _hooks(vars(other)[key]):
                yield f"{path}.{key}", hooks, _hooks(vars(other)[key])
        unsaved = one._non_persistent_buffers_set
        for name in ("_parameters", "_buffers"):
            inside, there = vars(one)[name], vars(other)[name]
            if list(inside) != list(there):
                yield path, f"tensors {', '.join(inside)}", f"tensors {', '.join(there)}"
                return
            for key, tensor in inside.items():
                yield from self._tensors(tensor, there[key], f"{path}.{key}", is_held and key not in unsaved)
        for key, module in one._modules.items():
            yield from self.of(module, other._modules[key], f"{path}.{key}", is_held=is_held)
        yield from self.parts(_attributes(one), _attributes(other), f"{path}.", is_held=False)

    def _tensors(self, one: Any, other: Any, path: str, is_held: bool) -> Iterator[Difference]:
        yield from self.of(one, other, path, is_held=is_held)
        if isinstance(one, Tensor):
            self.seen[id(one)] = id(other)  # an LSTM has lists of them too
            self.stored.add(one.data_ptr())
        if isinstance(one, nn.Parameter):
            if one.requires_grad != other.requires_grad and not path.startswith("policy."):  # whose file has it
                yield f"{path}.requires_grad", str(one.requires_grad), str(other.requires_grad)
            for key in ("_backward_hooks", "_post_accumulate_grad_hooks"):
                if (hooks := _hooks(getattr(one, key))) != _hooks(getattr(other, key, None)):
                    yield f"{path}.{key}", hooks, _hooks(getattr(other, key, None))

    def _optimizers(self, one: Any, other: Any, path: str, is_held: bool) -> Iterator[Difference]:
        groups = [[len(group["params"]) for group in each.param_groups] for each in (one, other)]
        if groups[0] != groups[1]:
            yield path, f"groups of {groups[0]} parameters", f"groups of {groups[1]} parameters"
            return
        for number, (group, there) in enumerate(zip(one.param_groups, other.param_groups, strict=True)):
            options, like = ({k: v for k, v in each.items() if k not in OF_THE_RUN} for each in (group, there))
            yield from self.parts(_indexed(options), _indexed(like), f"{path}.param_groups[{number}]", is_held=is_held)
            pairs = zip(group["params"], there["params"], strict=True)
            if any(self.seen.get(id(mine), id(its)) != id(its) for mine, its in pairs):
                yield f"{path}.param_groups[{number}]['params']", "in another order", "as the constructor gave them"
        if not type(one).__module__.startswith("rlcore."):
            mine, theirs = ({n: v for n, v in vars(each).items() if n not in OF_OPTIMIZERS} for each in (one, other))
            for name in [each for each in mine if each.endswith("_hooks")]:
                if _hooks(mine.pop(name)) != _hooks(theirs.pop(name, None)):
                    yield f"{path}.{name}", _hooks(vars(one)[name]), _hooks(vars(other).get(name))
            yield from self.parts(mine, theirs, f"{path}.", is_held=is_held)
        if one.state and not is_held:
            yield f"{path}.state", f"of {len(one.state)} parameters", "empty"


def _leaf(one: Any, other: Any, path: str, is_held: bool) -> Iterator[Difference]:
    """Compare two values of one type that refer to no other values."""
    if isinstance(one, Tensor | np.ndarray):
        if one.shape != other.shape:
            yield path, _described(one), _described(other)
        elif not (is_held or _equal(one, other)):
            yield path, f"{_described(one)} that has changed", "as it was made"
    elif isinstance(one, FUNCTIONS):
        codes = [getattr(getattr(each, "__func__", each), "__code__", each) for each in (one, other)]
        if codes[0] != codes[1]:
            yield path, f"{_described(one)} {getattr(one, '__qualname__', '')}".rstrip(), "another"
    elif one != other and (one == one or other == other):
        yield path, _described(one), _described(other)


def _are_alike(one: type, other: type) -> bool:
    """Return whether two classes are the same, or alike, as those that a parametrization makes for each layer."""
    names = [(each.__module__, each.__qualname__, each.__bases__) for each in (one, other)]
    return one is other or names[0] == names[1]


def _attributes(module: nn.Module) -> dict[str, Any]:
    """Return what is set on a module and is neither torch's nor a module, such as an alias of one."""
    return {name: each for name, each in vars(module).items() if name not in OF_MODULES}


def _parts(value: Any) -> dict[str, Any]:
    """Return what an object refers to, by what comes after its own path."""
    if isinstance(value, np.random.Generator):
        value = value.bit_generator
    if isinstance(value, np.random.BitGenerator | np.random.RandomState):
        return {".state": repr(value.state if isinstance(value, np.random.BitGenerator) else value.get_state())}
    if isinstance(value, torch.Generator):
        return {".state": value.get_state()}
    if isinstance(value, random.Random):
        return {".state": repr(value.getstate())}
    if isinstance(value, list | tuple | deque):
        return {f"[{index}]": each for index, each in enumerate(value)}
    if isinstance(value, Mapping):
        return _indexed(value)
    if isinstance(value, partial):
        return {".func": value.func, ".args": value.args, ".keywords": value.keywords}
    slots = [name for kind in type(value).__mro__ for name in vars(kind).get("__slots__", ()) if hasattr(value, name)]
    return {f".{name}": each for name, each in ({n: getattr(value, n) for n in slots} | _vars(value)).items()}


def _indexed(entries: Mapping[Any, Any]) -> dict[str, Any]:
    return {f"[{key!r}]": each for key, each in entries.items()}


def _vars(value: Any) -> dict[str, Any]:
    return vars(value) if hasattr(value, "__dict__") else {}


def _equal(one: Any, other: Any) -> bool:
    arrays = [each.detach().cpu().numpy() if isinstance(each, Tensor) else each for each in (one, other)]
    return bool(arrays[0].dtype == arrays[1].dtype and arrays[0].tobytes() == arrays[1].tobytes())


def _hooks(hooks: Any) -> str:
    """Return the names of hooks, without our own."""
    functions = [getattr(each, "func", each) for each in (hooks or {}).values()]
    own = [each for each in functions if not _is_ours(each)]
    return ", ".join(getattr(each, "__qualname__", type(each).__name__) for each in own) or "none"


def _is_ours(value: object) -> bool:
    """Return whether a function is rlcore's, which measures gradients and remembers generators while a model trains."""
    return isinstance(value, FunctionType | MethodType) and value.__module__.startswith("rlcore.")


def _described(value: object) -> str:
    if isinstance(value, Tensor | np.ndarray):
        return f"a {type(value).__name__} of shape {tuple(value.shape)}"
    if isinstance(value, type):
        return value.__qualname__
    text = repr(value) if isinstance(value, (*PLAIN, np.generic)) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
