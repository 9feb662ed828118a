"""What a worker process does after a block with a time limit."""

from __future__ import annotations

import time

from rlverify.running.runner import run_within


def ends_in_time_and_lives_on(limit: float, after: float) -> bool:
    run_within(limit, lambda: None)
    time.sleep(after)
    return True
