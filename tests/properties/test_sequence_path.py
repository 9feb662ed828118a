"""The LSTM call for whole sequences gives what one call a time step gives, wherever episodes start."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from torch import Tensor, nn

from rlcore import DistributionalRecurrentPolicy


def outputs_and_gradients(
    process: type[RecurrentActorCriticPolicy], lstm: nn.LSTM, features: Tensor, starts: Tensor
) -> list[Tensor]:
    torch.manual_seed(1)
    states = tuple(torch.randn(lstm.num_layers, len(starts), 5, dtype=features.dtype) for _ in range(2))
    lstm.zero_grad()
    outputs, after = process._process_sequence(features.flatten(0, 1), states, starts.flatten(), lstm)
    (outputs * torch.linspace(-1, 1, outputs.numel()).view_as(outputs)).sum().backward()  # type: ignore[no-untyped-call]
    return [outputs, *after, *(p.grad.clone() for p in lstm.parameters() if p.grad is not None)]


@given(
    n_seq=st.integers(1, 5),
    length=st.integers(1, 9),
    layers=st.integers(1, 2),
    inside=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_whole_sequences_equal_single_steps(n_seq: int, length: int, layers: int, inside: bool, seed: int) -> None:
    torch.manual_seed(seed)
    lstm = nn.LSTM(3, 5, num_layers=layers, dtype=torch.float64)
    features = torch.randn(n_seq, length, 3, dtype=torch.float64)
    starts = (torch.rand(n_seq, length) < 0.4).double()
    if not inside:
        starts[:, 1:] = 0.0
    whole = outputs_and_gradients(DistributionalRecurrentPolicy, lstm, features, starts)
    single = outputs_and_gradients(RecurrentActorCriticPolicy, lstm, features, starts)
    for ours, theirs in zip(whole, single, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_only_starts_inside_a_sequence_take_a_call_a_step() -> None:
    lstm = nn.LSTM(3, 5)
    calls = []
    lstm.register_forward_hook(lambda *_: calls.append(1))
    starts = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    outputs_and_gradients(DistributionalRecurrentPolicy, lstm, torch.randn(2, 3, 3), starts)
    assert len(calls) == 1
    starts[1, 2] = 1.0
    outputs_and_gradients(DistributionalRecurrentPolicy, lstm, torch.randn(2, 3, 3), starts)
    assert len(calls) == 4
