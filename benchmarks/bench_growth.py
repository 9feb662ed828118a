"""What grows and what does not: memory and time over a long run, and an exploit's cost with the population."""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from stable_baselines3.common.env_util import make_vec_env

from benchmarks.side_by_side import series, table
from rlcore import DistributionalPPO, HyperparamConfig, PBTConfig, PBTScheduler

UPDATES, WINDOW = 1000, 100
POPULATIONS = (4, 8, 16, 32, 64, 1024)
ROUNDS = 3


def bench_updates(benchmark: Any) -> None:
    model = DistributionalPPO(
        "MlpLstmPolicy",
        make_vec_env("CartPole-v1", n_envs=2, seed=0),
        n_steps=16,
        batch_size=32,
        n_epochs=2,
        variance_gradient_scaling=True,
        policy_kwargs={"lstm_hidden_size": 16, "net_arch": [16]},
        seed=0,
        device="cpu",
    )
    seconds, mebibytes = [], []

    def update() -> None:
        start = perf_counter()
        model.learn(32, reset_num_timesteps=False)
        seconds.append(perf_counter() - start)
        mebibytes.append(_resident())

    benchmark.pedantic(update, rounds=UPDATES, iterations=1)
    windows = [slice(first, first + WINDOW) for first in range(0, UPDATES, WINDOW)]
    milliseconds = [1e3 * median(seconds[window]) for window in windows]
    memory = [median(mebibytes[window]) for window in windows]
    rows = [
        [f"{w.start + 1} to {w.stop}", f"{t:.2f}", f"{m:.1f}"]
        for w, t, m in zip(windows, milliseconds, memory, strict=True)
    ]
    note = (
        f"From the second window to the last: {milliseconds[-1] / milliseconds[1] - 1:+.1%} time, "
        f"{memory[-1] - memory[1]:+.1f} MiB ({memory[-1] / memory[1] - 1:+.2%}), in which Stable-Baselines3's Monitor "
        "keeps three numbers of every episode."
    )
    table(benchmark, ["updates", "median ms an update", "median resident MiB"], rows, note)
    updates = [float(window.stop) for window in windows]
    series(benchmark, "update", updates, {"ms an update": milliseconds, "resident MiB": memory})


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def bench_exploits(benchmark: Any, tmp_path: Path) -> None:
    """Simulated members: random scores, and the parameters of a small network."""
    parameters = {
        "policy": {str(i): torch.randn(64, 64) for i in range(20)},
        "policy.optimizer": {"state": {}, "param_groups": []},
    }
    deciding, reporting = [], []
    for size in POPULATIONS:
        report_s, decide_s = _round(size, parameters, tmp_path / str(size))
        reporting.append(1e3 * report_s)
        deciding.append(1e3 * decide_s)
    benchmark.pedantic(lambda: None)
    rows = [[str(size), f"{r:.3f}", f"{d:.3f}"] for size, r, d in zip(POPULATIONS, reporting, deciding, strict=True)]
    columns = ["members", "ms to report and save, a member", "ms to exploit and explore, a member"]
    table(benchmark, columns, rows, _on_paper(reporting, deciding))
    sizes = [float(size) for size in POPULATIONS]
    series(benchmark, "members", sizes, {"report, ms": reporting, "exploit, ms": deciding}, logarithmic=True)


def _on_paper(reporting: list[float], deciding: list[float], size: int = 10_000) -> str:
    """What the two largest populations say of one of ``size`` members."""
    growth = (deciding[-1] - deciding[-2]) / (POPULATIONS[-1] - POPULATIONS[-2])
    decision = deciding[-1] + growth * (size - POPULATIONS[-1])
    return (
        f"A decision reads one file and sorts the whole population, so that it grows by {1e3 * growth:.2f} "
        f"microseconds a member. On paper, {size:,} members: {decision:.1f} ms a decision, "
        f"{decision * size / 1e3:.0f} s a round of all, beside {reporting[-1] * size / 1e3:.0f} s to save them one "
        "after the other; sorting once a round instead of once a member would then be what pays."
    )


def _round(size: int, parameters: dict[str, Any], folder: Path) -> tuple[float, float]:
    """Median seconds a member takes to report, and to exploit and explore."""
    config = PBTConfig(
        population_size=size,
        perturbation_interval=1,
        checkpoint_dir=str(folder),
        hyperparams=[HyperparamConfig("learning_rate", min_value=1e-5, max_value=1e-3, is_log_scale=True)],
    )
    scheduler = PBTScheduler(config, seed=0)
    members = scheduler.initialize_population()
    generator = torch.Generator().manual_seed(0)
    times: tuple[list[float], list[float]] = [], []
    for step in range(1, ROUNDS + 1):
        scores = torch.randn(size, generator=generator).tolist()
        start = perf_counter()
        for member, score in zip(members, scores, strict=True):
            scheduler.update_performance(member, score, step, model_parameters=parameters)
        between = perf_counter()
        for member in members:
            scheduler.exploit_and_explore(member)
        times[0].append((between - start) / size)
        times[1].append((perf_counter() - between) / size)
    return median(times[0]), median(times[1])
