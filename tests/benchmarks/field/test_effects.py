"""How much a failed check changes training: nothing where there is no defect, and something where there is one."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.base_class import BaseAlgorithm

from benchmarks.field import effects
from benchmarks.field.effects import MEASURED, effect_of
from benchmarks.field.records import Effect
from rlverify.checks.adapters.sb3 import SB3Adapter
from rlverify.checks.engine.rule import RULES

STEPS = 16
RETURNS = (1.0, 500.0)
"""Of CartPole: at least one step, at most 500."""


def ppo(seed: int = 0) -> PPO:
    return PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=4, n_epochs=1, seed=seed, device="cpu")


def dqn(seed: int = 0) -> DQN:
    return DQN("MlpPolicy", "CartPole-v1", learning_starts=4, batch_size=4, buffer_size=64, seed=seed, device="cpu")


class Copying(SB3Adapter):
    """Hands over copies, as a library without the defect would."""

    def get_parameters(self, model: BaseAlgorithm) -> Any:
        return copy.deepcopy(super().get_parameters(model))


class Keeping(SB3Adapter):
    """Keeps the whole model and the state of all generators, as a library without the defect would."""

    def save(self, model: BaseAlgorithm, folder: Path) -> None:  # noqa: ARG002
        model.policy.action_dist.distribution = None  # type: ignore[union-attr]  # of the last step; its tensors cannot be copied
        self.model = copy.deepcopy(model)
        self.generators = random.getstate(), np.random.get_state(), torch.get_rng_state()

    def load(self, folder: Path, fresh: BaseAlgorithm) -> BaseAlgorithm:  # noqa: ARG002
        own, of_numpy, of_torch = self.generators
        random.setstate(own)
        np.random.set_state(of_numpy)
        torch.set_rng_state(of_torch)
        return self.model


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "ON_POLICY_STEPS", STEPS)
    monkeypatch.setattr(effects, "OFF_POLICY_STEPS", STEPS)
    monkeypatch.setattr(effects, "EPISODES", 1)
    monkeypatch.setattr(effects, "SEEDS", (0, 1))


def effect(check: str) -> Effect:
    found = effect_of(check, ppo)
    assert found is not None
    assert found.steps == STEPS
    assert all(RETURNS[0] <= each <= RETURNS[1] for each in (*found.returns, *found.returns_with))
    assert {len(each) for each in (found.first_difference, found.distance, found.returns, found.returns_with)} == {2}
    return found


def test_parameters_that_are_shared_have_an_effect() -> None:
    found = effect("set_parameters_copies")
    assert all(0 < each < 10 for each in found.distance)


def test_parameters_that_are_copied_twice_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "ADAPTER", Copying())
    found = effect("set_parameters_copies")
    assert (found.distance, found.first_difference) == ((0.0, 0.0), (None, None))
    assert found.returns == found.returns_with


def test_a_resumed_run_differs_from_its_first_step() -> None:
    found = effect("resume_is_exact")
    assert all(0 < each < 10 for each in found.distance)
    assert found.first_difference == (1, 1)


def test_a_run_that_keeps_everything_does_not_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "ADAPTER", Keeping())
    found = effect("resume_is_exact")
    assert (found.distance, found.first_difference) == ((0.0, 0.0), (None, None))
    assert found.returns == found.returns_with


@pytest.mark.parametrize("check", MEASURED)
def test_the_same_effect_is_measured_again(check: str) -> None:
    assert effect_of(check, ppo) == effect_of(check, ppo)


def test_off_policy_algorithms_have_steps_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "OFF_POLICY_STEPS", 24)
    found = effect_of("resume_is_exact", dqn)
    assert found is not None
    assert found.steps == 24
    assert min(found.distance) > 0


def test_other_checks_have_no_effect_that_is_measured() -> None:
    def unused(seed: int = 0) -> BaseAlgorithm:
        raise AssertionError(seed)

    assert set(MEASURED) < set(RULES)
    for check in (*sorted(set(RULES) - set(MEASURED)), "no_such_check"):
        assert effect_of(check, unused) is None
