"""``docs/tensorboard.md`` names what the event files of a training run hold, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from stable_baselines3.common.env_util import make_vec_env
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rlcore import DistributionalPPO
from rlcore.pbt import HyperparamConfig, PBTConfig
from rlcore.pbt.population import Population
from tests.support.scalar_tables import rows
from tests.support.training import make_model

EVERYTHING: dict[str, Any] = {
    "clip_range_vf": 0.3,
    "kl_penalty_target": 0.01,
    "n_critics": 2,
    "variance_gradient_scaling": True,
    "vgs_warmup_steps": 3,
    "optimizer_class": "adaptive_upgd",
    "policy_kwargs": {"lstm_hidden_size": 4, "net_arch": [4], "n_lstm_layers": 2, "enable_critic_lstm": True},
}


class Succeeding(gym.Wrapper[Any, Any, Any, Any]):
    """Calls every episode a success."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, {**info, "is_success": True}


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The names in the event files of two members that each trained for two rollouts, by name of the run."""
    folder = tmp_path_factory.mktemp("population")

    def build(_: Mapping[str, Any], seed: int) -> DistributionalPPO:
        envs = make_vec_env("Pendulum-v1", 3, seed=seed, wrapper_class=Succeeding, env_kwargs={"max_episode_steps": 10})
        return make_model(envs, **{**EVERYTHING, "seed": seed, "tensorboard_log": str(folder / "log")})

    ranges = [HyperparamConfig("learning_rate", min_value=1e-4, max_value=1e-3)]
    config = PBTConfig(population_size=2, perturbation_interval=1, hyperparams=ranges, seed=0)
    population = Population(build, config, folder=folder / "members")
    population.train(2)
    for model in population.models:
        model.logger.close()
    return {run.name: names_in(run) for run in (folder / "log").iterdir()}


def names_in(run: Path) -> set[str]:
    """The names of the scalars in the event files of a run, with ``{i}`` for the number of a layer."""
    events = EventAccumulator(str(run)).Reload()
    return {re.sub(r"layer[01]_", "layer{i}_", name) for name in events.Tags()["scalars"]}


def test_every_scalar_is_in_the_table_and_every_row_is_logged(logged: dict[str, set[str]]) -> None:
    assert sorted(logged) == ["member_0_0", "member_1_0"]
    table = [row["scalar"].strip("`") for row in rows("Logged")]
    assert len(set(table)) == len(table)
    for run, names in logged.items():
        assert sorted(names - set(table)) == [], f"{run} logs what the table lacks"
        assert sorted(set(table) - names) == [], f"the table names what {run} does not log"


def test_each_row_is_complete() -> None:
    for title, status in (("Logged", "logged"), ("Asked for and not logged", "not logged")):
        for row in rows(title):
            assert row["status"] == status
            assert all(row.values()), row
            assert status == "logged" or row["asked by"] != "-"
