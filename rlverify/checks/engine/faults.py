"""Generic faults: adapters that do one thing wrong, to see whether a check that passed would have detected it."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np

from rlverify.checks.adapters.adapter import Adapter
from rlverify.checks.state.leaves import is_tensor
from rlverify.checks.state.trained import named_parameters
from rlverify.checks.state.tree import find, leaves_below, put


@dataclass(frozen=True)
class GenericFault:
    """One thing that an adapter, or a subject that has none, does wrong.

    :param path: of the state that it loses; empty if it is about no part of the state
    """

    text: str
    plant: Callable[[Any], Any]
    path: str = ""


class Wrapped(Adapter):
    """Does everything as another adapter does."""

    def __init__(self, inner: Adapter) -> None:
        self.inner = inner


def _passed_on(name: str) -> Callable[..., Any]:
    def method(self: Wrapped, *arguments: Any, **named: Any) -> Any:
        return getattr(self.inner, name)(*arguments, **named)

    return method


for _name in [each for each in vars(Adapter) if not each.startswith("_")]:
    setattr(Wrapped, _name, _passed_on(_name))


def instead(method: str, text: str, action: Callable[..., Any], path: str = "") -> GenericFault:
    """Call ``action(adapter, *arguments)`` instead of a method of an adapter, or of a subject that has none."""

    def changed(self: Wrapped, *arguments: Any, **named: Any) -> Any:
        return action(self.inner, *arguments, **named)

    def plant(subject: Any) -> Any:
        if isinstance(subject, Adapter):
            return type("Changed", (Wrapped,), {method: changed})(subject)
        other = copy.copy(subject)
        vars(other)[method] = partial(action, subject)
        return other

    return GenericFault(text, plant, path)


def before(method: str, text: str, change: Callable[..., object]) -> GenericFault:
    """Call ``change(adapter, *arguments)`` before a method."""

    def changed(inner: Adapter, *arguments: Any) -> Any:
        change(inner, *arguments)
        return getattr(inner, method)(*arguments)

    return instead(method, text, changed)


def after(method: str, text: str, change: Callable[..., Any]) -> GenericFault:
    """Call ``change(adapter, result, *arguments)`` after a method; what it returns is the result, unless it is None."""

    def changed(inner: Adapter, *arguments: Any, **named: Any) -> Any:
        found = getattr(inner, method)(*arguments, **named)
        other = change(inner, found, *arguments, **named)
        return found if other is None else other

    return instead(method, text, changed)


def that_trains(adapter: Adapter, kept: Sequence[str] = ("learn", "modules", "optimizers")) -> Adapter:
    """An adapter without the faults around it that change neither training nor what counts as trained."""
    while isinstance(adapter, Wrapped) and all(getattr(type(adapter), each) is getattr(Wrapped, each) for each in kept):
        adapter = adapter.inner
    return adapter


def trains_alike(adapter: Adapter, other: Adapter) -> bool:
    """Whether both train with the same method `learn` of the same adapter."""
    return that_trains(adapter, ["learn"]) is other


def forget(path: str) -> GenericFault:
    """After a load, the leaf at ``path`` has the value of a fresh model; zero, where a fresh model does not have it.

    A path of several leaves, such as that of a dictionary, forgets all of them.
    """

    def load(inner: Adapter, folder: Path, fresh: Any) -> Any:
        initial = {each: copy.deepcopy(find(fresh, each)[0]) for each in leaves_below(fresh, path)}
        model = inner.load(folder, fresh)
        leaves = leaves_below(model, path)
        if not leaves:
            raise KeyError(f"{type(model).__name__} has no {path!r}, so it cannot be forgotten; correct the path")
        for each in leaves:
            put(model, each, initial[each] if each in initial else zero(find(model, each)[0]))
        return model

    return instead("load", f"forget {path} in load()", load, path)


def overwrite(path: str, value: Any) -> GenericFault:
    """After training, the leaf at ``path`` has this value. It proves checks of a trained model, such as `checks.holds`.

    :param value: a number, text, array or tensor; an array or tensor is copied into the one that is there
    """

    def written(_inner: Adapter, _trace: Any, model: Any, _steps: int) -> None:
        if not leaves_below(model, path):
            raise KeyError(f"{type(model).__name__} has no {path!r} after training; correct the path")
        put(model, path, value)

    return after("learn", f"overwrite {path} with {value!r:.40} after learn()", written)


def zero(value: Any) -> Any:
    """A number, an array or a tensor like another, full of zeros."""
    if is_tensor(value):
        return value.detach().clone().zero_()
    if isinstance(value, np.ndarray | np.generic):
        return np.zeros_like(value)
    if isinstance(value, int | float | complex):
        return type(value)(0)
    raise TypeError(f"a fresh model has no such {type(value).__name__}, and it has no zero, so it cannot be forgotten")


def _clear_states(inner: Adapter, model: Any, _steps: int) -> None:
    for optimizer in inner.optimizers(model):
        optimizer.state.clear()


def in_turn(text: str, *faults: GenericFault) -> GenericFault:
    """Several faults as one."""
    return GenericFault(text, lambda subject: reduce(lambda planted, each: each.plant(planted), faults, subject))


def _sharing(text: str, share: Callable[[Adapter, Any, Any], None]) -> GenericFault:
    """Give a model tensors of the one whose parameters it gets."""

    def set_parameters(inner: Adapter, model: Any, parameters: Any) -> None:
        source, own = parameters
        inner.set_parameters(model, own)
        share(inner, model, source)

    given = after("get_parameters", text, lambda _inner, found, model: (model, found))
    return in_turn(text, given, instead("set_parameters", text, set_parameters))


def _share_parameters(inner: Adapter, model: Any, source: Any) -> None:
    theirs = named_parameters(list(inner.modules(source)))
    for name, parameter in named_parameters(list(inner.modules(model))).items():
        parameter.data = theirs[name].data


def _share_moments(inner: Adapter, model: Any, source: Any) -> None:
    for mine, theirs in zip(inner.optimizers(model), inner.optimizers(source), strict=True):
        for group, other in zip(mine.param_groups, theirs.param_groups, strict=True):
            for parameter, twin in zip(group["params"], other["params"], strict=True):
                if twin in theirs.state:
                    mine.state[parameter] = dict(theirs.state[twin])


def _leave_a_part(inner: Adapter, model: Any, steps: int) -> Sequence[Any]:
    """Leave the last tensor of each target network, such as a batch statistic, as it is in a fresh model."""
    tensors = [_last_float(each) for each in inner.target_modules(model)]
    old = [each.clone() for each in tensors]
    found = inner.learn(model, steps)
    for tensor, value in zip(tensors, old, strict=True):
        tensor.copy_(value)
    return found


def _last_float(module: Any) -> Any:
    return [each for each in module.state_dict().values() if each.is_floating_point()][-1]


def _replace_parameter(inner: Adapter, _trace: Any, model: Any, _steps: int) -> None:
    """Replace the first parameter of a model by a copy, as a new layer would be."""
    for owner in (each for module in inner.modules(model) for each in module.modules()):
        for name, parameter in owner.named_parameters(recurse=False):
            setattr(owner, name, copy.deepcopy(parameter))
            return


def _leave_last_out(_inner: Adapter, found: Sequence[Any], _model: Any) -> None:
    for optimizer in found:
        if not vars(optimizer).setdefault("left_out", False):
            optimizer.left_out = True  # once, however often the adapter is asked
            optimizer.param_groups[-1]["params"] = optimizer.param_groups[-1]["params"][:-1]


def _copy_first(_inner: Adapter, found: Sequence[Any], _model: Any) -> None:
    for optimizer in found:
        group = optimizer.param_groups[0]
        group["params"] = [copy.deepcopy(group["params"][0]), *group["params"][1:]]


def _move_target(_inner: Adapter, found: Sequence[Any], _model: Any) -> None:
    for parameter in found[0].parameters() if found else ():
        parameter.data.add_(1e-3)


def _train_target(inner: Adapter, _trace: Any, model: Any, _steps: int) -> None:
    for target in inner.target_modules(model):
        inner.optimizers(model)[0].param_groups[0]["params"].extend(target.parameters())


UNREPEATABLE = before(
    "learn",
    "draw from a generator without a seed in learn()",
    lambda inner, model, _steps: _nudge(inner, model, random.SystemRandom().random()),
)
ACTING_LEARNS = after("act", "change a parameter when acting", lambda inner, _action, model: _nudge(inner, model, 1e-3))
SAVING_LEARNS = after(
    "save", "change a parameter when saving", lambda inner, _none, model, _folder: _nudge(inner, model, 1e-3)
)
FORGETS_BETWEEN_PIECES = before("learn", "clear the optimizer's state at the start of learn()", _clear_states)
DRIFTING = after("load", "change a parameter in load()", lambda inner, model, *_: _nudge(inner, model, 1e-3))
SHARING = _sharing("share tensors in set_parameters()", _share_parameters)
SHARING_MOMENTS = _sharing("share the optimizer's state in set_parameters()", _share_moments)
REPLACED_PARAMETER = after("learn", "replace a parameter after learn()", _replace_parameter)
PART_OF_A_TARGET = instead("learn", "leave one tensor of a target network as it was", _leave_a_part)
TRAINED_TARGET = after("learn", "give an optimizer the parameters of a target network", _train_target)
STARTS_AGAIN = before(
    "learn",
    "reset the environment at the start of learn()",
    lambda inner, model, _steps: inner.environment(model).reset(),
)
KEEPS_LEARNING_RATE = instead("set_learning_rate", "keep the old learning rate", lambda *_: None)
UNTRAINED_PARAMETER = after("optimizers", "leave a parameter out of the optimizer", _leave_last_out)
STRANGE_PARAMETER = after("optimizers", "give the optimizer a copy of a parameter", _copy_first)
OLD_TARGET = after("target_modules", "leave a target network as it was", _move_target)


def _nudge(adapter: Adapter, model: Any, size: float) -> None:
    """Change the first trained parameter a little."""
    parameters = named_parameters(list(adapter.modules(model)))
    next(iter(parameters.values())).data.add_(size)
