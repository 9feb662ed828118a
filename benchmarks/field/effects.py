"""How much a failed check changes training: the same training with the defect and without, under several seeds."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from benchmarks.field.records import Effect
from rlverify.checks.adapters.sb3 import SB3Adapter
from rlverify.checks.engine.session import OTHER_SEED, first_difference
from rlverify.checks.state.random_state import seed_globals
from rlverify.checks.state.trained import named_parameters

SEEDS: Final = (0, 1, 2)
EPISODES: Final = 20
ON_POLICY_STEPS: Final = 2048
OFF_POLICY_STEPS: Final = 1000
ADAPTER: Final = SB3Adapter()
Make = Callable[..., BaseAlgorithm]


@dataclass(frozen=True)
class _Ended:
    """A model after its training.

    :param trace: a digest of each step
    """

    parameters: torch.Tensor
    trace: Sequence[str]
    mean_return: float


def effect_of(check: str, make: Make) -> Effect | None:
    """The effect of a failed check, or None if it has none that is measured here.

    :param make: makes a model from a seed
    """
    measure = MEASURED.get(check)
    if measure is None:
        return None
    runs = [measure(make, seed) for seed in SEEDS]
    return Effect(
        steps=_steps(make(0)),
        first_difference=tuple(first_difference(without.trace, with_it.trace) for _, without, with_it in runs),
        distance=tuple(_distance(start, without, with_it) for start, without, with_it in runs),
        returns=tuple(without.mean_return for _, without, _ in runs),
        returns_with=tuple(with_it.mean_return for _, _, with_it in runs),
    )


def _resumed(make: Make, seed: int) -> tuple[torch.Tensor, _Ended, _Ended]:
    """Training that goes on, and the same training from a file with global generators in another state."""
    steps = _steps(make(seed))
    seed_globals(seed)
    model = make(seed)
    ADAPTER.learn(model, steps)
    start = _parameters(model)
    with tempfile.TemporaryDirectory() as name:
        ADAPTER.save(model, Path(name))
        continued = _trained(model, steps)
        seed_globals(OTHER_SEED + seed)
        resumed = _trained(ADAPTER.load(Path(name), make(seed)), steps)
    return start, continued, resumed


def _exchanged(make: Make, seed: int) -> tuple[torch.Tensor, _Ended, _Ended]:
    """A receiver that trains after it got copies of the parameters, and one that got them as they are.

    In between the source trains, as another member of a population does.
    """
    start, copied = _receiver(make, seed, copy.deepcopy)
    return start, copied, _receiver(make, seed, lambda parameters: parameters)[1]


def _receiver(make: Make, seed: int, handed: Callable[[Any], Any]) -> tuple[torch.Tensor, _Ended]:
    seed_globals(seed)
    source, receiver = make(seed), make(seed + len(SEEDS))
    steps = _steps(source)
    for model in (source, receiver):
        ADAPTER.learn(model, steps)
    ADAPTER.set_parameters(receiver, handed(ADAPTER.get_parameters(source)))
    start = _parameters(receiver)
    ADAPTER.learn(source, steps)
    return start, _trained(receiver, steps)


MEASURED: Final = {"resume_is_exact": _resumed, "set_parameters_copies": _exchanged}
"""By name of the check: trains without its defect and with it."""


def _steps(model: BaseAlgorithm) -> int:
    return OFF_POLICY_STEPS if isinstance(model, OffPolicyAlgorithm) else ON_POLICY_STEPS


def _trained(model: BaseAlgorithm, steps: int) -> _Ended:
    trace = ADAPTER.learn(model, steps)
    parameters = _parameters(model)
    env = model.get_env()
    assert env is not None
    env.seed(0)
    returns, _ = evaluate_policy(model, env, EPISODES, deterministic=True)
    return _Ended(parameters, trace, float(returns))  # type: ignore[arg-type]  # a number where no list is asked for


def _parameters(model: BaseAlgorithm) -> torch.Tensor:
    found = named_parameters(list(ADAPTER.modules(model)))
    return torch.cat([each.detach().flatten().clone() for each in found.values()])


def _distance(start: torch.Tensor, without: _Ended, with_it: _Ended) -> float:
    moved = float((without.parameters - start).norm())
    return float((with_it.parameters - without.parameters).norm()) / moved
