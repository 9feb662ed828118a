"""A training loop of a few lines in plain PyTorch, its adapter, and variants of both with one defect each."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from rlverify.checks import Adapter, Subject, subject

STEPS = 4


class Trainer:
    """Fits a linear layer to numbers from a generator, with a target network that follows it."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Linear(3, 2)
        self.target = copy.deepcopy(self.net)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        self.generator = np.random.default_rng(0)
        self.gamma = 0.9
        self.steps = 0

    def learn(self, steps: int) -> list[float]:
        """Make so many steps; return the loss of each."""
        return [self.step() for _ in range(steps)]

    def step(self) -> float:
        inputs = torch.as_tensor(self.generator.standard_normal(3), dtype=torch.float32)
        loss = (self.net(inputs) - self.gamma).square().sum() + 0.1 * (self.target(inputs).detach() ** 2).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        return float(loss.detach())


class TrainerAdapter(Adapter):
    """Saves everything, in torch's own format."""

    def learn(self, model: Trainer, steps: int) -> Sequence[float]:
        return model.learn(steps)

    def save(self, model: Trainer, folder: Path) -> None:
        torch.save(self.content(model), folder / "state.pt")

    def content(self, model: Trainer) -> dict[str, Any]:
        return {
            "net": model.net.state_dict(),
            "target": model.target.state_dict(),
            "optimizer": model.optimizer.state_dict(),
            "generator": model.generator.bit_generator.state,
            "gamma": model.gamma,
            "steps": model.steps,
        }

    def load(self, folder: Path, fresh: Trainer) -> Trainer:
        self.restore(fresh, torch.load(folder / "state.pt", weights_only=True))
        return fresh

    def restore(self, model: Trainer, content: dict[str, Any]) -> None:
        for name in ("net", "target", "optimizer"):
            getattr(model, name).load_state_dict(content[name])
        model.generator.bit_generator.state = content["generator"]
        model.gamma, model.steps = content["gamma"], content["steps"]

    def get_parameters(self, model: Trainer) -> Any:
        return copy.deepcopy({"net": model.net.state_dict(), "optimizer": model.optimizer.state_dict()})

    def set_parameters(self, model: Trainer, parameters: Any) -> None:
        model.net.load_state_dict(parameters["net"])
        model.optimizer.load_state_dict(copy.deepcopy(parameters["optimizer"]))

    def act(self, model: Trainer) -> Any:
        return model.net(torch.ones(3)).argmax().item()

    def set_learning_rate(self, model: Trainer, value: float) -> None:
        for group in model.optimizer.param_groups:
            group["lr"] = value

    def modules(self, model: Trainer) -> Sequence[nn.Module]:
        return [model.net]

    def target_modules(self, model: Trainer) -> Sequence[nn.Module]:
        return [model.target]

    def steps(self, _model: Trainer) -> int:
        return STEPS


class TwoNets(TrainerAdapter):
    """Names the target among the modules, as policies of libraries do."""

    def modules(self, model: Trainer) -> Sequence[nn.Module]:
        return [model.net, model.target]


class Unseeded(Trainer):
    def __init__(self) -> None:
        super().__init__()
        self.generator = np.random.default_rng()


class ForgetsMomentum(Trainer):
    def learn(self, steps: int) -> list[float]:
        self.optimizer.state.clear()
        return super().learn(steps)


class BiasUntrained(Trainer):
    def __init__(self) -> None:
        super().__init__()
        self.optimizer = torch.optim.SGD([self.net.weight], lr=0.1, momentum=0.9)


class ShrinksWeights(Trainer):
    def step(self) -> float:
        with torch.no_grad():
            self.net.weight.mul_(0.99)
        return super().step()


class OtherTarget(Trainer):
    def __init__(self) -> None:
        super().__init__()
        self.target = nn.Linear(3, 2)


class ActingDraws(TwoNets):
    def act(self, model: Trainer) -> Any:
        model.generator.standard_normal()
        return super().act(model)


class ForgetsGenerator(TwoNets):
    def restore(self, model: Trainer, content: dict[str, Any]) -> None:
        super().restore(model, {**content, "generator": model.generator.bit_generator.state})


class CountsLoads(TwoNets):
    def restore(self, model: Trainer, content: dict[str, Any]) -> None:
        super().restore(model, {**content, "steps": content["steps"] + 1})


class DefaultGamma(TwoNets):
    """Uses a copy for training, so that the attribute is all that is wrong."""

    def restore(self, model: Trainer, content: dict[str, Any]) -> None:
        super().restore(model, content)
        model.name = "another"  # type: ignore[attr-defined]


class Named(Trainer):
    def __init__(self) -> None:
        super().__init__()
        self.name = "mine"


class OtherOptions(TwoNets):
    """An option of the optimizer that changes no result."""

    def restore(self, model: Trainer, content: dict[str, Any]) -> None:
        super().restore(model, content)
        model.optimizer.param_groups[0]["foreach"] = False


class HalvesLearningRate(TwoNets):
    def restore(self, model: Trainer, content: dict[str, Any]) -> None:
        super().restore(model, content)
        self.set_learning_rate(model, 0.05)


class Shares(TwoNets):
    def get_parameters(self, model: Trainer) -> Any:
        return {"net": model.net.state_dict(), "optimizer": model.optimizer.state_dict()}

    def set_parameters(self, model: Trainer, parameters: Any) -> None:
        for name, own in model.net.named_parameters():
            own.data = parameters["net"][name]


CLEAN: Subject = subject(Trainer, name="clean", adapter=TwoNets())
DEFECTS: dict[str, tuple[Callable[[], Trainer], Adapter, dict[str, str]]] = {
    "unseeded": (Unseeded, TwoNets(), {"deterministic": "step 1"}),
    "acting draws": (Trainer, ActingDraws(), {"observing_changes_nothing": "step 5"}),
    "momentum is forgotten": (ForgetsMomentum, TwoNets(), {"pieces_equal_whole": "step 6"}),
    "generator is not saved": (Trainer, ForgetsGenerator(), {"resume_is_exact": "step 1 after the load"}),
    "loads are counted": (Trainer, CountsLoads(), {"save_load_save_is_a_fixed_point": "steps"}),
    "setting is not saved": (Named, DefaultGamma(), {"settings_survive": "name"}),
    "option is not saved": (
        Trainer,
        OtherOptions(),
        {
            "learning_rates_continue": "optimizers[0].param_groups[0]['foreach']",
            "resume_is_exact": "optimizer 0: param_groups[0]['foreach'] after the load",
        },
    ),
    "learning rate is not saved": (
        Trainer,
        HalvesLearningRate(),
        {
            "learning_rates_continue": "optimizers[0].param_groups[0]['lr']",
            "resume_is_exact": "step 2 after the load",
        },
    ),
    "bias is not trained": (BiasUntrained, TwoNets(), {"optimizers_hold_the_parameters": "in a fresh model"}),
    "weights shrink": (ShrinksWeights, TwoNets(), {"learning_rate_zero_freezes": "['Linear[0].weight']"}),
    "target starts elsewhere": (OtherTarget, TwoNets(), {"targets_start_equal": "Linear"}),
    "tensors are shared": (Trainer, Shares(), {"set_parameters_copies": "parameter ['Linear[0].weight']"}),
}
"""Factory and adapter of each defect, and where which rules find it."""
