"""No rule fails on code that is sound in a shape that a rule once took for a bug."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlverify.checks import Adapter, CheckRecord, Status, check_subject, subject
from rlverify.checks.engine.session import Tier
from tests.engine.checks import tiny_learner, tiny_trainers

UNPROVEN = Tier("default", None, plants_faults=False, finds_reasons=False, is_full=False)


class OwnRate(tiny_trainers.Tiny):
    """A second network has an optimizer with a rate of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.bonus = torch.nn.Linear(2, 1)
        self.bonus_optimizer = torch.optim.SGD(self.bonus.parameters(), lr=1e-3)

    def update(self, seen: torch.Tensor) -> None:
        super().update(seen)
        self.bonus_optimizer.zero_grad()
        self.bonus(seen).square().sum().backward()
        self.bonus_optimizer.step()

    def state(self) -> dict[str, Any]:
        return {**super().state(), "bonus": self.bonus.state_dict(), "own": self.bonus_optimizer.state_dict()}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self.bonus.load_state_dict(state["bonus"])
        self.bonus_optimizer.load_state_dict(state["own"])


class Teacher(tiny_trainers.Tiny):
    """A network that no optimizer has, and that gets no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher = torch.nn.Linear(2, 1)

    def update(self, seen: torch.Tensor) -> None:
        self.place = self.place + self.teacher(seen).detach()
        super().update(seen)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "teacher": self.teacher.state_dict()}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self.teacher.load_state_dict(state["teacher"])


class Identities(tiny_trainers.Tiny):
    """Keeps what it knows by ``id()``, in the model and in the optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []
        self.norms: dict[int, float] = {}

    def update(self, seen: torch.Tensor) -> None:
        self.kept.append(object())
        self.optimizer.norms = self.norms  # type: ignore[attr-defined]
        self.norms.clear()
        self.norms[id(self.kept[-1])] = float(seen.norm())
        super().update(seen)


class CountsInEachCall(tiny_trainers.Tiny):
    """Counters of the steps of one call, and of the models of a class."""

    made = 0
    calls = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).made += 1
        self.number = f"model {self.made}"

    def learn(self, steps: int) -> list[float]:
        self.calls = 0
        return super().learn(steps)

    def update(self, seen: torch.Tensor) -> None:
        self.calls += 1
        super().update(seen)


class Scales(tiny_trainers.Tiny):
    """A scale that a load keeps under another name, as GradScaler does before its first step."""

    def __init__(self) -> None:
        super().__init__()
        self._initial, self.scale = 4.0, None

    def update(self, seen: torch.Tensor) -> None:
        self.scale = self.now() * 2
        self.place = self.place + 0 * self.scale
        super().update(seen)

    def now(self) -> float:
        return self._initial if self.scale is None else self.scale

    def state(self) -> dict[str, Any]:
        return {**super().state(), "scale": self.now()}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._initial = state["scale"]


class Halves(tiny_learner.Learner):
    """A callback halves the rate before each update, and the schedule ends at 0."""

    updates = 0

    def groups(self) -> list[dict[str, Any]]:
        self.updates += 1
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate / 2**self.updates if self.updates < 4 else 0.0
        return []


class NormalisesValues(tiny_learner.Learner):
    """Keeps values and returns in units of their deviation, and advantages in those of rewards."""

    def collect(self, steps: int) -> None:
        super().collect(steps)
        for name in ("values", "returns"):
            self.rollout[name] = self.rollout[name] / 3


class BatchNormAndDropout(tiny_learner.Learner):
    """Rollouts in evaluation mode, updates in training mode."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        layers = torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.2), torch.nn.Linear(4, 1)
        self.network = torch.nn.Sequential(*layers)
        self.optimizer = torch.optim.SGD([{"params": [each]} for each in self.network.parameters()], lr=self.rate)

    def collect(self, steps: int) -> None:
        self.network.eval()
        super().collect(steps)
        self.network.train()


class OfOptimizer(tiny_learner.TinyAdapter):
    """Saves the optimizer too, and how often it stepped."""

    def save(self, model: Any, folder: Path) -> None:
        super().save(model, folder)
        torch.save([model.optimizer.state_dict(), model.updates], folder / "optimizer.pt")

    def load(self, folder: Path, fresh: Any) -> Any:
        found = super().load(folder, fresh)
        state, found.updates = torch.load(folder / "optimizer.pt", weights_only=True)
        found.optimizer.load_state_dict(state)
        return found


class OfModes(tiny_learner.TinyAdapter):
    """Evaluates in evaluation mode, gives tensors with gradients, and saves the generator that dropout draws from."""

    def save(self, model: Any, folder: Path) -> None:
        super().save(model, folder)
        torch.save(torch.get_rng_state(), folder / "generator.pt")

    def load(self, folder: Path, fresh: Any) -> Any:
        found = super().load(folder, fresh)
        torch.set_rng_state(torch.load(folder / "generator.pt", weights_only=True))
        return found

    def log_probs(self, model: Any) -> tuple[Any, Any]:
        with evaluating(model.network):
            return model.rollout["stored"], model.log_prob(model.rollout["seen"])

    def advantages(self, model: Any) -> tuple[Any, Any, Any]:
        returns, values, advantages = super().advantages(model)
        return returns, torch.tensor(values, requires_grad=True), advantages


@contextmanager
def evaluating(network: torch.nn.Module) -> Any:
    network.eval()
    yield
    network.train()


class Callback:
    """What Stable-Baselines3 writes into a callback at every call."""

    num_timesteps = 0

    def __init__(self) -> None:
        self.locals: dict[str, Any] = {}
        self.best = -np.inf


class WithCallback(tiny_learner.Learner):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.callback = Callback()

    def train(self, steps: int) -> None:
        super().train(steps)
        self.callback.num_timesteps += steps
        self.callback.locals = {"steps": steps}


class OfCallback(tiny_learner.TinyAdapter):
    def callbacks(self, model: Any) -> list[Any]:
        return [model.callback]


SHAPES: dict[str, tuple[Callable[[], Any], type[Adapter]]] = {
    **{
        each.__name__: (each, tiny_trainers.TinyAdapter)
        for each in (OwnRate, Teacher, Identities, CountsInEachCall, Scales)
    },
    **{each.__name__: (each, tiny_learner.TinyAdapter) for each in (NormalisesValues,)},
    "Halves": (Halves, OfOptimizer),
    "BatchNormAndDropout": (BatchNormAndDropout, OfModes),
    "WithCallback": (WithCallback, OfCallback),
}


def records(shape: str) -> list[CheckRecord]:
    make, adapter = SHAPES[shape]
    return check_subject(replace(subject(make, adapter=adapter()), tier=UNPROVEN))


@pytest.mark.parametrize("shape", SHAPES)
def test_no_rule_fails_on_a_sound_shape(shape: str) -> None:
    allowed = (Status.PASS, Status.NOT_APPLICABLE)
    wrong = {each.check: (each.status, each.finding.seen) for each in records(shape) if each.status not in allowed}
    assert wrong == {}
