"""Faults that log wrong values or none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rlcore.pbt.hyperparams import Hyperparams
from rlcore.pbt.scheduler import PopulationMember
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.policy import TwinCriticBuffer
from rlverify import fault, healthy


@fault(
    "mon-01-format-not-told", target="rlcore.pbt.scheduler:PBTScheduler.exploit_and_explore", pins="4bbdc9d99d5498c2"
)
def format_not_told(
    self: Any, member: PopulationMember, ranked: Any = None
) -> tuple[dict[str, Any] | None, Hyperparams, str | None]:
    """Return None for the format of the copied file."""
    parameters, hyperparams, _ = healthy("mon-01-format-not-told")(self, member, ranked)
    return parameters, hyperparams, None


@fault("mon-02-attempts-counted", target="rlcore.pbt.scheduler:PBTScheduler.choose_source", pins="606683b976d50155")
def attempts_counted(self: Any, member: PopulationMember, ranked: Any = None) -> PopulationMember | None:
    """Count every member that finds a source, and count it again when it copies."""
    source: PopulationMember | None = healthy("mon-02-attempts-counted")(self, member, ranked)
    self.exploitation_count += source is not None
    return source


@fault(
    "mon-03-transfers-not-counted", target="rlcore.pbt.population:Population._count_exploit", pins="17f72498c723a97d"
)
def transfers_not_counted(self: Any, member: PopulationMember, result: Any) -> None:
    """Hand gradient statistics over without counting it."""
    before = member.vgs_transfers
    healthy("mon-03-transfers-not-counted")(self, member, result)
    member.vgs_transfers = before


@fault("mon-04-noise-as-asked", target="rlcore.optim.upgd_step:_noise_std", pins="83de319807cb05a9")
def noise_as_asked(state: dict[str, Any], group: dict[str, Any]) -> float:  # noqa: ARG001
    """Log sigma as the noise, even where the noise follows the step."""
    return float(group["sigma"])


@fault(
    "mon-05-explained-variance-without-errors",
    target="rlcore.ppo.logging:explained_variance_of",
    pins="d3928b47301be668",
)
def explained_variance_without_errors(buffer: TwinCriticBuffer) -> float:
    """Return the variance of the values divided by that of the returns, without the errors."""
    return float(np.var(buffer.values) / np.var(buffer.returns))


@fault("mon-06-last-factor-for-all", target="rlcore.ppo.logging:UpdateLog.add_scaling_factor", pins="cd2674f54e32cab5")
def last_factor_for_all(self: Any, factor: float) -> None:
    """Keep only the last scaling factor of an update."""
    self.factors[:] = [factor]


@fault("mon-10-variance-of-returns", target="rlcore.ppo.logging:_of_values", pins="87b2d57d2aefd56a")
def variance_of_returns(model: DistributionalPPO) -> Iterator[tuple[str, float]]:
    """Log the variance of the returns as that of the values."""
    returns = float(np.var(model.rollout_buffer.returns, dtype=np.float64))
    figures = healthy("mon-10-variance-of-returns")(model)
    return iter([(key, returns if key == "train/value_variance" else value) for key, value in figures])


@fault("ppo-05-nothing-of-the-lstm", target="rlcore.ppo.logging:_of_lstm", pins="e5f66eb4d493ff44")
def nothing_of_the_lstm(model: DistributionalPPO) -> Iterator[tuple[str, float]]:  # noqa: ARG001
    """Log nothing about LSTM states."""
    return iter(())


@fault("ppo-05-fix-states-taken-for-layers", target="rlcore.ppo.logging:_of_lstm", pins="e5f66eb4d493ff44")
def states_taken_for_layers(model: DistributionalPPO) -> Iterator[tuple[str, float]]:
    """Apply the recommendation, which logs the critic's hidden and cell state as two layers."""
    said = []
    for i, state in enumerate(model._last_lstm_states.vf):
        key = f"lstm/critic_hidden_layer{i}"
        said += [(f"{key}_norm", float(state.norm())), (f"{key}_mean", float(state.mean()))]
        said.append((f"{key}_std", float(state.std())))
    return iter(said)
