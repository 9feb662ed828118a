"""A learner of one layer with everything that the checks look at, and subclasses with one defect each."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from rlverify.checks import Adapter

EPISODE = 12


class Walk(gym.Env[Any, Any]):
    """A random walk that the action pushes."""

    observation_space = gym.spaces.Box(-10.0, 10.0, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self) -> None:
        self.position = np.zeros(3, np.float32)
        self.time = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:  # noqa: ARG002
        super().reset(seed=seed)
        self.position, self.time = np.zeros(3, np.float32), 0
        return self.position.copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.position = self.position + self.np_random.normal(size=3).astype(np.float32) + np.float32(action)
        self.time += 1
        return self.position.copy(), float(self.position.sum()), self.time == EPISODE, False, {}


class Learner:
    """Learns values of observations, which are normalised with running statistics."""

    def __init__(self, *, rate: float = 0.05, batch: int = 4, notes: dict[str, Any] | None = None) -> None:
        self.rate, self.batch, self.notes = rate, batch, notes
        self.env: gym.Env[Any, Any] = Walk()
        self.observation, _ = self.env.reset(seed=0)
        self.network = torch.nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD([{"params": [each]} for each in self.network.parameters()], lr=rate)
        self.statistics = {"mean": np.zeros(3), "var": np.ones(3)}
        self.rollout: dict[str, Any] = {}
        self.best = {"return": -np.inf}

    def normalized(self, observation: Any) -> Any:
        return ((observation - self.statistics["mean"]) / np.sqrt(self.statistics["var"])).astype(np.float32)

    def checked(self, observation: Any) -> Any:
        if not np.isfinite(observation).all():
            raise ValueError("the observation is not finite")
        return observation

    def collect(self, steps: int) -> None:
        columns: dict[str, list[Any]] = {"raw": [], "seen": [], "actions": [], "rewards": []}
        for _ in range(steps):
            self.statistics["mean"] *= 0.9
            self.statistics["mean"] += 0.1 * self.observation
            seen = self.normalized(self.observation)
            action = int(self.env.np_random.integers(2))
            columns["raw"].append(self.observation)
            self.observation, reward, ended, _, _ = self.env.step(action)
            self.observation = self.checked(self.observation)
            if ended:
                self.observation, _ = self.env.reset()
            for name, value in (("seen", seen), ("actions", action), ("rewards", reward)):
                columns[name].append(value)
        self.rollout = {name: torch.as_tensor(np.array(each, np.float32)) for name, each in columns.items()}
        with torch.no_grad():
            self.rollout["values"] = self.network(self.rollout["seen"]).flatten()
            self.rollout["stored"] = self.log_prob(self.rollout["seen"])
        self.rollout["advantages"] = self.rollout["rewards"] - self.rollout["values"]
        self.rollout["returns"] = self.returns()

    def returns(self) -> Any:
        return self.rollout["rewards"]

    def log_prob(self, seen: Any) -> Any:
        return torch.distributions.Bernoulli(logits=self.network(seen).flatten(), validate_args=False).log_prob(
            self.rollout["actions"]
        )

    def standardized(self, advantages: Any) -> Any:
        return (advantages - advantages.mean()) / (advantages.std() + 1e-8) if len(advantages) > 1 else advantages

    def groups(self) -> list[dict[str, Any]]:
        return self.optimizer.param_groups

    @property
    def length(self) -> int:
        """Steps of a rollout."""
        return EPISODE if self.batch > 1 else 3

    def learn(self, steps: int) -> None:
        for first in range(0, steps, self.length):
            self.train(min(self.length, steps - first))

    def train(self, steps: int) -> None:
        self.collect(steps)
        self.best["return"] = max(self.best["return"], float(self.rollout["rewards"].mean()))
        for group in self.groups():
            group["lr"] = self.rate
        for first in range(0, steps, self.batch):
            rows = slice(first, first + self.batch)
            value = self.network(self.rollout["seen"][rows]).flatten()
            loss = -(self.standardized(self.rollout["advantages"][rows]) * value).mean() + 0.1 * (value**2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def outputs(self, observations: Any, starts: Any) -> Any:
        state, found = np.zeros(starts.shape[1]), []
        for observation, start in zip(observations, starts, strict=True):
            state = 0.5 * self.kept(state, start) + observation.sum(axis=1)
            found.append(state.copy())
        return np.stack(found)[..., None]

    def kept(self, state: Any, start: Any) -> Any:
        return np.where(start, 0.0, state)


class TinyAdapter(Adapter):
    """How the checks talk to a learner."""

    def learn(self, model: Any, steps: int) -> tuple[()]:
        model.learn(steps)
        return ()

    def save(self, model: Any, folder: Path) -> None:
        torch.save({"network": model.network.state_dict()}, folder / "network.pt")
        statistics = {name: each.tolist() for name, each in model.statistics.items()}
        (folder / "statistics.json").write_text(json.dumps(statistics))
        place = [model.env.position.tolist(), model.env.time, model.env.np_random.bit_generator.state]
        (folder / "place.json").write_text(json.dumps([model.rate, model.observation.tolist(), *place]))
        (folder / "best.json").write_text(json.dumps(model.best))

    def load(self, folder: Path, fresh: Any) -> Any:
        fresh.network.load_state_dict(torch.load(folder / "network.pt", weights_only=True)["network"])
        statistics = json.loads((folder / "statistics.json").read_text())
        fresh.statistics = {name: np.array(each) for name, each in statistics.items()}
        fresh.rate, observation, position, fresh.env.time, state = json.loads((folder / "place.json").read_text())
        fresh.observation, fresh.env.position = np.array(observation, np.float32), np.array(position, np.float32)
        fresh.env.np_random.bit_generator.state = state
        fresh.best.update(json.loads((folder / "best.json").read_text()))
        return fresh

    def get_parameters(self, model: Any) -> Any:
        tensors = {name: each.clone() for name, each in model.network.state_dict().items()}
        return tensors, {name: each.copy() for name, each in model.statistics.items()}, model.rate

    def set_parameters(self, model: Any, parameters: Any) -> None:
        tensors, statistics, _ = parameters
        model.network.load_state_dict(tensors)
        for name, each in statistics.items():
            model.statistics[name][...] = each

    def set_learning_rate(self, model: Any, value: float) -> None:
        model.rate = value

    def steps(self, model: Any) -> int:
        return int(model.length)

    def environment(self, model: Any) -> Any:
        return model.env

    def with_settings(self, model: Any, **settings: Any) -> Any:
        return type(model)(**{"rate": model.rate, "batch": model.batch, **settings})

    def mutable_settings(self, model: Any) -> Mapping[str, Any]:  # noqa: ARG002
        return {"notes": {"author": "a"}}

    def one_sample_settings(self, model: Any) -> Mapping[str, Any]:  # noqa: ARG002
        return {"batch": 1}

    def recurrent_outputs(self, model: Any, observations: Any, episode_starts: Any) -> Any:
        return model.outputs(observations, episode_starts)

    def rollout(self, model: Any) -> None:
        model.collect(self.steps(model))

    def log_probs(self, model: Any) -> tuple[Any, Any]:
        return model.rollout["stored"].numpy(), model.log_prob(model.rollout["seen"]).detach().numpy()

    def advantages(self, model: Any) -> tuple[Any, Any, Any]:
        if not model.rollout:
            model.collect(1)
        returns, values, advantages = (model.rollout[name].numpy() for name in ("returns", "values", "advantages"))
        return returns, values, advantages

    def callbacks(self, model: Any) -> list[Any]:
        return [model.best]

    def normalizer_state(self, model: Any) -> Mapping[str, Any]:
        return model.statistics  # type: ignore[no-any-return]

    def normalized(self, model: Any, observation: Any) -> Any:
        return model.normalized(observation)


class LosesStateWhenCopied(Walk):
    def __deepcopy__(self, _memo: Any) -> Walk:
        found = LosesStateWhenCopied()
        found.reset(seed=0)
        return found


class OtherEnvironment(Learner):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.env = LosesStateWhenCopied()
        self.observation, _ = self.env.reset(seed=0)


class KeepsOneRate(Learner):
    def groups(self) -> list[dict[str, Any]]:
        return self.optimizer.param_groups[:1]


class AcceptsEverything(Learner):
    def __init__(self, *, rate: float = 0.05, batch: int = 4, **_others: Any) -> None:
        super().__init__(rate=rate, batch=batch)


class WritesNotes(Learner):
    def __init__(self, *, notes: dict[str, Any] | None = None, **settings: Any) -> None:
        super().__init__(notes=notes, **settings)
        if notes is not None:
            notes["rate"] = self.rate


class NeverForgets(Learner):
    def kept(self, state: Any, start: Any) -> Any:  # noqa: ARG002
        return state


class Leaks(Learner):
    def kept(self, state: Any, start: Any) -> Any:
        return super().kept(state, start) if start.all() else 0.9 * state + 0.1 * state[::-1]


class TrainsOnRawObservations(TinyAdapter):
    def log_probs(self, model: Any) -> tuple[Any, Any]:
        return model.rollout["stored"].numpy(), model.log_prob(model.rollout["raw"]).detach().numpy()


class DividesByZero(Learner):
    def standardized(self, advantages: Any) -> Any:
        return (advantages - advantages.mean()) / (advantages.std() + 1e-8)


class ScalesReturns(Learner):
    def returns(self) -> Any:
        return self.rollout["rewards"] / 10


class TrustsObservations(Learner):
    def checked(self, observation: Any) -> Any:
        return observation


class ForgetsStatistics(TinyAdapter):
    def load(self, folder: Path, fresh: Any) -> Any:
        statistics = fresh.statistics
        super().load(folder, fresh)
        fresh.statistics = statistics
        return fresh


class ForgetsBest(TinyAdapter):
    def load(self, folder: Path, fresh: Any) -> Any:
        best = dict(fresh.best)
        super().load(folder, fresh)
        fresh.best.update(best)
        return fresh


class Overflows(Learner):
    def normalized(self, observation: Any) -> Any:
        self.statistics["var"] = np.full(3, np.inf)
        return np.zeros_like(observation)


class LeavesStatistics(TinyAdapter):
    def set_parameters(self, model: Any, parameters: Any) -> None:
        model.network.load_state_dict(parameters[0])


class RestoresRate(Learner):
    """Takes the rate of the source again at the next update."""

    taken: float | None = None

    def groups(self) -> list[dict[str, Any]]:
        self.rate = self.rate if self.taken is None else self.taken
        return super().groups()


class TakesRate(TinyAdapter):
    def set_parameters(self, model: Any, parameters: Any) -> None:
        super().set_parameters(model, parameters)
        model.taken = parameters[2]


class SavesPickle(TinyAdapter):
    def save(self, model: Any, folder: Path) -> None:
        super().save(model, folder)
        (folder / "more.pkl").write_bytes(pickle.dumps({"steps": range(3)}))


class SavesClass(TinyAdapter):
    def save(self, model: Any, folder: Path) -> None:
        super().save(model, folder)
        (folder / "more.pkl").write_bytes(pickle.dumps(Path()))
