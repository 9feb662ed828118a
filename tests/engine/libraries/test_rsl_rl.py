"""The adapter of RSL-RL on a small training of PPO."""

from __future__ import annotations

import contextlib
import copy
import io
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("rsl_rl")

from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict

from rlverify.checks import Status
from rlverify.checks.adapters.rsl_rl import RslRlAdapter
from tests.engine.libraries.findings import all_decided, checked, failed, loses

NETWORK: dict[str, Any] = {"class_name": "MLPModel", "hidden_dims": [16], "obs_normalization": True}
SETTINGS: dict[str, Any] = {
    "num_steps_per_env": 8,
    "save_interval": 50,
    "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
    "algorithm": {"class_name": "PPO", "num_learning_epochs": 2, "num_mini_batches": 2, "schedule": "fixed"},
    "actor": {**NETWORK, "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 1.0}},
    "critic": NETWORK,
}


class Points(VecEnv):  # type: ignore[misc]
    """Points that are pushed to the origin."""

    def __init__(self) -> None:
        self.num_envs, self.num_actions, self.max_episode_length, self.device = 4, 1, 20, "cpu"
        self.cfg: dict[str, Any] = {}
        self.episode_length_buf = torch.zeros(4, dtype=torch.long)
        self.generator = torch.Generator().manual_seed(0)
        self.place = torch.rand(4, 2, generator=self.generator)

    def get_observations(self) -> TensorDict:
        return TensorDict({"policy": self.place.clone()}, batch_size=[4])

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict[str, Any]]:
        self.place = self.place + 0.1 * torch.cat([self.place[:, 1:], actions.clamp(-1, 1)], 1)
        rewards = -self.place.square().sum(1)
        self.episode_length_buf = self.episode_length_buf + 1
        ends = self.episode_length_buf >= self.max_episode_length
        starts = torch.rand(4, 2, generator=self.generator)
        self.place = torch.where(ends[:, None], starts, self.place)
        self.episode_length_buf = self.episode_length_buf * ~ends
        return self.get_observations(), rewards, ends, {"time_outs": ends}


def ppo() -> OnPolicyRunner:
    with contextlib.redirect_stdout(io.StringIO()):
        return OnPolicyRunner(Points(), copy.deepcopy(SETTINGS))


class Forgets(RslRlAdapter):
    """Does not load a part."""

    def __init__(self, part: str) -> None:
        self.part = part

    def load(self, folder: Path, fresh: Any) -> Any:
        new = copy.deepcopy(fresh.alg.save())
        model = super().load(folder, fresh)
        model.alg.load(new, {self.part: True}, True)
        return model


def test_every_check_of_ppo_is_decided() -> None:
    assert failed(all_decided(ppo).values()) == {"resume_is_exact", "artefact_runs_nothing_when_read"}


def test_only_the_environment_and_generators_are_lost() -> None:
    causes = checked(ppo, "resume_is_exact").finding.causes
    assert {each.split(".")[0] for each in causes} <= {"env", "global random generators"}


@pytest.mark.parametrize("part", ["optimizer", "critic"])
def test_a_part_that_is_not_loaded_is_found(part: str) -> None:
    assert loses(checked(ppo, "resume_is_exact", Forgets(part)), f"alg.{part}")


def test_a_learning_rate_that_the_adaptive_schedule_overwrites_is_found() -> None:
    class OfOptimizer(RslRlAdapter):
        def set_learning_rate(self, model: Any, value: float) -> None:
            model.alg.optimizer.param_groups[0]["lr"] = value

    def adaptive() -> OnPolicyRunner:
        runner = ppo()
        runner.alg.schedule = "adaptive"
        return runner

    assert checked(ppo, "learning_rate_takes_effect", OfOptimizer()).status is Status.PASS
    assert checked(adaptive, "learning_rate_takes_effect", OfOptimizer()).status is Status.FAIL
