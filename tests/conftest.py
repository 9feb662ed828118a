"""What every test shares: one thread, derandomised properties."""

from __future__ import annotations

import os

import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)

settings.register_profile("default", deadline=None, max_examples=30, derandomize=True, database=None)
settings.register_profile(
    "search",
    deadline=None,
    max_examples=500,
    derandomize=False,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
