"""Runs some mutants, drawn at random, and compares what survives: ``python -m tests.mutation.sample 300 [SEED]``.

Exit codes as of :mod:`tests.mutation.compare`. The seed is printed, so that the same mutants can be run again.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Collection

from tests.mutation.compare import main as compare
from tests.mutation.compare import names_of_mutants

NO_MUTANT = "none"


def drawn(names: Collection[str], count: int, seed: int) -> list[str]:
    """Return ``count`` of the names, or all if they are fewer; the same for the same seed."""
    return random.Random(seed).sample(sorted(names), min(count, len(names)))


def main(count: str, seed: str = "") -> int:
    """Make all mutants, run some of them, and compare these."""
    number = int(seed or time.time())
    command = [sys.executable, "-m", "mutmut", "run"]
    subprocess.run([*command, NO_MUTANT], check=False, capture_output=True)  # makes them, and finds none of this name
    chosen = drawn(names_of_mutants(), int(count), number) or [NO_MUTANT]
    print(f"{len(chosen)} mutants, drawn with seed {number}", flush=True)
    subprocess.run([*command, *chosen], check=True)
    return compare(" ".join(chosen))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
