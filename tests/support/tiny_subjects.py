"""Gradient transforms, environments with a state, and checkpoints: each sound, and with one defect each."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch


class Scale:
    """Divides each gradient by a running average of its size."""

    def __init__(self, parameters: list[Any]) -> None:
        self.parameters = parameters
        self.sizes = {"now": torch.zeros(len(parameters))}

    def __call__(self) -> None:
        for number, parameter in enumerate(self.parameters):
            if self.uses(parameter):
                size = torch.nan_to_num(parameter.grad.float().abs().max(), nan=0.0)
                self.sizes["now"][number] = 0.5 * self.sizes["now"][number] + 0.5 * size
                parameter.grad = self.scaled(parameter.grad, self.sizes["now"][number])

    def uses(self, parameter: Any) -> bool:
        return parameter.grad is not None

    def scaled(self, gradient: Any, size: Any) -> Any:
        return (gradient / (size + 1e-8)).to(gradient.dtype)

    def state_dict(self) -> dict[str, Any]:
        return {"now": self.sizes["now"].clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sizes["now"] = state["now"].clone()


class MovesParameters(Scale):
    def scaled(self, gradient: Any, size: Any) -> Any:
        self.parameters[0].data.add_(0.01)
        return super().scaled(gradient, size)


class DividesByNorm(Scale):
    def scaled(self, gradient: Any, size: Any) -> Any:
        return (gradient / size).to(gradient.dtype)


class NeedsGradients(Scale):
    def uses(self, parameter: Any) -> bool:
        parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        return True


class ReturnsSingle(Scale):
    def scaled(self, gradient: Any, size: Any) -> Any:
        return (gradient.float() / (size + 1e-8)).to(torch.float32)

    def __call__(self) -> None:
        for parameter in self.parameters:
            if self.uses(parameter):
                parameter.data = parameter.data.float() if parameter.dtype == torch.bfloat16 else parameter.data
                parameter.grad = parameter.grad.float()
        super().__call__()


class SquaresFirst(Scale):
    def scaled(self, gradient: Any, size: Any) -> Any:
        return (gradient * gradient.abs() / ((size + 1e-8) * gradient.abs() + 1e-8)).to(gradient.dtype)


class MixesAll(Scale):
    """Divides by the sum over all gradients, in which one NaN is all."""

    def __call__(self) -> None:
        super().__call__()
        given = [each.grad for each in self.parameters if each.grad is not None]
        norm = torch.stack([each.float().square().sum() for each in given]).sum()
        for each in given:
            each.mul_((1 / (1 + norm)).to(each.dtype))


class ForgetsAverage(Scale):
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load nothing."""


class Drift(gym.Env[Any, Any]):
    """A walk whose whole state can be taken and set."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def __init__(self) -> None:
        self.place = np.zeros(2)
        self.time = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:  # noqa: ARG002
        super().reset(seed=seed)
        self.place, self.time = self.np_random.normal(size=2), 0
        return self.place.copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place += self.np_random.normal(size=2) + action
        self.time += 1
        return self.place.copy(), float(self.place.sum()), self.time == 10, False, {}

    def get_state(self) -> Any:
        return {"place": self.place.copy(), "time": self.time, "random": self.np_random.bit_generator.state}

    def set_state(self, state: Any) -> None:
        self.place, self.time = state["place"].copy(), state["time"]
        self.np_random.bit_generator.state = state["random"]


class ForgetsTime(Drift):
    """Puts a time back that it had kept outside of the state; that of a new environment differs."""

    def set_state(self, state: Any) -> None:
        time = self.time
        super().set_state(state)
        self.time = time


class OnlyItself(Drift):
    """Keeps the random generator in the environment, which another one lacks."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []

    def get_state(self) -> Any:
        self.kept.append(self.np_random.bit_generator.state)
        return {"place": self.place.copy(), "time": self.time, "number": len(self.kept) - 1}

    def set_state(self, state: Any) -> None:
        kept = self.kept[state["number"]] if self.kept else self.np_random.bit_generator.state
        super().set_state({**state, "random": kept})


class SharesPlace(Drift):
    """Gives its own array away, and a copy next to it that it uses."""

    def get_state(self) -> Any:
        return {**super().get_state(), "now": self.place}


class TakesPlace(Drift):
    """Goes on with the array of the state; where it began is kept next to it."""

    def get_state(self) -> Any:
        return {**super().get_state(), "first": self.place.copy()}

    def set_state(self, state: Any) -> None:
        super().set_state({**state, "place": state["first"]})
        state["place"][...] = self.place
        self.place = state["place"]


class HoldsGenerator(Drift):
    def get_state(self) -> Any:
        return {**super().get_state(), "path": Path("state")}


def make() -> dict[str, Any]:
    return {"weights": np.zeros(64), "steps": 0}


def change(made: dict[str, Any]) -> None:
    made["weights"] += np.arange(64) / 7
    made["steps"] += 1


def written(made: dict[str, Any]) -> bytes:
    content = json.dumps({"weights": made["weights"].tolist(), "steps": made["steps"]}).encode()
    return hashlib.blake2b(content).hexdigest().encode() + content


def save(made: dict[str, Any], path: Path) -> None:
    path.with_suffix(".new").write_bytes(written(made))
    os.replace(path.with_suffix(".new"), path)  # noqa: PTH105


def save_over(made: dict[str, Any], path: Path) -> None:
    path.write_bytes(written(made))


def save_and_change(made: dict[str, Any], path: Path) -> None:
    save(made, path)
    made["steps"] += 1


def save_with_class(made: dict[str, Any], path: Path) -> None:
    save(made, path)
    (path.parent / "more").write_bytes(pickle.dumps(Path("more")))


def load(path: Path, fresh: dict[str, Any]) -> dict[str, Any]:
    content = path.read_bytes()
    if hashlib.blake2b(content[128:]).hexdigest().encode() != content[:128]:
        raise ValueError("the file is damaged")
    return restored(content, fresh)


def restored(content: bytes, fresh: dict[str, Any]) -> dict[str, Any]:
    read = json.loads(content[128:])
    return {**fresh, "weights": np.array(read["weights"]), "steps": read["steps"]}


def load_without_steps(path: Path, fresh: dict[str, Any]) -> dict[str, Any]:
    return {**load(path, fresh), "steps": fresh["steps"]}


def load_short(path: Path, fresh: dict[str, Any]) -> dict[str, Any]:
    """An empty file is taken for no checkpoint."""
    return load(path, fresh) if path.stat().st_size else fresh


def load_unchecked(path: Path, fresh: dict[str, Any]) -> dict[str, Any]:
    return restored(path.read_bytes(), fresh)
