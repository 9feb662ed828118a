"""The interval between exploits compared with the scaler's warm-up, by the documents' inequality and by running."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Any

import torch

from rlcore import (
    DistributionalPPO,
    PBTConfig,
    Population,
    PPOSettings,
    SettingError,
    apply_exploit,
    optimizer_steps_per_update,
)
from rlverify import Observation, probe
from verification.probes.make import Make, equal

ROLLOUT = 24
WARM_UP = 100
"""The documents' value, and the default."""


@probe("a-population-waits-whatever-the-batch-size")
def a_population_waits_whatever_the_batch_size(make: Make, seed: int) -> Sequence[Observation]:
    """Build populations whose first exploit comes before and after the end of the warm-up."""
    cases = {
        "population with an exploit after 4 steps, warm-up of 20, minibatches of 24": (
            {"batch_size": 24, "n_epochs": 4},
            20,
            "refused",
        ),
        "population with an exploit after 24 steps, warm-up of 20, minibatches of 2": (
            {"batch_size": 2, "n_epochs": 2},
            20,
            "built",
        ),
    }
    observations = []
    for symptom, (settings, warm_up, expected) in cases.items():
        found = _built(make, seed, vgs_warmup_steps=warm_up, **settings)
        observations.append(equal(symptom, expected, found))
    return observations


@probe("statistics-within-the-warm-up-do-nothing")
def statistics_within_the_warm_up_do_nothing(make: Make, seed: int) -> Sequence[Observation]:
    """Copy a member after 2 of 20 warm-up steps. Check the next scaling factor."""
    source, target = (_model(make, each, batch_size=12, n_epochs=1, vgs_warmup_steps=20) for each in (seed, seed + 1))
    source.learn(ROLLOUT)
    apply_exploit(target, source.get_parameters(), {})
    for parameter in target.policy.parameters():
        parameter.grad = torch.ones_like(parameter)
    factor = _scaler(target).scale_gradients()
    found = "1" if factor == 1.0 else "below 1"
    return [Observation("scaling factor after an exploit during the warm-up", "1", found, factor == 1.0)]


@probe("batch-size-times-interval-outlasts-the-warm-up")
def batch_size_times_interval_outlasts_the_warm_up(make: Make, seed: int) -> Sequence[Observation]:
    """Count the optimizer steps before the first exploit, for settings with interval * batch size > warm-up."""
    default = {name: PPOSettings.model_fields[name].default for name in ("n_steps", "batch_size", "n_epochs")}
    steps = optimizer_steps_per_update(n_envs=1, **default)
    interval: int = PBTConfig.model_fields["perturbation_interval"].default
    product = interval * default["batch_size"]
    settings = f"default settings, one environment, {interval} updates ({product} > {WARM_UP})"
    return [
        _outlasts(f"optimizer steps before the first exploit, {settings}", interval * steps),
        _trained_for(make, seed, 5, batch_size=24),
    ]


@probe("interval-above-warm-up-over-batch-size-outlasts-it")
def interval_above_warm_up_over_batch_size_outlasts_it(make: Make, seed: int) -> Sequence[Observation]:
    """Use document 001's interval of 10, with minibatches that satisfy its comment."""
    return [_trained_for(make, seed, 10, batch_size=24), _trained_for(make, seed, 10, batch_size=12)]


def _outlasts(symptom: str, steps: int) -> Observation:
    found = f"{steps} steps"
    return Observation(symptom, f"more than {WARM_UP} steps", found, steps > WARM_UP)


def _trained_for(make: Make, seed: int, interval: int, batch_size: int) -> Observation:
    """Train as many updates as come before the first exploit. Read the scaler's step count."""
    assert interval * batch_size > WARM_UP, "the inequality of the documents"
    model = _model(make, seed, batch_size=batch_size, n_epochs=1, vgs_warmup_steps=WARM_UP)
    model.learn(interval * ROLLOUT)
    settings = f"minibatches of {batch_size}, {interval} updates ({interval * batch_size} > {WARM_UP})"
    return _outlasts(f"optimizer steps before the first exploit, {settings}", _scaler(model).step_count)


def steps_if_steps_are_meant(make: Make, seed: int) -> int:
    """Optimizer steps before the first exploit, where interval * steps of an update just exceeds the warm-up of 100."""
    batch_size, n_epochs = (24, 12, 8, 6)[seed % 4], 1 + seed // 4
    of_update = optimizer_steps_per_update(n_steps=8, n_envs=3, batch_size=batch_size, n_epochs=n_epochs)
    model = _model(make, seed, batch_size=batch_size, n_epochs=n_epochs, vgs_warmup_steps=WARM_UP)
    model.learn((WARM_UP // of_update + 1) * ROLLOUT)
    return int(_scaler(model).step_count)


def _built(make: Make, seed: int, **settings: Any) -> str:
    config = PBTConfig(population_size=2, perturbation_interval=1)
    with tempfile.TemporaryDirectory() as folder:
        try:
            Population(lambda _, own: _model(make, own % 1000, **settings), config, folder=folder, seed=seed)
        except SettingError as error:
            return "refused" if error.setting == "perturbation_interval" else "refused for another reason"
    return "built"


def _model(make: Make, seed: int, **settings: Any) -> DistributionalPPO:
    return make.model(seed, n_steps=8, vgs_alpha=1.0, **settings)


def _scaler(model: DistributionalPPO) -> Any:
    return model.variance_gradient_scaler
