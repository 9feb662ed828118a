"""Seconds that all checks of one algorithm take in each tier, on one core."""

from __future__ import annotations

import time
import warnings
from typing import Any

from rlverify.checks import CheckRecord, Status, check_algorithm
from rlverify.checks.tiers import TIERS
from rlverify.field.algorithms import ALGORITHMS

LIMITS = {"smoke": 10, "default": 60}
COLUMNS = ["algorithm", *(f"{name}, s" for name in TIERS), "checks in smoke", "faults in default", "faults in full"]


def bench_tiers(benchmark: Any) -> None:
    rows: list[list[str]] = []
    slowest = dict.fromkeys(TIERS, 0.0)
    for algorithm in ALGORITHMS:
        seconds: dict[str, float] = {}
        found: dict[str, list[CheckRecord]] = {}
        for tier in TIERS:
            started = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # TRPO warns of its own defaults, which pytest makes an error
                found[tier] = check_algorithm(algorithm.defaults, name=algorithm.name, tier=tier)
            seconds[tier] = time.perf_counter() - started
            assert not any(each.finding.status is Status.ERROR for each in found[tier]), algorithm.name
            slowest[tier] = max(slowest[tier], seconds[tier])
        run = sum("are used up" not in each.finding.seen for each in found["smoke"])
        planted = [sum(len(each.proofs) for each in found[tier]) for tier in ("default", "full")]
        cells = [f"{each:.1f}" for each in seconds.values()]
        rows.append([algorithm.name, *cells, f"{run} of {len(found['smoke'])}", *map(str, planted)])
    targets = ", ".join(f"{tier} {slowest[tier]:.1f} s (target below {limit} s)" for tier, limit in LIMITS.items())
    benchmark.extra_info.update(columns=COLUMNS, rows=rows, note=f"The slowest algorithm: {targets}.")
    benchmark.pedantic(lambda: None)
