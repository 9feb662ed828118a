"""Whether the global generators go on where they stood when a run goes on."""

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
    """The next number of each generator when a run begins; the run then ends."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: Mapping[str, float] = {}

    def _on_training_start(self) -> None:
        self.numbers = _next_numbers()

    def _on_step(self) -> bool:
        return False


@probe("each-generator-goes-on-where-it-stood")
def each_generator_goes_on_where_it_stood(make: Make, seed: int) -> Sequence[Observation]:
    """Save a model, draw from every generator, seed them all again, and draw where the loaded model goes on."""
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
        after = "the next number" if goes_on else "another number"
        observations.append(Observation(f"what {name} draws after loading", "the next number", after, holds=goes_on))
    return observations


def _next_numbers() -> Mapping[str, float]:
    return {
        "Python's generator": random.random(),
        "NumPy's generator": float(np.random.random()),
        "torch's generator": torch.rand(()).item(),
    }
