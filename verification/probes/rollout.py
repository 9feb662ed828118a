"""What a rollout records, and what its sequences remember."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.callbacks import BaseCallback

from rlcore import DistributionalPPO
from rlcore.ppo.policy import TwinCriticRolloutBuffer
from rlverify import Observation, probe
from verification.probes.make import Make


class _Recorded(BaseCallback):
    """Counts, after every rollout, the stored values that the policy reproduces."""

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
    """Compare each stored value with the policy's value of the same observation, from the state before the step."""
    observations = []
    for case, network in (
        ("separate critic LSTM", {}),
        ("shared LSTM", {"shared_lstm": True, "enable_critic_lstm": False}),
    ):
        recorded = _Recorded()
        policy_kwargs = {"lstm_hidden_size": 16, "net_arch": [16], **network}
        make.model(seed, n_epochs=1, policy_kwargs=policy_kwargs).learn(192, callback=recorded)
        symptom = f"stored values computed from the LSTM state before the step, {case}"
        total, equal = recorded.total, recorded.equal
        # How many agree by chance differs between machines. Whether all agree does not.
        after = f"{equal}/{total}" if equal == total else f"not all of {total}"
        observations.append(Observation(symptom, f"{total}/{total}", after, holds=equal == total))
    return observations


class _Starts(BaseCallback):
    """Counts, after every rollout, the values of first observations that equal those of a policy without memory."""

    def __init__(self) -> None:
        super().__init__()
        self.equal = self.total = self.remembering = 0

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        policy, buffer = self._trained()
        for step in range(1, buffer.buffer_size):
            first = buffer.episode_starts[step].astype(bool)
            before = [torch.as_tensor(s[step]) for s in (buffer.hidden_states_vf, buffer.cell_states_vf)]
            seen, starts = torch.as_tensor(buffer.observations[step]), torch.as_tensor(buffer.episode_starts[step])
            with torch.no_grad():
                forgetful = policy.predict_values(seen, [torch.zeros_like(s) for s in before], starts)
                remembering = policy.predict_values(seen, before, torch.zeros_like(starts))
            stored = torch.as_tensor(buffer.values[step])
            self.equal += int(torch.isclose(stored, forgetful, rtol=1e-4, atol=1e-6)[first].sum())
            self.remembering += int((~torch.isclose(remembering, forgetful, rtol=1e-4, atol=1e-6))[first].sum())
            self.total += int(first.sum())

    def _trained(self) -> tuple[Any, TwinCriticRolloutBuffer]:
        assert isinstance(self.model, DistributionalPPO)
        buffer = self.model.rollout_buffer
        assert isinstance(buffer, TwinCriticRolloutBuffer), "the probe's environments give vectors"
        return self.model.policy, buffer


@probe("an-episode-starts-without-memory")
def an_episode_starts_without_memory(make: Make, seed: int) -> Sequence[Observation]:
    """Collect several episodes. Then evaluate sequences that start an episode, with LSTM states of another one."""
    starts = _Starts()
    model = make.model(seed, n_epochs=1)
    model.learn(192, callback=starts)
    told_apart = starts.remembering > 0
    return [
        Observation("first observations whose value memory would change", "some", _some(told_apart), told_apart),
        _all_of("recorded values at episode starts equal to those without memory", starts.equal, starts.total),
        *_training_sequences(model, seed),
    ]


def _training_sequences(model: DistributionalPPO, seed: int) -> list[Observation]:
    """Evaluate 3 sequences of 4 steps that start episodes, from LSTM states of another episode and from zeros."""
    generator = torch.Generator().manual_seed(seed)
    lstm = model.policy.lstm_actor
    held = [torch.randn(lstm.num_layers, 3, lstm.hidden_size, generator=generator) for _ in range(4)]
    zeros = [torch.zeros_like(state) for state in held]
    observations, actions = torch.randn(12, 4, generator=generator), torch.zeros(12)
    starts = torch.tensor([1.0, 0.0, 0.0, 0.0] * 3)
    with torch.no_grad():
        after_another, alone = (
            model.policy.evaluate_actions(
                observations, actions, RNNStates((states[0], states[1]), (states[2], states[3])), starts
            )
            for states in (held, zeros)
        )
    return [
        _all_of(f"{name} at episode starts in training equal to those without memory", int(same.sum()), same.numel())
        for name, same in (
            ("critics' outputs", torch.isclose(after_another[0], alone[0], rtol=1e-4, atol=1e-6)),
            ("log-probabilities", torch.isclose(after_another[1], alone[1], rtol=1e-4, atol=1e-6)),
        )
    ]


def _all_of(symptom: str, equal: int, total: int) -> Observation:
    return Observation(symptom, "all", "all" if equal == total else "not all", holds=equal == total)


def _some(found: bool) -> str:
    return "some" if found else "none"
