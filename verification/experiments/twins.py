"""Whether the smaller of two critics overestimates less than one of them does alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from torch import Tensor

from rlcore import DistributionalPPO
from rlverify import experiment
from verification.experiments.episodes import Episodes, Listener, first_episodes
from verification.experiments.training import untrained
from verification.probes.make import Make

UPDATES: Final = 12
N_ENVS: Final = 256

UNCHANGING: Final[Mapping[str, Any]] = {
    "learning_rate": 1e-9,
    "critic_lr_multiplier": 2e6,
    "return_scale": "zero_lag",
}
"""Critics that learn beside a policy that does not: of one that improves, every value is too low."""


@experiment("overestimation-by-critics")
def overestimation_by_critics(make: Make, seed: int) -> Mapping[str, float]:
    """Values of states beside the discounted returns that followed, where two critics learnt them.

    The same two critics from the same start; advantages, targets and values come from the smaller or from the first.
    """
    smaller, first = untrained(make, seed, **UNCHANGING), untrained(make, seed, **UNCHANGING)
    take_the_first(first)
    for model in (smaller, first):
        model.set_random_seed(seed)
        model.learn(UPDATES * model.n_steps * model.n_envs)
    of_smaller, of_first = (played(make, seed, model) for model in (smaller, first))
    by_first = overestimation(of_first, of_first.critic_values(0)[:, 0])
    by_smaller = overestimation(of_smaller, of_smaller.values(0))
    return {
        "overestimation by the first critic": by_first,
        "overestimation by the smaller": by_smaller,
        "overestimation lowered": by_first - by_smaller,
    }


def take_the_first(model: DistributionalPPO) -> None:
    """Compute advantages and targets from the first critic alone; the second learns and is not asked."""

    buffer: Any = model.rollout_buffer
    policy: Any = model.policy

    def predict_values(observations: Any, states: tuple[Tensor, Tensor], starts: Tensor) -> Tensor:
        return _first(policy.values.mean(policy.predict_outputs(observations, states, starts)))

    buffer.pessimistic, policy.predict_values = _first, predict_values


def _first(critic_values: Tensor) -> Tensor:
    return critic_values[:, 0]


def played(make: Make, seed: int, model: DistributionalPPO) -> Episodes:
    """One whole episode of each of many environments."""
    return first_episodes(make.envs(seed, n_envs=N_ENVS), [Listener(model)], 1, seed)


def overestimation(episodes: Episodes, values: Tensor) -> float:
    """Mean value over mean return of the same states, less 1, in %; negative where values are too low.

    :param values: one for each of ``episodes.returns()``
    """
    return 100.0 * float(values.double().mean() / episodes.returns().double().mean() - 1.0)
