"""Generic faults: adapters that do one thing wrong, to see whether a check that passed would have detected it."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlverify.checks.adapter import Adapter
from rlverify.checks.state_tree import find, is_tensor, leaves_below, put
from rlverify.checks.trained import named_parameters


@dataclass(frozen=True)
class GenericFault:
    """One thing that an adapter, or a subject that has none, does wrong.

    :param text: what is planted, as in "forget num_timesteps"
    :param plant: from a right one to the wrong one
    """

    text: str
    plant: Callable[[Any], Any]


class Wrapped(Adapter):
    """Does everything as another adapter does."""

    def __init__(self, inner: Adapter) -> None:
        self.inner = inner

    def learn(self, model: Any, steps: int) -> Sequence[Any]:
        return self.inner.learn(model, steps)

    def save(self, model: Any, folder: Path) -> None:
        self.inner.save(model, folder)

    def load(self, folder: Path, fresh: Any) -> Any:
        return self.inner.load(folder, fresh)

    def get_parameters(self, model: Any) -> Any:
        return self.inner.get_parameters(model)

    def set_parameters(self, model: Any, parameters: Any) -> None:
        self.inner.set_parameters(model, parameters)

    def act(self, model: Any) -> Any:
        return self.inner.act(model)

    def set_learning_rate(self, model: Any, value: float) -> None:
        self.inner.set_learning_rate(model, value)

    def modules(self, model: Any) -> Sequence[Any]:
        return self.inner.modules(model)

    def target_modules(self, model: Any) -> Sequence[Any]:
        return self.inner.target_modules(model)

    def optimizers(self, model: Any) -> Sequence[Any]:
        return self.inner.optimizers(model)

    def steps(self, model: Any) -> int:
        return self.inner.steps(model)

    def steps_after(self, model: Any) -> int:
        return self.inner.steps_after(model)

    def environment(self, model: Any) -> Any:
        return self.inner.environment(model)

    def with_settings(self, model: Any, **settings: Any) -> Any:
        return self.inner.with_settings(model, **settings)

    def unknown_settings(self, model: Any) -> Mapping[str, Mapping[str, Any]]:
        return self.inner.unknown_settings(model)

    def mutable_settings(self, model: Any) -> Mapping[str, Any]:
        return self.inner.mutable_settings(model)

    def one_sample_settings(self, model: Any) -> Mapping[str, Any]:
        return self.inner.one_sample_settings(model)

    def recurrent_outputs(self, model: Any, observations: Any, episode_starts: Any) -> Any:
        return self.inner.recurrent_outputs(model, observations, episode_starts)

    def rollout(self, model: Any) -> None:
        self.inner.rollout(model)

    def log_probs(self, model: Any) -> tuple[Any, Any]:
        return self.inner.log_probs(model)

    def advantages(self, model: Any) -> tuple[Any, Any, Any]:
        return self.inner.advantages(model)

    def callbacks(self, model: Any) -> Sequence[Any]:
        return self.inner.callbacks(model)

    def normalizer_state(self, model: Any) -> Mapping[str, Any]:
        return self.inner.normalizer_state(model)

    def normalized(self, model: Any, observation: Any) -> Any:
        return self.inner.normalized(model, observation)


def that_trains(adapter: Adapter) -> Adapter:
    """An adapter without the faults around it that change neither training nor what counts as trained."""
    kept = ("learn", "modules", "optimizers")
    while isinstance(adapter, Wrapped) and all(getattr(type(adapter), each) is getattr(Wrapped, each) for each in kept):
        adapter = adapter.inner
    return adapter


def forget(path: str) -> GenericFault:
    """After a load, the leaf at ``path`` has the value of a fresh model; zero, where a fresh model does not have it.

    A path of several leaves, such as that of a dictionary, forgets all of them.
    """

    class Forgetful(Wrapped):
        def load(self, folder: Path, fresh: Any) -> Any:
            before = {each: copy.deepcopy(find(fresh, each)[0]) for each in leaves_below(fresh, path)}
            model = self.inner.load(folder, fresh)
            leaves = leaves_below(model, path)
            if not leaves:
                raise KeyError(f"{type(model).__name__} has no {path!r}, so it cannot be forgotten; correct the path")
            for each in leaves:
                put(model, each, before[each] if each in before else zero(find(model, each)[0]))
            return model

    return GenericFault(f"forget {path} in load()", Forgetful)


def overwrite(path: str, value: Any) -> GenericFault:
    """After training, the leaf at ``path`` has this value. It proves checks of a trained model, such as `checks.holds`.

    :param value: a number, text, array or tensor; an array or tensor is copied into the one that is there
    """

    class Overwriting(Wrapped):
        def learn(self, model: Any, steps: int) -> Sequence[Any]:
            found = self.inner.learn(model, steps)
            if not leaves_below(model, path):
                raise KeyError(f"{type(model).__name__} has no {path!r} after training; correct the path")
            put(model, path, value)
            return found

    return GenericFault(f"overwrite {path} with {value!r:.40} after learn()", Overwriting)


def zero(value: Any) -> Any:
    """A number, an array or a tensor like another, full of zeros.

    :raises TypeError: for anything else
    """
    if is_tensor(value):
        return value.detach().clone().zero_()
    if isinstance(value, np.ndarray | np.generic):
        return np.zeros_like(value)
    if isinstance(value, int | float | complex):
        return type(value)(0)
    raise TypeError(f"a fresh model has no such {type(value).__name__}, and it has no zero, so it cannot be forgotten")


class _Unrepeatable(Wrapped):
    def learn(self, model: Any, steps: int) -> Sequence[Any]:
        _nudge(self.inner, model, random.SystemRandom().random())
        return self.inner.learn(model, steps)


class _ActingLearns(Wrapped):
    def act(self, model: Any) -> Any:
        found = self.inner.act(model)
        _nudge(self.inner, model, 1e-3)
        return found


class _SavingLearns(Wrapped):
    def save(self, model: Any, folder: Path) -> None:
        self.inner.save(model, folder)
        _nudge(self.inner, model, 1e-3)


class _ForgetsBetweenPieces(Wrapped):
    def learn(self, model: Any, steps: int) -> Sequence[Any]:
        for optimizer in self.inner.optimizers(model):
            optimizer.state.clear()
        return self.inner.learn(model, steps)


class _Drifting(Wrapped):
    def load(self, folder: Path, fresh: Any) -> Any:
        model = self.inner.load(folder, fresh)
        _nudge(self.inner, model, 1e-3)
        return model


class _Sharing(Wrapped):
    """Gives a model the tensors of another instead of copies."""

    def get_parameters(self, model: Any) -> Any:
        return model, self.inner.get_parameters(model)

    def set_parameters(self, model: Any, parameters: Any) -> None:
        source, own = parameters
        self.inner.set_parameters(model, own)
        theirs = named_parameters(list(self.inner.modules(source)))
        for name, parameter in named_parameters(list(self.inner.modules(model))).items():
            parameter.data = theirs[name].data


class _KeepsLearningRate(Wrapped):
    def set_learning_rate(self, model: Any, value: float) -> None:
        """Do nothing."""


class _UntrainedParameter(Wrapped):
    def optimizers(self, model: Any) -> Sequence[Any]:
        found = self.inner.optimizers(model)
        for optimizer in found:
            group = optimizer.param_groups[-1]
            group["params"] = group["params"][:-1]
        return found


class _StrangeParameter(Wrapped):
    def optimizers(self, model: Any) -> Sequence[Any]:
        found = self.inner.optimizers(model)
        for optimizer in found:
            group = optimizer.param_groups[0]
            group["params"] = [copy.deepcopy(group["params"][0]), *group["params"][1:]]
        return found


class _OldTarget(Wrapped):
    def target_modules(self, model: Any) -> Sequence[Any]:
        found = self.inner.target_modules(model)
        for parameter in found[0].parameters() if found else ():
            parameter.data.add_(1e-3)
        return found


UNREPEATABLE = GenericFault("draw from a generator without a seed in learn()", _Unrepeatable)
ACTING_LEARNS = GenericFault("change a parameter when acting", _ActingLearns)
SAVING_LEARNS = GenericFault("change a parameter when saving", _SavingLearns)
FORGETS_BETWEEN_PIECES = GenericFault("clear the optimizer's state at the start of learn()", _ForgetsBetweenPieces)
DRIFTING = GenericFault("change a parameter in load()", _Drifting)
SHARING = GenericFault("share tensors in set_parameters()", _Sharing)
KEEPS_LEARNING_RATE = GenericFault("keep the old learning rate", _KeepsLearningRate)
UNTRAINED_PARAMETER = GenericFault("leave a parameter out of the optimizer", _UntrainedParameter)
STRANGE_PARAMETER = GenericFault("give the optimizer a copy of a parameter", _StrangeParameter)
OLD_TARGET = GenericFault("leave a target network as it was", _OldTarget)


def _nudge(adapter: Adapter, model: Any, size: float) -> None:
    """Change the first trained parameter a little."""
    parameters = named_parameters(list(adapter.modules(model)))
    next(iter(parameters.values())).data.add_(size)
