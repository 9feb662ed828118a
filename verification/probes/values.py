"""How twin critics enter the advantages, the value clipping and the loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rlcore import ValueDistribution
from rlverify import Observation, probe
from verification.probes.make import Make

KINDS: dict[str, dict[str, Any]] = {
    "quantile": {"huber_kappa": 0.0},
    "categorical": {"value_distribution": "categorical", "v_min": -30.0, "v_max": 30.0, "n_quantiles": 32},
}


@probe("advantages-start-from-the-smaller-critic")
def advantages_start_from_the_smaller_critic(make: Make, seed: int) -> Sequence[Observation]:
    """Collect rollouts with twin critics. Check which critic gives the baseline."""
    model = make.model(seed)
    model.learn(96)
    buffer = model.rollout_buffer
    smaller = bool((buffer.values.flatten() == buffer.critic_values.min(axis=-1).flatten()).all())
    apart = float(np.abs(np.diff(buffer.critic_values, axis=-1)).mean())
    return [
        Observation("baseline of the advantages", "the smaller critic", _named(smaller, "the smaller critic"), smaller),
        Observation("critics differ", "yes", "yes" if apart > 0.0 else "no", apart > 0.0),
    ]


@probe("twin-critics-lose-what-each-would-lose-alone")
def twin_critics_lose_what_each_would_lose_alone(make: Make, seed: int) -> Sequence[Observation]:
    """Compare the clipped loss of two critics with the mean of their separate losses."""
    quantile = make.model(seed, **KINDS["quantile"]).policy.values
    observations = [
        # both end where they are; critic 1 was at 0 in the rollout, critic 2 at 10
        _figure("value loss, critic 2 unchanged since the rollout", quantile, (0.0, 10.0), 10.0, (0.0, 10.0), 2.5),
        # clipping raises the loss of critic 2 from 5 to 10, and would lower that of critic 1
        _figure("value loss, clipping active for one critic", quantile, (20.0, 10.0), 0.0, (9.0, 21.0), 10.0),
    ]
    generator = torch.Generator().manual_seed(seed)
    for name, settings in KINDS.items():
        values = make.model(seed, **settings).policy.values
        outputs = 2.0 * torch.randn(64, 2, values.n_outputs, generator=generator)
        returns, old = 4.0 * torch.randn(64, generator=generator), 3.0 * torch.randn(64, 2, generator=generator)
        together = values.loss(outputs, returns, old, 0.3).item()
        alone = np.mean([values.loss(outputs[:, [i]], returns, old[:, [i]], 0.3).item() for i in range(2)])
        holds = bool(abs(together - alone) <= 1e-4 * alone)
        symptom = f"value loss of twin critics and mean of separate losses, {name} values"
        observations.append(Observation(symptom, "equal", "equal" if holds else "different", holds))
    return observations


@probe("critics-tell-states-apart")
def critics_tell_states_apart(make: Make, seed: int) -> Sequence[Observation]:
    """Train critics on values linear in observations as small as CartPole's. Measure the explained variance."""
    explained = explained_variance(make, seed)
    symptom = "variance of the values that critics explain after 50 steps"
    return [Observation(symptom, "a quarter or more", _share(explained), explained >= 0.25)]


def explained_variance(make: Make, seed: int, *, steps: int = 50, learning_rate: float = 2e-3) -> float:
    """The share of the variance of values, linear in small observations, that critics have learnt to explain."""
    policy = make.model(seed, policy_kwargs={"lstm_hidden_size": 64, "net_arch": [64]}, return_scale=None).policy
    generator = torch.Generator().manual_seed(seed)
    observations = 0.05 * torch.randn(256, 4, generator=generator)
    returns = observations @ torch.randn(4, generator=generator)
    returns = (returns - returns.mean()) / returns.std()
    states, starts = (torch.zeros(1, 256, 64), torch.zeros(1, 256, 64)), torch.ones(256)
    critics = next(group["params"] for group in policy.optimizer.param_groups if group["name"] == "critic")
    optimizer = torch.optim.Adam(critics, lr=learning_rate)
    for _ in range(steps):
        outputs = policy.predict_outputs(observations, states, starts)
        optimizer.zero_grad()
        policy.values.loss(outputs, returns, torch.zeros(256, 2), None).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        return 1.0 - (returns - policy.predict_values(observations, states, starts)).var().item()


def _share(explained: float) -> str:
    return "a quarter or more" if explained >= 0.25 else "less than a tenth" if explained < 0.1 else "a tenth or more"


def _figure(
    symptom: str,
    values: ValueDistribution,
    now: tuple[float, float],
    target: float,
    old: tuple[float, float],
    expected: float,
) -> Observation:
    """The loss of one sample where each critic predicts one number. A quantile loses half of its error."""
    outputs = torch.tensor(now).view(1, 2, 1).expand(1, 2, values.n_outputs)
    loss = values.loss(outputs, torch.tensor([target]), torch.tensor([old]), 1.0).item()
    return Observation(symptom, f"{expected:.2f}", f"{loss:.2f}", holds=abs(loss - expected) < 1e-3)


def _named(holds: bool, name: str) -> str:
    return name if holds else f"not {name}"
