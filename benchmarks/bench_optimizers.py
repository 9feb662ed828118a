"""A step of the utility-gated optimizers next to one of Adam, what it costs at least, and how long the first takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch

from benchmarks.side_by_side import Target, compare, profile, table
from benchmarks.tensors import SIZES, parameters
from rlcore import UPGD, AdaptiveUPGD

TARGETS = dict(zip(SIZES, (0.6, 1.1, 0.6), strict=True))
ROUNDS = dict(zip(SIZES, (300, 60, 12), strict=True))
FIRST_STEPS = 5
FIRST_STEP = """
import time, torch
from rlcore import AdaptiveUPGD
parameter = torch.nn.Parameter(torch.ones(100))
parameter.grad = torch.ones(100)
optimizer = AdaptiveUPGD([parameter])
start = time.perf_counter()
optimizer.step()
print(time.perf_counter() - start)
"""


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("optimizer_class", [AdaptiveUPGD, UPGD])
def bench_step(benchmark: Any, optimizer_class: type[torch.optim.Optimizer], size: str) -> None:
    ours = optimizer_class(parameters(SIZES[size]), lr=1e-4)  # type: ignore[call-arg]
    silent = optimizer_class(parameters(SIZES[size]), lr=1e-4, sigma=0.0)  # type: ignore[call-arg]
    adam = torch.optim.Adam(parameters(SIZES[size]), lr=1e-4, foreach=True)
    limits = Target(TARGETS[size], limited_by="the same step without noise")
    compare(benchmark, ours.step, adam.step, limits, rounds=ROUNDS[size], floor=silent.step)


def bench_a_parameter_without_a_gradient(benchmark: Any) -> None:
    size = next(iter(SIZES))
    some, every = (AdaptiveUPGD(parameters(SIZES[size]), lr=1e-4) for _ in range(2))
    some.param_groups[0]["params"][3].grad = None
    compare(benchmark, some.step, every.step, Target(1.1), rounds=ROUNDS[size])


def bench_first_step(benchmark: Any, tmp_path: Path) -> None:
    """In a fresh process, after all imports but numba's; compiled anew, or loaded from the cache on disk."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    rows = []
    for name, target, warm in (("without a cache", "5 s", False), ("with a warm cache", "0.3 s", True)):
        times = []
        for number in range(FIRST_STEPS + warm):
            cache = tmp_path / ("warm" if warm else str(number))
            environment["NUMBA_CACHE_DIR"] = str(cache)
            output = subprocess.run(
                [sys.executable, "-c", FIRST_STEP], check=True, capture_output=True, text=True, env=environment
            )
            times.append(float(output.stdout))
        counted = times[warm:]  # the first with a warm cache is the one that fills it
        figures = " / ".join(f"{figure:.2f}" for figure in (min(counted), median(counted), max(counted)))
        rows.append([f"first step, {name}", target, figures, str(len(counted))])
    benchmark.pedantic(lambda: None)
    table(benchmark, ["of AdaptiveUPGD", "target, at most", "s (min / median / max)", "runs"], rows)


def bench_profile(benchmark: Any) -> None:
    steps = {size: AdaptiveUPGD(parameters(SIZES[size]), lr=1e-4).step for size in SIZES}
    profile(benchmark, steps, repetitions=20)
