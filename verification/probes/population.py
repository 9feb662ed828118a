"""When a population lets its members copy each other."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from rlcore import DistributionalPPO, PBTConfig, Population, PopulationMember, SettingError, apply_exploit
from rlverify import Observation, probe
from verification.probes.make import Make, equal

STEPS = 4
"""Optimizer steps of one update, after which the first exploit comes."""
LONG, SHORT = 20, 3
"""Warm-ups longer and shorter than STEPS."""
RATES = [{"learning_rate": 1e-3}, {"learning_rate": 1e-4}]
ROLLOUT = 24


@probe("exploits-wait-for-the-warm-up")
def exploits_wait_for_the_warm_up(make: Make, seed: int) -> Sequence[Observation]:
    """Let two members exploit after 4 optimizer steps, with scaler warm-ups of 20 and of 3 steps."""
    early, late = (_outcome(make, seed, warm_up) for warm_up in (LONG, SHORT))
    immature, mature = (_factor_after_exploit(make, seed, warm_up) for warm_up in (LONG, SHORT))
    trained = f"trained, step_count handed over: {STEPS}"
    return [
        equal(f"population that exploits after {STEPS} steps, warm-up of {LONG}", "refused", early),
        equal(f"population that exploits after {STEPS} steps, warm-up of {SHORT}", trained, late),
        Observation("scaling factor after an exploit during the warm-up", "1", _compared(immature), immature == 1.0),
        Observation("scaling factor after an exploit past the warm-up", "below 1", _compared(mature), mature < 1.0),
    ]


def _outcome(make: Make, seed: int, warm_up: int) -> str:
    """Build and train such a population. Return whether it is refused, or what its exploits hand over."""
    ranges: Any = [{"name": "learning_rate", "min_value": 1e-5, "max_value": 1e-2}]
    config = PBTConfig(population_size=2, perturbation_interval=1, hyperparams=ranges, truncation_ratio=0.5)
    copied: list[int] = []

    def build(_: Mapping[str, Any], own_seed: int) -> DistributionalPPO:
        return _model(make, own_seed % 1000, warm_up)

    def watch(status: PopulationMember) -> None:
        if status.copied_from is not None:
            copied.append(_scaler(population.models[status.member_id]).step_count)

    with tempfile.TemporaryDirectory() as folder:
        try:
            population = Population(
                build,
                config,
                folder=folder,
                seed=seed,
                performance=lambda model: float(model.lr_schedule(1.0)),
                initial_hyperparams=RATES,
            )
        except SettingError as error:
            return "refused" if error.setting == "perturbation_interval" else str(error)
        population.train(2, watch)
    return f"trained, step_count handed over: {', '.join(map(str, copied)) or 'none'}"


def _factor_after_exploit(make: Make, seed: int, warm_up: int) -> float:
    """The factor by which the receiver's next gradients are scaled."""
    source, target = _model(make, seed, warm_up), _model(make, seed + 1, warm_up)
    source.learn(ROLLOUT)
    apply_exploit(target, source.get_parameters(), {})
    for parameter in target.policy.parameters():
        parameter.grad = torch.ones_like(parameter)
    return float(_scaler(target).scale_gradients())


def _model(make: Make, seed: int, warm_up: int) -> DistributionalPPO:
    return make.model(seed, n_steps=8, batch_size=12, vgs_warmup_steps=warm_up, vgs_alpha=1.0)


def _scaler(model: DistributionalPPO) -> Any:
    return model.variance_gradient_scaler


def _compared(factor: float) -> str:
    return "1" if factor == 1.0 else "below 1" if factor < 1.0 else "above 1"
