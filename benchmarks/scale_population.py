"""A population without training: the real scheduler and real files, with scores of a seeded generator."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final

import numpy as np
import torch
from stable_baselines3.common.env_util import make_vec_env

from rlcore import DistributionalPPO, HyperparamConfig, PBTConfig, PBTScheduler, PopulationMember
from rlcore.checkpoint.container import write_atomic
from rlcore.pbt.population import LINEAGE_FILE, MEMBERS, STATE_FILE, LineageEvent, append_lineage

SIZES: Final = (10, 100, 1_000, 10_000)
ROUNDS: Final = 3
INTERVAL: Final = 5
"""Updates of a member between two decisions."""
METHODS: Final = ("truncation", "binary_tournament")
SAMPLE: Final = {"commits": 2, "records": 50, "decisions": 50, "statistics": 200}
"""How many are measured each round of what a whole round has too many of."""
WEIGHTS: Final = 1_000
"""Numbers in each of the three tensors that a member saves: its weights and Adam's two moments."""
MODELS: Final = 8
MODEL: Final[dict[str, Any]] = {"policy_kwargs": {"lstm_hidden_size": 64, "net_arch": {"pi": [64, 64], "vf": [64, 64]}}}
HYPERPARAMS: Final = (
    HyperparamConfig("learning_rate", min_value=1e-5, max_value=1e-3, is_log_scale=True),
    HyperparamConfig("momentum", values=[0.8, 0.9, 0.95, 0.99]),
    HyperparamConfig("n_epochs", min_value=1, max_value=12),
)
MIB: Final = 2**20


@dataclass
class Cost:
    """What something took, all times that it was measured together.

    :param measured: how often
    :param wall_s: seconds of the clock
    :param cpu_s: seconds of this process on a processor; what it waits for the disk does not count
    """

    measured: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0

    def per_call(self) -> dict[str, float]:
        """The same for one call, in four digits."""
        count = max(1, self.measured)
        seconds = {"wall_s": self.wall_s / count, "cpu_s": self.cpu_s / count}
        return {"measured": self.measured, **{name: float(f"{each:.4g}") for name, each in seconds.items()}}


@dataclass
class Costs:
    """Costs by name."""

    found: dict[str, Cost] = field(default_factory=dict)

    @contextmanager
    def measured(self, name: str, times: int = 1) -> Iterator[None]:
        """Add what the block takes.

        :param times: how often it does what ``name`` says
        """
        wall, cpu = perf_counter(), process_time()
        yield
        wall, cpu = perf_counter() - wall, process_time() - cpu
        cost = self.found.setdefault(name, Cost())
        cost.measured, cost.wall_s, cost.cpu_s = cost.measured + times, cost.wall_s + wall, cost.cpu_s + cpu


def config_of(size: int, folder: Path) -> PBTConfig:
    """A population of ``size`` over three kinds of hyperparameter, with its checkpoints in ``folder``."""
    return PBTConfig(
        population_size=size,
        hyperparams=list(HYPERPARAMS),
        perturbation_interval=INTERVAL,
        checkpoint_dir=folder / "checkpoints",
        seed=0,
    )


class SimulatedPopulation:
    """Does what :class:`rlcore.Population` does between trainings, and measures each part.

    In place of models it makes empty files, one a member.

    :param folder: of the population's files
    """

    def __init__(self, size: int, folder: Path) -> None:
        self.folder, self.size, self.costs = folder, size, Costs()
        (folder / MEMBERS).mkdir(parents=True)
        self.config = config_of(size, folder)
        self.scheduler = PBTScheduler(self.config)
        self.members = self.scheduler.initialize_population()
        self.lineage_size = 0
        self.scores = np.random.default_rng(0)
        self.state_bytes: list[int] = []

    def report(self, step: int) -> None:
        """Compute the statistics for the log, let every member report, and put a model's file in place."""
        for _ in range(SAMPLE["statistics"]):
            with self.costs.measured("statistics"):
                self.scheduler.get_stats()
        scores = self.scores.normal(size=self.size)
        weights = torch.zeros(WEIGHTS)
        moments = {"exp_avg": weights, "exp_avg_sq": weights}
        for member, score in zip(self.members, scores, strict=True):
            parameters = {"policy": {"w": weights + score}, "policy.optimizer": {"state": {0: moments}}}
            with self.costs.measured("report"):
                self.scheduler.update_performance(member, float(score), step, parameters)
            self._new_model_file(member, f"member_{member.member_id}_step_{step}.zip")

    def _new_model_file(self, member: PopulationMember, name: str) -> None:
        self._model_file(name).touch()
        if member.model_file is not None:
            self._model_file(member.model_file).unlink()
        member.model_file = name

    def _model_file(self, name: str) -> Path:
        return self.folder / MEMBERS / name

    def commit(self, explored_step: int) -> None:
        """Do what ``Population._commit`` does."""
        with self.costs.measured("state"):
            state = {
                "seed": 0,
                "config": self.config.model_dump(mode="json", exclude={"checkpoint_dir", "seed"}),
                "explored_step": explored_step,
                "lineage_size": self.lineage_size,
                "scheduler": self.scheduler.state_dict(),
            }
        with self.costs.measured("write"):
            write_atomic(self.folder / STATE_FILE, json.dumps(state).encode())
        with self.costs.measured("old models"):
            for path in self._model_file("").glob("member_0_step_*.zip"):
                if path.name != self.members[0].model_file:
                    path.unlink(missing_ok=True)

    def append_records(self) -> None:
        """Measure a cheaper commit: a synced line with what the turn of one member changed."""
        some = self._some(SAMPLE["records"])
        with (self.folder / "turns.jsonl").open("ab") as file, self.costs.measured("one record", times=len(some)):
            for member in some:
                file.write(json.dumps(member.state_dict()).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())

    def decide(self) -> None:
        """Measure decisions alone, which changes nothing: every member under one ranking, and some that each rank."""
        scheduler, before = self.scheduler, self.scheduler.generator.bit_generator.state
        for method in METHODS:
            scheduler.config = self.config.model_copy(update={"exploit_method": method})
            with self.costs.measured(f"decision, {method}", times=self.size):
                ranked = scheduler.ranked()
                for member in self.members:
                    if scheduler.is_ready():
                        scheduler.choose_source(member, ranked)
            some = self._some(SAMPLE["decisions"])
            with self.costs.measured(f"decision that ranks, {method}", times=len(some)):
                for member in some:
                    if scheduler.is_ready():
                        scheduler.choose_source(member)
        scheduler.config, scheduler.generator.bit_generator.state = self.config, before

    def exploit(self, step: int) -> None:
        """Let every member copy and explore, and add the events to the lineage."""
        events = []
        ranked = self.scheduler.ranked()
        for member in self.members:
            before = dict(member.hyperparams)
            with self.costs.measured("exploit"):
                parameters, hyperparams, kind = self.scheduler.exploit_and_explore(member, ranked)
            if parameters is not None:
                member.exploits += 1
                who, score = (member.copied_from, step, kind), member.performance
                events.append(LineageEvent("exploit", member.member_id, step, score, dict(hyperparams), before, *who))
        with self.costs.measured("lineage"):
            self.lineage_size = append_lineage(self.folder / LINEAGE_FILE, self.lineage_size, events)

    def _some(self, number: int) -> list[PopulationMember]:
        """So many of the members, evenly spaced; all of a small population."""
        return self.members[:: max(1, self.size // number)][:number]


def simulate(size: int, folder: Path) -> dict[str, Any]:
    """Rounds of a population of ``size``: costs of one call by name, files, bytes, and the peak memory of this process.

    :param folder: a new one
    """
    start = peak_mib()
    population = SimulatedPopulation(size, folder)
    for number in range(1, ROUNDS + 1):
        population.report(number * INTERVAL)
        for _ in range(SAMPLE["commits"]):
            population.commit((number - 1) * INTERVAL)
        population.state_bytes.append((folder / STATE_FILE).stat().st_size)
        population.decide()
        population.exploit(number * INTERVAL)
        population.append_records()
    population.commit(ROUNDS * INTERVAL)
    (folder / "turns.jsonl").unlink()
    checkpoints = [path.stat().st_size for path in (folder / "checkpoints").iterdir()]
    return {
        "members": size,
        "rounds": ROUNDS,
        "copies": population.scheduler.exploitation_count,
        "costs": {name: cost.per_call() for name, cost in population.costs.found.items()},
        "state_bytes": population.state_bytes,
        "checkpoint_files": len(checkpoints),
        "checkpoint_bytes": sum(checkpoints),
        "files": sum(path.is_file() for path in folder.rglob("*")),
        "lineage_bytes": (folder / LINEAGE_FILE).stat().st_size,
        "start_mib": start,
        "peak_mib": peak_mib(),
    }


def one_model(folder: Path) -> dict[str, Any]:
    """What one live model costs in memory and on disk after an update: CartPole in one environment, LSTM 64.

    :param folder: for one file
    """
    torch.set_num_threads(1)
    first, start = _trained_model(0), peak_mib()
    models = [first, *(_trained_model(seed) for seed in range(1, MODELS + 1))]
    memory = (peak_mib() - start) / MODELS
    path, costs = folder / "model.zip", Costs()
    for model in models:
        with costs.measured("save"):
            model.save(path)
    return {"memory_mib": round(memory, 2), "file_bytes": path.stat().st_size, "save": costs.found["save"].per_call()}


def _trained_model(seed: int) -> DistributionalPPO:
    env = make_vec_env("CartPole-v1", n_envs=1, seed=seed)
    model = DistributionalPPO("MlpLstmPolicy", env, seed=seed, device="cpu", **MODEL)
    return model.learn(model.n_steps)


def peak_mib() -> int:
    """Peak memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
