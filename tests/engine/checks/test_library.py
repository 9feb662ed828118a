"""Failures that the library's own class has as well, and those that are yours."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

from benchmarks.field.findings import of_libraries
from benchmarks.field.records import read_field_report
from rlverify.checks import CheckRecord, KnownFailure, Status, check_algorithm, details
from rlverify.checks.adapters.sb3 import SB3Adapter
from rlverify.checks.engine import twins
from rlverify.checks.engine.rule import RULES
from rlverify.checks.rules.advice import REMEDIES
from rlverify.reporting.check_formats import outcome_words

SIZES: dict[str, Any] = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "seed": 0}
REPORT = Path(__file__).parents[3] / "reports/measured/field-report.json"


class Counting(PPO):
    """Loses nothing that PPO does not lose."""

    rollouts = 0

    def collect_rollouts(self, *args: Any, **options: Any) -> bool:
        self.rollouts += 1
        return super().collect_rollouts(*args, **options)


class Drifting(PPO):
    """Adds a number to the reward that no file has, and shares it when parameters are set."""

    def _setup_model(self) -> None:
        super()._setup_model()
        self.bonus = torch.zeros(1)

    def train(self) -> None:
        self.bonus += 0.5
        self.rollout_buffer.advantages += float(self.bonus) * self.rollout_buffer.returns
        super().train()

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "bonus"]


class Stubborn(torch.optim.Adam):
    """Ignores the learning rate."""

    def step(self, closure: Any = None) -> Any:
        self.param_groups[0]["lr"] = 1e-3
        return super().step(closure)


class Reseeding(gym.Wrapper[Any, Any, Any, Any]):
    """Its copy starts a new episode."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Reseeding:
        made = Reseeding(gym.make("CartPole-v1"))
        made.reset(seed=3)
        return made


class Scaling(gym.Wrapper[Any, Any, Any, Any]):
    """Divides rewards by a mean that goes on over all episodes."""

    total = count = 1.0

    def step(self, action: Any) -> Any:
        observation, reward, *rest = self.env.step(action)
        self.total, self.count = self.total + float(reward) + float(observation[0]), self.count + 1
        return observation, float(reward) / self.total, *rest


class Limit(gym.Wrapper[Any, Any, Any, Any]):
    """Ends an episode after some steps, and draws their number from a generator of its own."""

    steps = 0

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.generator = np.random.default_rng(0)

    def reset(self, **options: Any) -> Any:
        self.steps = 0
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        self.steps += 1
        observation, reward, terminated, _, info = self.env.step(action)
        return observation, reward, terminated, self.steps > 5 + self.generator.integers(2), info


def record(
    check: str,
    kind: type[PPO] = PPO,
    env: Any = "CartPole-v1",
    *,
    strict: bool = False,
    expected: str | KnownFailure = "",
    **more: Any,
) -> CheckRecord:
    (found,) = check_algorithm(
        lambda: kind("MlpPolicy", env, **{**SIZES, **more}),
        checks=[check],
        strict=strict,
        expected_failures={check: expected} if expected else None,
    )
    return found


def test_what_the_library_loses_as_well_is_known() -> None:
    found = record("resume_is_exact")
    assert not found.is_unexpected
    assert found.outcome == "fail, known in stable-baselines3 2.9.2 (field report #2)"
    expected = record("resume_is_exact", expected="issue 7")
    assert (
        outcome_words(expected)
        == "as expected: issue 7; all that is left is known in stable-baselines3 2.9.2 (field report #2)"
    )


def local() -> PPO:
    class Local(Counting):
        """Another class in each call."""

    return Local("MlpPolicy", "CartPole-v1", **SIZES)


class Doubled(FlattenExtractor):
    """Has parameters that no network of the library has."""

    def __init__(self, observation_space: gym.Space[Any]) -> None:
        super().__init__(observation_space)
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.scale * super().forward(observations)


def custom_network() -> PPO:
    return PPO("MlpPolicy", "CartPole-v1", policy_kwargs={"features_extractor_class": Doubled}, **SIZES)


@pytest.mark.parametrize(
    ("make", "check", "number"), [(local, "resume_is_exact", 2), (custom_network, "set_parameters_copies", 1)]
)
def test_a_local_class_and_a_network_of_yours_change_no_cause(make: Callable[[], PPO], check: str, number: int) -> None:
    (found,) = check_algorithm(make, checks=[check])
    assert found.outcome == f"fail, known in stable-baselines3 2.9.2 (field report #{number})"


@pytest.fixture(scope="module")
def drifting() -> CheckRecord:
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(os, "fork", raising=False)
        return record("resume_is_exact", Drifting)


def test_a_cause_that_the_library_does_not_have_is_yours(drifting: CheckRecord) -> None:
    found = drifting
    assert found.is_unexpected
    assert found.library is not None
    assert found.library.other_causes == ("bonus",)
    assert found.finding.causes[0] == "bonus"
    assert found.finding.why.startswith("restoring bonus; ")
    expected = record("resume_is_exact", Drifting, expected=KnownFailure("issue 7", ["bonus"]))
    assert (expected.other_causes, expected.is_unexpected) == ("", False)
    assert "new causes: env.envs[0]" in replace(expected, strict=True).other_causes


@pytest.mark.parametrize(("wrapper", "yours"), [(Scaling, {"total"}), (Limit, set())])
def test_what_your_environment_keeps_over_episodes_is_yours(wrapper: Any, yours: set[str]) -> None:
    (found,) = check_algorithm(
        lambda: PPO("MlpPolicy", wrapper(gym.make("CartPole-v1")), **SIZES), checks=["resume_is_exact"]
    )
    assert any(each.is_yours for each in found.finding.owners)
    assert found.library is not None
    assert {each.rpartition(".")[2] for each in found.library.other_causes} == yours
    assert found.is_unexpected == bool(yours)


def test_all_causes_have_a_line_with_whose_they_are(drifting: CheckRecord) -> None:
    lines = details(drifting, all_causes=True).splitlines()
    causes = lines[lines.index("causes:") + 1 : lines.index("reproduce:")]
    assert causes[0] == "    bonus (yours: Drifting)"
    assert "    env.envs[0].env._elapsed_steps (gymnasium: TimeLimit)" in causes
    assert causes[-1] == "    global random generators"


def test_strict_counts_what_is_known() -> None:
    assert record("set_parameters_copies", strict=True).is_unexpected
    assert not record("set_parameters_copies").is_unexpected


class Forgets(SB3Adapter):
    """Loads a model without the moments of its optimizer."""

    def load(self, folder: Path, fresh: Any) -> Any:
        model = super().load(folder, fresh)
        model.policy.optimizer.state.clear()
        return model


def test_an_adapter_of_yours_is_not_the_librarys() -> None:
    made = partial(PPO, "MlpPolicy", "CartPole-v1", **SIZES)
    (found,) = check_algorithm(made, adapter=Forgets(), checks=["resume_is_exact"], name="ppo")
    assert found.is_unexpected
    assert found.library is not None
    assert all(each.startswith("policy.optimizer.state") for each in found.library.other_causes)


@pytest.mark.parametrize(("kind", "status"), [(PPO, Status.FAIL), (Drifting, Status.INCONCLUSIVE)])
def test_what_no_cause_was_looked_for_is_not_excused(kind: type[PPO], status: Status) -> None:
    made = partial(kind, "MlpPolicy", "CartPole-v1", **SIZES)
    (found,) = check_algorithm(made, checks=["resume_is_exact"], tier="smoke", name="ppo")
    assert (found.status, found.is_unexpected) == (status, False)


def test_a_version_without_a_field_report_is_compared_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(twins, "KNOWN", tmp_path)
    assert record("set_parameters_copies").outcome == "fail, PPO of stable-baselines3 2.9.2 fails as well"


def test_a_model_without_a_seed_is_yours() -> None:
    found = record("deterministic", seed=None)
    assert found.is_unexpected
    assert found.finding.why == "the model has seed=None"


def test_the_twin_has_no_classes_of_yours() -> None:
    policy = {"optimizer_class": Stubborn, "optimizer_kwargs": {"eps": 1e-5}}
    assert record("learning_rate_zero_freezes", policy_kwargs=policy).is_unexpected
    assert not record("set_parameters_copies", policy_kwargs=policy).is_unexpected


def normalized() -> VecEnv:
    return VecNormalize(DummyVecEnv([lambda: gym.make("CartPole-v1")]))


def wrapped() -> VecEnv:
    return DummyVecEnv([lambda: Reseeding(gym.make("CartPole-v1"))])


@pytest.mark.parametrize(
    ("env", "layer", "is_yours"), [(normalized, "VecNormalize", False), (wrapped, "Reseeding", True)]
)
def test_the_layer_that_is_copied_wrongly_is_named(env: Callable[[], VecEnv], layer: str, is_yours: bool) -> None:
    found = check_algorithm(lambda: PPO("MlpPolicy", env(), **SIZES), checks=["environment_can_be_copied"])[0]
    assert found.is_unexpected is is_yours
    assert found.finding.seen.endswith(f"; inside of {layer}, copies are right")


def test_the_lists_that_ship_are_those_of_the_field_report() -> None:
    expected = of_libraries(read_field_report(REPORT))
    assert set(expected) == {file.stem for file in twins.KNOWN.glob("*.json")}
    for name, found in expected.items():
        shipped = twins.findings_of(*name.rsplit("-", 1))
        assert {each.check: (each.number, each.headline) for each in found} == {
            check: (each.number, each.headline) for check, each in shipped.items()
        }


def test_every_rule_has_a_remedy() -> None:
    assert set(REMEDIES) == set(RULES)
