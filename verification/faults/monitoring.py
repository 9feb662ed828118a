"""Ways to be told something else than what happened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rlcore.pbt.hyperparams import Hyperparams
from rlcore.pbt.selection import PopulationMember
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.buffer import TwinCriticBuffer
from rlverify import fault, healthy


@fault(
    "mon-01-format-not-told", target="rlcore.pbt.scheduler:PBTScheduler.exploit_and_explore", pins="e6d4f30256ea1ae1"
)
def format_not_told(self: Any, member: PopulationMember) -> tuple[dict[str, Any] | None, Hyperparams, str | None]:
    """Nobody learns of what format the copied file was."""
    parameters, hyperparams, _ = healthy("mon-01-format-not-told")(self, member)
    return parameters, hyperparams, None


@fault("mon-02-attempts-counted", target="rlcore.pbt.scheduler:PBTScheduler.choose_source", pins="6903435208ec350a")
def attempts_counted(self: Any, member: PopulationMember) -> PopulationMember | None:
    """Whoever finds somebody to copy is counted, and once more if it then does copy."""
    source: PopulationMember | None = healthy("mon-02-attempts-counted")(self, member)
    self.exploitation_count += source is not None
    return source


@fault("mon-03-transfers-not-counted", target="rlcore.pbt.population:Population._take_over", pins="1243806c55df179e")
def transfers_not_counted(self: Any, trainee: Any, parameters: Mapping[Any, Any], hyperparams: Hyperparams) -> None:
    """Gradient statistics are handed over and nobody counts it."""
    before = trainee.vgs_transfers
    healthy("mon-03-transfers-not-counted")(self, trainee, parameters, hyperparams)
    trainee.vgs_transfers = before


@fault("mon-04-noise-as-asked", target="rlcore.optim.noise:_noise_std", pins="064d65aef832e3b5")
def noise_as_asked(state: dict[str, Any], group: dict[str, Any]) -> float:  # noqa: ARG001
    """What is told of the noise is sigma, also where the noise follows the step."""
    return float(group["sigma"])


@fault(
    "mon-05-explained-variance-without-errors",
    target="rlcore.ppo.monitoring:explained_variance_of",
    pins="be73967a8fb7f954",
)
def explained_variance_without_errors(buffer: TwinCriticBuffer) -> float:
    """How much values vary beside the returns, right or wrong."""
    return float(np.var(buffer.values) / np.var(buffer.returns))


@fault(
    "mon-06-last-factor-for-all", target="rlcore.ppo.monitoring:UpdateLog.add_scaling_factor", pins="c76e9b6e1aa61d6b"
)
def last_factor_for_all(self: Any, factor: float) -> None:
    """Of the factors of an update only the last is kept."""
    self._factors[:] = [factor]


@fault("mon-10-variance-of-returns", target="rlcore.ppo.monitoring:_of_values", pins="228ec206c556c323")
def variance_of_returns(model: DistributionalPPO) -> Iterator[tuple[str, float]]:
    """What is told of the values is how much the returns vary."""
    returns = float(np.var(model.rollout_buffer.returns, dtype=np.float64))
    figures = healthy("mon-10-variance-of-returns")(model)
    return iter([(key, returns if key == "train/value_variance" else value) for key, value in figures])


@fault("ppo-05-nothing-of-the-lstm", target="rlcore.ppo.monitoring:_of_lstm", pins="76dafb90b44c86be")
def nothing_of_the_lstm(model: DistributionalPPO) -> Iterator[tuple[str, float]]:  # noqa: ARG001
    """Nobody is told what the LSTMs remember."""
    return iter(())


@fault("ppo-05-fix-states-taken-for-layers", target="rlcore.ppo.monitoring:_of_lstm", pins="76dafb90b44c86be")
def states_taken_for_layers(model: DistributionalPPO) -> Iterator[tuple[str, float]]:
    """The recommendation: the critic's two states, hidden and cell, counted as its layers."""
    said = []
    for i, state in enumerate(model._last_lstm_states.vf):
        key = f"lstm/critic_hidden_layer{i}"
        said += [(f"{key}_norm", float(state.norm())), (f"{key}_mean", float(state.mean()))]
        said.append((f"{key}_std", float(state.std())))
    return iter(said)
