"""How far targets are from where they belong while the return scale lags one update behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from rlcore import DistributionalPPO
from rlcore.ppo.adaptive import Moments
from rlverify import experiment, get_fault, plant
from verification.experiments.training import untrained, update
from verification.faults import returns as registered_there  # noqa: F401
from verification.probes.make import Make
from verification.probes.returns import ScaledRewards

UPDATES: Final = 14
STARTED: Final = 2
"""Updates that are not counted while learning: before the first there are no statistics to be late."""

UPDATES_STILL: Final = 30
WARMED_IN: Final = 20
"""Updates that are not counted where nothing is learnt: twice the time over which statistics of decay 0.9 average."""

STILL: Final[Mapping[str, Any]] = {
    "optimizer_class": "sgd",
    "learning_rate": 1e-30,
    "n_epochs": 1,
    "variance_gradient_scaling": False,
}
"""Steps too small to move any weight."""

GROWTH: Final = 2.0
FIX: Final = "fnd-25-fix-snapshot-after-training"


@experiment("lag-of-the-return-scale")
def lag_of_the_return_scale(make: Make, seed: int) -> Mapping[str, float]:
    """Targets under three orders of measuring and scaling, while CartPole is learnt and when rewards then double."""
    lagged, without = (lag_errors(make, seed, rule) for rule in ("snapshot", "zero_lag"))
    with plant(get_fault(FIX)):
        fixed = lag_errors(make, seed, "snapshot")
    learning, fixed_learning, without_learning = (np.mean(each[STARTED:UPDATES]) for each in (lagged, fixed, without))
    still = errors_of_updates(model_of(make, seed, "snapshot", **STILL), UPDATES_STILL)
    return {
        "bias under an unchanging policy": float(np.mean(still[WARMED_IN:])),
        "bias while learning": float(learning),
        "bias when rewards double": lagged[-1],
        "bias removed by the documented fix": float(learning - fixed_learning),
        "bias removed by zero lag": float(learning - without_learning),
    }


def lag_errors(make: Make, seed: int, rule: str) -> list[float]:
    """`errors_of_updates` while a model learns, and of one more after rewards have grown."""
    model = model_of(make, seed, rule)
    errors = errors_of_updates(model, UPDATES)
    envs: Any = model.get_env()
    envs.factor = GROWTH
    return errors + errors_of_updates(model, 1)


def model_of(make: Make, seed: int, rule: str, **settings: Any) -> DistributionalPPO:
    """A model whose rewards can be made to grow."""
    return untrained(make, seed, wrapper=ScaledRewards, return_scale=rule, **settings)


def errors_of_updates(model: DistributionalPPO, updates: int) -> list[float]:
    """Of each update, `relative_error` of the targets that the loss was given under statistics that contain them."""
    given: list[tuple[Tensor, Tensor]] = []
    normalise = model.value_scale.normalise

    def recording(returns: Tensor) -> Tensor:
        scaled = normalise(returns)
        given.append((returns.double().flatten(), scaled.double().flatten()))
        return scaled

    model.value_scale.normalise = recording  # type: ignore[method-assign]
    errors = []
    for _ in range(updates):
        given.clear()
        update(model)
        raw, scaled = (torch.cat(parts) for parts in zip(*given, strict=True))
        errors.append(relative_error(raw, scaled, model.value_scale.statistics))
    del model.value_scale.normalise
    return errors


def relative_error(raw: Tensor, scaled: Tensor, current: Moments) -> float:
    """How far scaled returns are from those scaled with ``current``.

    :param raw: returns, shape (n,)
    :param scaled: what was made of them, shape (n,)
    :return: root mean square of the difference over that of the returns rightly scaled, in %
    """
    right = (raw - current.mean) / current.std
    return 100.0 * float((scaled - right).square().mean().sqrt() / right.square().mean().sqrt())
