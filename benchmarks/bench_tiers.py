"""Seconds that all checks of one algorithm take in a tier, on one core."""

from __future__ import annotations

import time
import warnings
from typing import Any

import pytest

from benchmarks.field.algorithms import ALGORITHMS
from rlverify.checks import Status, check_algorithm
from rlverify.checks.engine.session import TIERS, TierName

LIMITS = {"smoke": 10, "default": 60}
COLUMNS = ["algorithm", "seconds", "checks that were run", "faults planted"]


@pytest.mark.parametrize("tier", TIERS)
def bench_tiers(tier: TierName, benchmark: Any) -> None:
    rows: list[list[str]] = []
    slowest = 0.0
    for algorithm in ALGORITHMS:
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TRPO warns of its own defaults, which pytest makes an error
            found = check_algorithm(algorithm.defaults, name=algorithm.name, tier=tier)
        seconds = time.perf_counter() - started
        slowest = max(slowest, seconds)
        assert not any(each.finding.status is Status.ERROR for each in found), algorithm.name
        run = sum("are used up" not in each.finding.seen for each in found)
        planted = sum(len(each.proofs) for each in found)
        rows.append([algorithm.name, f"{seconds:.1f}", f"{run} of {len(found)}", str(planted)])
    target = f" (target below {LIMITS[tier]} s)" if tier in LIMITS else ""
    benchmark.extra_info.update(columns=COLUMNS, rows=rows, note=f"The slowest algorithm: {slowest:.1f} s{target}.")
    benchmark.pedantic(lambda: None)
