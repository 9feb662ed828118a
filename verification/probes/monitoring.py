"""Whether the metrics that document 001 wants monitored are logged with correct values."""

from __future__ import annotations

import math
import statistics
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter, Logger
from torch import nn

from rlcore import DistributionalPPO, PBTConfig, Population, ResumeWarning, VarianceGradientScaler, read_lineage
from rlcore.checkpoint.formats import FORMAT_V2
from rlverify import Observation, probe
from verification.probes.make import Make, equal

SIGMA = 0.1
UPGD_NOISE = {"sigma": SIGMA, "adaptive_noise": True, "noise_beta": 0.0, "lr": 1e-3}


class _Watch(BaseCallback):
    """Records the scaling factor of every step, and the rollout before training."""

    def __init__(self) -> None:
        super().__init__()
        self.factors: list[float] = []

    def _on_training_start(self) -> None:
        scaler: Any = self.model.variance_gradient_scaler  # type: ignore[attr-defined]
        scale = scaler.scale_gradients

        def recorded() -> float:
            self.factors.append(scale())
            return self.factors[-1]

        scaler.scale_gradients = recorded

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        buffer: Any = self.model.rollout_buffer  # type: ignore[attr-defined]
        self.factors.clear()
        self.critic_values = buffer.critic_values.astype(np.float64)
        self.values, self.returns = buffer.values.astype(np.float64), buffer.returns.astype(np.float64)


class _Last(KVWriter):
    """Records what was written last."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, Any], step: int = 0) -> None:  # noqa: ARG002
        self.values = dict(key_values)

    def close(self) -> None:
        """Nothing to close."""


@probe("an-update-tells-what-happened")
def an_update_tells_what_happened(make: Make, seed: int) -> Sequence[Observation]:
    """Train for two updates. Compare the logged values of the second with values computed here."""
    settings: dict[str, Any] = {"optimizer_class": "upgd", "optimizer_kwargs": UPGD_NOISE, "vgs_alpha": 1.0}
    found, seen = _logged(make.model(seed, **settings), 192)
    early, _ = _logged(make.model(seed, **{**settings, "vgs_warmup_steps": 1000}), 96)
    explained = 1 - (seen.returns - seen.values).var() / seen.returns.var()
    expected = {
        "optim/noise_to_signal": SIGMA,
        "train/explained_variance": explained,
        "twin_critics/divergence": np.abs(np.diff(seen.critic_values, axis=-1)).mean(),
        "train/value_variance": seen.values.var(),
    }
    complete = tuple(each.get("vgs/warmup_complete", math.nan) for each in (found, early))
    spread = (min(seen.factors), statistics.median(seen.factors), max(seen.factors))
    logged = tuple(found.get(f"vgs/scaling_factor_{name}", math.nan) for name in ("min", "median", "max"))
    return [
        *(_as_measured(key, value, found) for key, value in expected.items()),
        _same("vgs/scaling_factor_min, _median and _max", _short(spread), _short(logged), repeats=False),
        _same("vgs/warmup_complete after and during the warm-up", "1, 0", _short(complete)),
    ]


@probe("a-population-tells-of-its-exploits")
def a_population_tells_of_its_exploits(make: Make, seed: int) -> Sequence[Observation]:
    """Let the worse of two members copy the better one once. Check the lineage and the logs."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResumeWarning)
        population = _population(make, seed, folder)
        outputs = [_Last() for _ in population.models]
        for model, output in zip(population.models, outputs, strict=True):
            model.set_logger(Logger(None, [output]))
        population.train(2)
        copies = [event for event in read_lineage(folder) if event.event == "exploit"]
    formats = ", ".join(str(event.format) for event in copies)
    found = {
        name: _short([output.values.get(f"pbt/{name}", math.nan) for output in outputs])
        for name in ("exploit_count", "vgs_transferred", "exploitation_count")
    }
    return [
        equal("checkpoint format in the lineage", FORMAT_V2, formats),
        _same("pbt/exploit_count of members 0 and 1", "1, 0", found["exploit_count"]),
        _same("pbt/vgs_transferred of members 0 and 1", "1, 0", found["vgs_transferred"]),
        _same("pbt/exploitation_count logged by members 0 and 1", "1, 1", found["exploitation_count"]),
    ]


@probe("scaling-lowers-the-variance-and-not-beside-the-mean")
def scaling_lowers_the_variance_and_not_beside_the_mean(make: Make, seed: int) -> Sequence[Observation]:
    """Scale noisy gradients. Measure their variance before and after."""
    generator = torch.Generator().manual_seed(seed)
    weights = nn.Parameter(torch.zeros(100))
    scaler = make.scaler([weights], alpha=1.0, warmup_steps=50, estimator="element")
    raw, scaled = (make.scaler([weights], alpha=1.0, warmup_steps=0, estimator="element") for _ in range(2))
    for step in range(400):
        gradient = 0.3 + 0.3 * torch.randn(100, generator=generator)
        weights.grad = gradient.clone()
        scaler.scale_gradients()
        scaler.step()
        if step >= 100:
            scaled.update_statistics()
            weights.grad = gradient
            raw.update_statistics()
    relative = scaled.get_normalized_variance() / raw.get_normalized_variance()
    absolute = _variance(scaled) / _variance(raw)
    return [
        _same("variance of scaled gradients, compared with raw", "lower", _compared(absolute)),
        _same("variance / squared mean of scaled gradients, compared with raw", "the same", _compared(relative)),
    ]


def logged_noise(make: Make, seed: int, **noise: float) -> float:
    """The logged noise-to-signal ratio over sigma, with other options of the noise than those of the probe."""
    options = {**UPGD_NOISE, **noise}
    found, _ = _logged(make.model(seed, optimizer_class="upgd", optimizer_kwargs=options, vgs_alpha=1.0), 192)
    return found["optim/noise_to_signal"] / options["sigma"]


def _logged(model: DistributionalPPO, steps: int) -> tuple[Mapping[str, float], _Watch]:
    seen = _Watch()
    model.set_logger(Logger(None, []))
    model.learn(steps, callback=seen, log_interval=10**9)
    return dict(model.logger.name_to_value), seen


def _population(make: Make, seed: int, folder: str) -> Population:
    """Two members with different scores, so that the first copies the second after one update."""
    ranges: Any = [{"name": "learning_rate", "min_value": 1e-5, "max_value": 1e-2}]
    config = PBTConfig(population_size=2, perturbation_interval=1, hyperparams=ranges, truncation_ratio=0.5)
    return Population(
        lambda _, own: make.model(own % 1000, n_steps=8, batch_size=12, vgs_warmup_steps=3),
        config,
        folder=folder,
        seed=seed,
        performance=lambda model: -float(model.lr_schedule(1.0)),
        initial_hyperparams=[{"learning_rate": 1e-3}, {"learning_rate": 1e-5}],
    )


def _as_measured(key: str, expected: float, found: Mapping[str, float]) -> Observation:
    logged = found.get(key, math.nan)
    holds = bool(abs(logged - expected) <= 1e-3 * abs(expected))
    return Observation(key, f"{expected:.3g}", f"{logged:.3g}", holds, repeats=False)


def _same(symptom: str, expected: str, found: str, *, repeats: bool = True) -> Observation:
    return Observation(symptom, expected, found, holds=found == expected, repeats=repeats)


def _short(numbers: Iterable[float]) -> str:
    return ", ".join(f"{number:.3g}" for number in numbers)


def _variance(scaler: VarianceGradientScaler) -> float:
    return float(scaler._estimator.variance()[0])


def _compared(ratio: float) -> str:
    return "lower" if ratio < 0.9 else "higher" if ratio > 1.1 else "the same"
