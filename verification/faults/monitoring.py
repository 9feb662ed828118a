"""Known bugs of what an update tells the logger."""

from __future__ import annotations

from collections.abc import Iterator

from rlcore.ppo.algorithm import DistributionalPPO
from verification.faults import fault


@fault("ppo-05-nothing-of-the-lstm", target="rlcore.ppo.monitoring:_of_lstm", pins="de30cb1f8acb8b39")
def nothing_of_the_lstm(model: DistributionalPPO) -> Iterator[tuple[str, float]]:  # noqa: ARG001
    """Nobody is told what the LSTMs remember."""
    return iter(())


@fault("ppo-05-fix-states-taken-for-layers", target="rlcore.ppo.monitoring:_of_lstm", pins="de30cb1f8acb8b39")
def states_taken_for_layers(model: DistributionalPPO) -> Iterator[tuple[str, float]]:
    """The recommendation: the critic's two states, hidden and cell, counted as its layers."""
    said = []
    for i, state in enumerate(model._last_lstm_states.vf):
        key = f"lstm/critic_hidden_layer{i}"
        said += [(f"{key}_norm", float(state.norm())), (f"{key}_mean", float(state.mean()))]
        said.append((f"{key}_std", float(state.std())))
    return iter(said)
