"""Whether a loaded run continues the random sequences of the global generators."""

from __future__ import annotations

import io
import random
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback

from rlverify import Observation, probe
from verification.probes.make import Make

STEPS = 96
"""Of one rollout."""


class _Begun(BaseCallback):
    """Draws one number from each generator when training starts, then stops the run."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: Mapping[str, float] = {}

    def _on_training_start(self) -> None:
        self.numbers = _next_numbers()

    def _on_step(self) -> bool:
        return False


@probe("each-generator-goes-on-where-it-stood")
def each_generator_goes_on_where_it_stood(make: Make, seed: int) -> Sequence[Observation]:
    """Save a model and draw from every generator. Reseed them, load the model, and draw when it continues."""
    model, file = make.model(seed), io.BytesIO()
    model.learn(STEPS)
    model.save(file)
    file.seek(0)
    expected = _next_numbers()
    random.seed(seed + 1)
    np.random.seed(seed + 1)
    torch.manual_seed(seed + 1)
    loaded, begun = make.algorithm.load(file, env=make.envs(seed)), _Begun()
    loaded.learn(STEPS, callback=begun, reset_num_timesteps=False)
    observations = []
    for name, number in expected.items():
        goes_on = begun.numbers[name] == number
        after = "next in sequence" if goes_on else "out of sequence"
        observations.append(
            Observation(f"number that {name} draws after loading", "next in sequence", after, holds=goes_on)
        )
    return observations


def _next_numbers() -> Mapping[str, float]:
    return {
        "Python's generator": random.random(),
        "NumPy's generator": float(np.random.random()),
        "torch's generator": torch.rand(()).item(),
    }
