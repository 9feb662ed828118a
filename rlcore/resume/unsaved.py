"""Names what of a model no file holds: where it differs from a model that is built of the same settings."""

from __future__ import annotations

import random
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from enum import Enum
from functools import partial
from pathlib import PurePath
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.distributions import Distribution
from stable_baselines3.common.policies import BasePolicy
from torch import Tensor, nn

from rlcore.envs.resumable import SupportsState

SEPARATE: Final = (
    *("env", "_logger"),
    *("value_scale", "entropy_schedule", "kl_penalty", "variance_gradient_scaler"),  # of DistributionalPPO
)
"""Attributes of a model that are saved by themselves."""
FUNCTIONS: Final = (FunctionType, MethodType, BuiltinFunctionType)
PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
LEAVES: Final = (*PLAIN, type, ModuleType, np.generic, set, frozenset, spaces.Space, PurePath)
BUFFERS: Final = ("replay_buffer", "rollout_buffer")
SETTINGS: Final = (bool, int, float, str, Enum, partial, *FUNCTIONS)
"""What is compared of a model's buffers, whose arrays are saved by themselves or filled again."""
OF_BUFFERS: Final = {"pos", "full", "buffer_size", "generator_ready", "pad", "pad_and_flatten"}
"""What they count and make for themselves."""
OF_DISTRIBUTIONS: Final = {
    *("distribution", "distributions", "gaussian_actions", "_latent_sde"),
    *("weights_dist", "exploration_mat", "exploration_matrices"),
}
"""What every forward pass, or rollout, makes again in a distribution of Stable-Baselines3."""
OF_THE_RUN: Final = {"params", "lr", "initial_lr", "seed"}
"""Entries of an optimizer's groups that its saved state has."""
OF_OPTIMIZERS: Final = {"state", "param_groups", "defaults", "_opt_called", "_warned_capturable_if_run_uncaptured"}
OF_MODULES: Final = frozenset(vars(nn.Module()))
OF_PYTHON: Final = {"__dict__", "__slots__"}
Difference = tuple[str, str, str]
Parts = Mapping[str, Any]


def differences(
    model: Parts, built: Parts, held: Set[str] = frozenset(), owners: tuple[object, object] = (None, None)
) -> Iterator[Difference]:
    """Yield the path of each difference between attributes of two models, and what is there in either.

    Compared are classes and order of modules, hooks, plain attributes, random generators, options of optimizers, what
    functions refer to, and tensors outside of the state dict. The values that a file holds are left out.

    :param held: paths whose tensors a file holds; they are compared first, as others may refer to them
    :param owners: the models
    """
    first, comparison = sorted(model, key=lambda name: name not in held), _Comparison(held, owners)
    for name in held & built.keys() & model.keys():
        comparison.add_saved(model[name], built[name])
    yield from comparison.parts({n: model[n] for n in first}, built, "")
    for path, mine, its in comparison.trained:
        if (seen := comparison.seen.get(id(mine), (mine, None))[1]) is not its:
            words = "in no module" if seen is None else "in another order"
            yield path, f"{words}, {_described(mine)}", "as the constructor gave it"


@contextmanager
def acting(policy: BasePolicy) -> Iterator[None]:
    """Set the modules that a rollout switches to evaluation, as it does when it begins."""
    before = {module: module.training for module in policy.modules()}
    policy.set_training_mode(False)
    try:
        yield
    finally:
        for module, flag in before.items():
            module.training = flag


class _Comparison:
    def __init__(self, held: Set[str], owners: tuple[object, object]) -> None:
        self.held = held
        self.seen = {id(owners[0]): owners}  # both, so that no id comes again
        self.saved: dict[int, tuple[int, int]] = {}  # of state dicts: address in the other model, and size, by address
        self.trained: list[tuple[str, Tensor, Tensor]] = []  # parameters of optimizers, which all have to be seen
        self.separate = [each for name in SEPARATE if (each := getattr(owners[0], name, None)) is not None]

    def add_saved(self, one: Any, other: Any) -> None:
        """Leave the tensors of a module's state dict out, as a file has them."""
        if isinstance(one, nn.Module) and isinstance(other, nn.Module):
            there = other.state_dict()
            for name, tensor in one.state_dict().items():
                if isinstance(tensor, Tensor) and isinstance(there.get(name), Tensor):
                    self.saved.setdefault(tensor.data_ptr(), (there[name].data_ptr(), tensor.nbytes))

    def of(self, one: Any, other: Any, path: str) -> Iterator[Difference]:
        """Compare two objects, and all that they refer to."""
        is_value = path in self.held and not isinstance(one, nn.Module | torch.optim.Optimizer)
        if is_value:
            self.seen.setdefault(id(one), (one, other))
        if one is other or is_value or any(one is each for each in self.separate):
            return
        if id(one) in self.seen:
            if self.seen[id(one)][1] is not other:
                yield path, "shared with another part", "one of its own"
        elif (texts := _unlike(one, other)) is not None:
            yield path, *texts
        elif not isinstance(one, LEAVES):
            self.seen[id(one)] = one, other
            yield from self._inside(one, other, path)

    def _inside(self, one: Any, other: Any, path: str) -> Iterator[Difference]:
        """Compare what two objects of one type refer to."""
        mine, theirs = _compared(one, other, path)
        if isinstance(one, Tensor | np.ndarray):
            yield from _tensor(one, other, path, self._is_saved(one, other))
        elif isinstance(one, nn.Module):
            names = [f"{_described(each)} of {', '.join(_within(each))}" for each in (one, other)]
            if names[0] != names[1]:
                yield path, names[0], names[1]
        elif isinstance(one, torch.optim.Optimizer):
            yield from self._optimizers(one, other, path)
        else:
            if isinstance(one, SupportsState):
                yield from _dtypes(_vars(one), _vars(other), path)
            if not mine and not theirs:
                yield from _whole(one, other, path)
        yield from self.parts(mine, theirs, path)

    def _is_saved(self, one: Any, other: Any) -> bool:
        """Return whether a tensor lies, in both models, where one of a state dict begins."""
        there, size = self.saved.get(one.data_ptr(), (0, -1)) if isinstance(one, Tensor) else (0, -1)
        return isinstance(other, Tensor) and other.data_ptr() == there and one.nbytes <= size

    def parts(self, one: Parts, other: Parts, path: str) -> Iterator[Difference]:
        """Compare what two objects refer to, by what comes after their path."""
        for name in {**one, **other}:
            if name.endswith("_hooks") and isinstance(one.get(name) or {}, dict):
                hooks, there = _hooks(one.get(name)), _hooks(other.get(name))
                if (text := _names(hooks)) != (expected := _names(there)):
                    yield f"{path}{name}", text, expected
                else:
                    yield from self.of(hooks, there, f"{path}{name}")
            elif name in one and name in other:
                yield from self.of(one[name], other[name], f"{path}{name}")
            elif not _is_ours(one.get(name, other.get(name))):
                texts = [_described(each[name]) if name in each else "missing" for each in (one, other)]
                yield f"{path}{name}", texts[0], texts[1]

    def _optimizers(self, one: Any, other: Any, path: str) -> Iterator[Difference]:
        groups = [[len(group["params"]) for group in each.param_groups] for each in (one, other)]
        if groups[0] != groups[1]:
            yield path, f"groups of {groups[0]} parameters", f"groups of {groups[1]} parameters"
            return
        for number, (group, there) in enumerate(zip(one.param_groups, other.param_groups, strict=True)):
            options, like = ({k: v for k, v in each.items() if k not in OF_THE_RUN} for each in (group, there))
            yield from self.parts(_indexed(options), _indexed(like), f"{path}.param_groups[{number}]")
            where = f"{path}.param_groups[{number}]['params']"
            pairs = enumerate(zip(group["params"], there["params"], strict=True))
            self.trained += [(f"{where}[{index}]", *pair) for index, pair in pairs]
        if one.state and path not in self.held:
            yield f"{path}.state", f"of {len(one.state)} parameters", "empty"


def _unlike(one: Any, other: Any) -> tuple[str, str] | None:
    """Return what two objects are that have different types, values or code; None for all others."""
    if isinstance(one, FUNCTIONS) and isinstance(other, FUNCTIONS):
        codes = [getattr(each, "__code__", each.__qualname__) for each in (one, other)]
        if codes[0] != codes[1]:
            return f"{_described(one)} {getattr(one, '__qualname__', '')}".rstrip(), "another"
    is_same = not isinstance(one, LEAVES) or one == other or (one != one and other != other)
    return None if is_same and _are_alike(type(one), type(other)) else (_described(one), _described(other))


def _tensor(one: Any, other: Any, path: str, is_saved: bool) -> Iterator[Difference]:
    """Compare two tensors or arrays. Convolutions of another order of axes in memory round in another way."""
    forms = [f"{_described(each)}, {each.dtype}{_strides(each)}" for each in (one, other)]
    if forms[0] != forms[1]:
        yield path, forms[0], forms[1]
    elif not (is_saved or _bytes(one) == _bytes(other)):
        yield path, f"{_described(one)} that has changed", "as it was made"


def _dtypes(one: Parts, other: Parts, path: str) -> Iterator[Difference]:
    """Compare the dtypes of the numbers that two objects have which give their state themselves."""
    for name in filter(other.__contains__, one):
        pair = [each for each in (one[name], other[name]) if isinstance(each, int | float | np.generic | np.ndarray)]
        if len({str(getattr(each, "dtype", "Python's")) for each in pair}) > 1:
            yield f"{path}.{name}", _described(pair[0]), f"{_described(pair[1])}, of another dtype, after set_state"


def _strides(value: Any) -> str:
    """Describe the strides of a tensor in the dimensions in which a step makes a difference."""
    steps = zip(value.stride(), value.shape, strict=True) if isinstance(value, Tensor) else ()
    return f" with strides {[step for step, size in steps if size > 1]}"


def _bytes(value: Any) -> bytes:
    flat = value.detach().cpu().flatten().view(torch.uint8).numpy() if isinstance(value, Tensor) else value
    return flat.tobytes()


def _whole(one: Any, other: Any, path: str) -> Iterator[Difference]:
    """Compare two objects without visible parts, such as counters, by their texts."""
    kinds = [vars(kind) for kind in type(one).__mro__]
    if " at 0x" not in repr(one):
        if repr(one) != repr(other):
            yield path, repr(one)[:60], repr(other)[:60]
    elif type(one) is not object and not any("__module__" in kind and kind.keys() & OF_PYTHON for kind in kinds):
        yield path, f"{_described(one)}, which shows nothing of its state", "one that was not used"


def _are_alike(one: type, other: type) -> bool:
    """Return whether two classes are the same, or alike, as those that a parametrization makes for each layer."""
    names = [(each.__module__, each.__qualname__, each.__bases__) for each in (one, other)]
    return one is other or names[0] == names[1]


def _within(module: nn.Module) -> dict[str, Any]:
    """Return the modules and tensors of a module, in their order."""
    own = vars(module)
    return {**own["_modules"], **dict(own["_parameters"].items()), **dict(own["_buffers"].items())}


def _attributes(module: nn.Module) -> dict[str, Any]:
    """Return what is set on a module and is neither torch's nor a module, nor what a hook of torch computes again."""
    own = vars(module)
    hooks = {name: each for name, each in own.items() if name.endswith("_hooks")}
    if isinstance(module, torch.jit.ScriptModule):
        own = {name: getattr(module, name) for name in module._concrete_type.get_attributes()}
    computed = {
        getattr(hook, "name", getattr(hook, "_tensor_name", None))
        for hook in module._forward_pre_hooks.values()
        if type(hook).__module__.startswith("torch.nn.utils.")
    }
    return hooks | {name: each for name, each in own.items() if name not in OF_MODULES | computed}


def _compared(one: Any, other: Any, path: str) -> list[Parts]:
    """Return what two objects refer to, without what a model's buffers hold and distributions make again."""
    mine, theirs = _parts(one), _parts(other)
    left_out = {f".{name}" for name in OF_DISTRIBUTIONS if isinstance(one, Distribution)}
    if path.startswith("policy."):
        left_out.add(".requires_grad")  # as a file has it
    if path in BUFFERS:
        left_out = {name for name in mine if name in theirs and not isinstance(mine[name], SETTINGS)}
        left_out |= {f".{name}" for name in OF_BUFFERS}
    return [{name: value for name, value in each.items() if name not in left_out} for each in (mine, theirs)]


def _parts(value: Any) -> dict[str, Any]:
    """Return what an object refers to, by what comes after its own path."""
    if isinstance(value, nn.Module):
        own = {"training": value.training, **_within(value), **_attributes(value)}
    elif isinstance(value, torch.optim.Optimizer):
        is_ours = type(value).__module__.startswith("rlcore.")
        own = {} if is_ours else {name: each for name, each in vars(value).items() if name not in OF_OPTIMIZERS}
    elif isinstance(value, SupportsState):  # such as a torch.Generator
        return {".state": value.get_state()}
    else:
        own = {name: getattr(value, name) for name in _slots(value) if hasattr(value, name)} | _vars(value)
    return _content(value) | {f".{name}": each for name, each in own.items()}


def _content(value: Any) -> dict[str, Any]:
    """Return what an object refers to by other means than attributes."""
    if isinstance(value, np.random.Generator | np.random.BitGenerator):
        bits: Any = getattr(value, "bit_generator", value)
        return {".state": repr(bits.state), ".spawned": bits.seed_seq.n_children_spawned}
    if isinstance(value, random.Random):
        return {".state": repr(value.getstate())}
    if isinstance(value, list | tuple | deque):
        return {f"[{index}]": each for index, each in enumerate(value)}
    if isinstance(value, Mapping):
        return _indexed(value) | {".keys()": tuple(value)}
    if isinstance(value, weakref.ReferenceType):
        return {"()": value()}
    if isinstance(value, FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        inside = {f".{name}": cell.cell_contents for name, cell in cells if cell != CellType()}
        return {".defaults": value.__defaults__, ".kwdefaults": value.__kwdefaults__, **inside}
    names = {partial: ("func", "args", "keywords"), MethodType: ("__self__", "__func__")}
    names |= {BuiltinFunctionType: ("__self__",)}
    names |= {nn.Parameter: ("requires_grad", "_backward_hooks", "_post_accumulate_grad_hooks")}
    return {f".{name}": getattr(value, name) for kind in names if isinstance(value, kind) for name in names[kind]}


def _slots(value: Any) -> Iterator[str]:
    """Yield the names of attributes that an object has no dict for."""
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            is_private = name.startswith("__") and not name.endswith("__")
            yield f"_{kind.__name__.lstrip('_')}{name}" if is_private else name


def _indexed(entries: Mapping[Any, Any]) -> dict[str, Any]:
    return {f"[{key!r}]": each for key, each in entries.items()}


def _vars(value: Any) -> dict[str, Any]:
    return dict(getattr(value, "__dict__", {}))


def _hooks(hooks: Any) -> list[Any]:
    """Return hooks without our own."""
    return [each for each in (hooks or {}).values() if not _is_ours(getattr(each, "func", each))]


def _names(hooks: list[Any]) -> str:
    functions = [getattr(each, "func", each) for each in hooks]
    return ", ".join(getattr(each, "__qualname__", type(each).__name__) for each in functions) or "none"


def _is_ours(value: object) -> bool:
    """Return whether a function is rlcore's, which measures gradients and remembers generators while a model trains."""
    return isinstance(value, FunctionType | MethodType) and value.__module__.startswith("rlcore.")


def _described(value: object) -> str:
    if isinstance(value, Tensor | np.ndarray):
        return f"a {type(value).__name__} of shape {tuple(value.shape)}"
    if isinstance(value, type):
        return value.__qualname__
    text = repr(value) if isinstance(value, LEAVES) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
