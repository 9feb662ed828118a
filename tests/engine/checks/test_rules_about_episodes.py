"""Each rule about episodes fails on its defect, and passes, proven by each of its faults, on the sound one."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlverify.checks import Adapter, Status, check_algorithm
from rlverify.checks.rules.numerics import generalised_advantages

STEPS = 12


class Line(gym.Env[Any, Any]):
    """Counts steps; an episode has three."""

    observation_space = gym.spaces.Box(0.0, 9.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    time = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:  # noqa: ARG002
        self.time += 1
        return np.full(1, self.time, np.float32), 1.0, self.time >= 3, False, {}


class Values:
    """Learns values of observations by one step of bootstrapping."""

    def __init__(self) -> None:
        self.env, self.network = Line(), torch.nn.Linear(1, 1)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.1)

    def alive(self, terminated: bool, truncated: bool) -> bool:  # noqa: ARG002
        return not terminated

    def learn(self, steps: int) -> None:
        seen = self.env.reset()[0]
        for _ in range(steps):
            after, reward, terminated, truncated, _ = self.env.step(0)
            if not np.isfinite(after).all():
                raise ValueError("an observation is not finite")
            goal = reward + 0.9 * self.alive(terminated, truncated) * self.network(torch.as_tensor(after)).detach()
            self.optimizer.zero_grad()
            (self.network(torch.as_tensor(seen)) - goal).square().sum().backward()
            self.optimizer.step()
            seen = self.env.reset()[0] if terminated or truncated else after


class TakesEither(Values):
    def alive(self, terminated: bool, truncated: bool) -> bool:
        return not (terminated or truncated)


class TakesNeither(Values):
    def alive(self, terminated: bool, truncated: bool) -> bool:  # noqa: ARG002
        return True


class LooksNoFurther(Values):
    """Learns rewards alone."""

    def alive(self, terminated: bool, truncated: bool) -> bool:  # noqa: ARG002
        return False


class Of(Adapter):
    """Gives rows of a vector that resets itself, and advantages of random numbers."""

    keeps_resets, skips_last, ignores_ends = False, False, False

    def environment(self, model: Any) -> Any:
        return model.env

    def steps(self, model: Any) -> int:  # noqa: ARG002
        return STEPS

    def transitions(self, model: Any) -> list[Any]:  # noqa: ARG002
        env, ended, rows = gym.vector.SyncVectorEnv([Line]), False, []
        seen, _ = env.reset(seed=0)
        for _ in range(STEPS):
            after, reward, ends, _, _ = env.step(np.array([1]))
            if self.keeps_resets or not ended:
                rows.append((seen[0], 1, reward[0], ends[0], after[0]))
            seen, ended = after, ends[0]
        return rows

    def advantage_inputs(self, model: Any) -> dict[str, Any]:  # noqa: ARG002
        drawn = np.random.default_rng(0)
        found: dict[str, Any] = {"rewards": drawn.normal(size=(STEPS, 2)), "values": drawn.normal(size=(STEPS, 2))}
        found["episode_starts"] = drawn.random((STEPS, 2)) < 0.3
        found |= {"last_values": np.ones(2), "last_episode_starts": np.array([True, False])}
        found |= {"gamma": 0.9, "gae_lambda": 0.8}
        used = dict(found)
        if self.skips_last:
            used["last_values"] = np.zeros(2)
        if self.ignores_ends:
            used["last_episode_starts"] = np.zeros(2)
        return {**found, "advantages": generalised_advantages(used)}


def adapter(**options: bool) -> Adapter:
    return type("Changed", (Of,), options)()


RULES = ("truncation_is_not_termination", "rows_are_transitions", "advantages_are_generalised")
DEFECTS: dict[str, tuple[str, Any, Adapter, str, str]] = {
    "either": (RULES[0], TakesEither, Of(), "the parameters are the same whether", "truncated"),
    "neither": (RULES[0], TakesNeither, Of(), "the parameters are the same whether", "truncated"),
    "resets": (RULES[1], Values, adapter(keeps_resets=True), "row 3 is a reset", "row 3"),
    "last": (RULES[2], Values, adapter(skips_last=True), "differ: the advantage is", "step 12"),
    "ends": (RULES[2], Values, adapter(ignores_ends=True), "differ: the advantage is", "step 12"),
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_passes_on_the_sound_one_and_is_proven_by_each_fault(name: str) -> None:
    (record,) = check_algorithm(Values, adapter=Of(), checks=[name])
    assert record.status is Status.PASS, record.finding
    assert all(each.detected for each in record.proofs)
    assert not record.unproven


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_fails_its_rule_and_says_where(defect: str) -> None:
    name, factory, own, seen, where = DEFECTS[defect]
    (record,) = check_algorithm(factory, adapter=own, checks=[name])
    assert (record.status, record.finding.where) == (Status.FAIL, where)
    assert seen in record.finding.seen


def test_the_advantages_are_those_of_the_formula() -> None:
    one = np.ones((2, 1))
    found = {"rewards": one, "values": 2 * one, "episode_starts": np.array([[1], [0]]), "gamma": 0.5, "gae_lambda": 0.5}
    later = {"last_values": np.full(1, 4.0), "last_episode_starts": np.zeros(1)}
    assert generalised_advantages({**found, **later}).ravel().tolist() == [0.25, 1.0]
    ended = {**later, "last_episode_starts": np.ones(1)}
    assert generalised_advantages({**found, **ended}).ravel().tolist() == [-0.25, -1.0]


def test_training_that_reads_no_ends_is_not_judged() -> None:
    (record,) = check_algorithm(LooksNoFurther, adapter=Of(), checks=[RULES[0]])
    assert record.finding.seen == "training does not depend on the ends of episodes"
