"""Schedulers and a scaler of gradients in a plain loop: each is found as an attribute, without a line of an adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rlverify.checks import Adapter, CheckRecord, Status, check_algorithm


class Exploration:
    """The scale of noise, which gets smaller with every update."""

    def __init__(self) -> None:
        self.updates = 0

    def step(self) -> None:
        self.updates += 1

    def state_dict(self) -> dict[str, int]:
        return {"updates": self.updates}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.updates = state["updates"]

    @property
    def scale(self) -> float:
        return 1.0 / (1 + self.updates)


class Loop:
    """Fits noise with a plain loop of torch."""

    def __init__(self) -> None:
        self.network = torch.nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=3, gamma=0.5)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126, growth_interval=2)
        self.exploration = Exploration()
        self.generator = torch.Generator().manual_seed(0)

    def learn(self, steps: int) -> None:
        for _ in range(steps):
            inputs = torch.randn(4, 3, generator=self.generator) * self.exploration.scale
            loss = (self.network(inputs) - 1).square().mean()
            self.optimizer.zero_grad()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.scheduler.step()
            self.exploration.step()


PARTS = ("network", "optimizer", "scheduler", "scaler", "exploration")


class Saving(Adapter):
    def __init__(self, forgotten: str = "") -> None:
        self.parts = [each for each in PARTS if each != forgotten]

    def steps(self, model: Any) -> int:  # noqa: ARG002
        return 4

    def save(self, model: Any, folder: Path) -> None:
        state = {name: getattr(model, name).state_dict() for name in self.parts}
        torch.save({**state, "generator": model.generator.get_state()}, folder / "model.pt")

    def load(self, folder: Path, fresh: Any) -> Any:
        state = torch.load(folder / "model.pt")
        fresh.generator.set_state(state["generator"])
        for name in self.parts:
            getattr(fresh, name).load_state_dict(state[name])
        return fresh


def checked(name: str, forgotten: str = "") -> CheckRecord:
    (record,) = check_algorithm(Loop, adapter=Saving(forgotten), checks=[name])
    return record


@pytest.mark.parametrize("name", ["resume_is_exact", "learning_rates_continue"])
def test_a_loop_that_saves_all_of_them_goes_on_exactly(name: str) -> None:
    record = checked(name)
    assert record.status is Status.PASS, record.finding.seen
    assert any(each.detected for each in record.proofs)


@pytest.mark.parametrize("forgotten", ["scheduler", "scaler", "exploration"])
def test_one_that_is_forgotten_is_named_by_its_attribute(forgotten: str) -> None:
    record = checked("resume_is_exact", forgotten)
    assert record.status is Status.FAIL
    assert any(each.startswith(forgotten) for each in record.finding.causes), record.finding


def test_a_forgotten_scheduler_is_seen_in_the_rates() -> None:
    record = checked("learning_rates_continue", "scheduler")
    assert record.status is Status.FAIL
    assert record.finding.where == "optimizer.param_groups[0]['lr']"
