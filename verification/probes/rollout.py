"""What a rollout records."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from stable_baselines3.common.callbacks import BaseCallback

from rlcore import DistributionalPPO
from rlcore.ppo.buffer import TwinCriticRolloutBuffer
from verification.model import Observation
from verification.probes import probe
from verification.probes.make import Make


class _Recorded(BaseCallback):
    """At the end of every rollout, before training: how many stored values the policy gives again."""

    def __init__(self) -> None:
        super().__init__()
        self.equal = self.total = 0

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        assert isinstance(self.model, DistributionalPPO)
        buffer = self.model.rollout_buffer
        assert isinstance(buffer, TwinCriticRolloutBuffer), "the probe's environments give vectors"
        for step in range(buffer.buffer_size):
            before = tuple(torch.as_tensor(s[step]) for s in (buffer.hidden_states_vf, buffer.cell_states_vf))
            with torch.no_grad():
                value = self.model.policy.predict_values(
                    torch.as_tensor(buffer.observations[step]),
                    before,  # type: ignore[arg-type]
                    torch.as_tensor(buffer.episode_starts[step]),
                )
            stored = torch.as_tensor(buffer.values[step])
            self.equal += int(torch.isclose(stored, value, rtol=1e-4, atol=1e-6).sum())
            self.total += stored.numel()


@probe("stored-values-are-those-before-the-step")
def stored_values_are_those_before_the_step(make: Make, seed: int) -> Sequence[Observation]:
    """Compare each stored value with what the policy says of the same observation from the state before the step."""
    observations = []
    for case, network in (
        ("a critic LSTM", {}),
        ("one shared LSTM", {"shared_lstm": True, "enable_critic_lstm": False}),
    ):
        recorded = _Recorded()
        policy_kwargs = {"lstm_hidden_size": 16, "net_arch": [16], **network}
        make.model(seed, n_epochs=1, policy_kwargs=policy_kwargs).learn(192, callback=recorded)
        symptom = f"stored values that are those of the LSTM state before the step, {case}"
        total, equal = recorded.total, recorded.equal
        # How many agree by chance differs between machines; whether all do, not.
        after = f"{equal}/{total}" if equal == total else f"not all of {total}"
        observations.append(Observation(symptom, f"{total}/{total}", after, holds=equal == total))
    return observations
