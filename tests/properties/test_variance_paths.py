"""The elements' variances by compiled loops are those by torch, whatever happens between the steps."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from rlcore.optim import memory
from rlcore.optim.scaler import VarianceGradientScaler

SIZES = (1, 700, 1500)
EVENTS = ("commit", "drop", "save and load", "copy", "relink", "column by column", "one is missing")


def run(events: list[str], seed: int, offset: float, *, restored: bool = True) -> VarianceGradientScaler:
    """A scaler that went through ``events``, each of which begins with gradients.

    :param restored: whether it is saved, copied and relinked where the events say so
    """
    generator = torch.Generator().manual_seed(seed)
    settings: dict[str, Any] = {"estimator": "element", "beta": 0.9, "eps": 1e-3, "warmup_steps": 0}
    scaler = VarianceGradientScaler([nn.Parameter(torch.zeros(size, 2)) for size in SIZES], **settings)
    for event in events:
        for parameter in scaler.parameters:
            drawn = offset + torch.randn(parameter.shape, generator=generator)
            parameter.grad = drawn.T.contiguous().T if event == "column by column" else drawn
        if event == "one is missing":
            scaler.parameters[1].grad = None
        scaler.scale_gradients()
        if event == "drop":
            continue
        scaler.step()
        if event == "save and load" and restored:
            fresh = VarianceGradientScaler(scaler.parameters)
            fresh.load_state_dict(scaler.state_dict())
            scaler = fresh
        if event == "copy" and restored:
            parameters, scaler = scaler.parameters, copy.deepcopy(scaler)
            scaler.update_parameters(parameters)
        if event == "relink" and restored:
            scaler.update_parameters(scaler.parameters)
    return scaler


def statistics(scaler: VarianceGradientScaler) -> list[np.ndarray[Any, Any]]:
    state: Any = scaler.state_dict()["estimator_state"]
    return [each.double().numpy() for each in [*state["means"], *state["variances"]]]


histories = st.lists(st.sampled_from(EVENTS), min_size=1, max_size=8)


@given(histories, st.integers(0, 2**16), st.sampled_from([0.0, 1.0, -100.0]))
@example(["commit", "drop", "commit", "one is missing", "column by column", "commit"], 0, 1.0)
def test_compiled_statistics_of_elements_are_those_of_torch(events: list[str], seed: int, offset: float) -> None:
    compiled = run(events, seed, offset)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "address", lambda _: 0)
        plain = run(events, seed, offset)
    for found, expected in zip(statistics(compiled), statistics(plain), strict=True):
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-5 * (1.0 + abs(offset)))
    assert compiled.get_normalized_variance() == pytest.approx(plain.get_normalized_variance(), rel=1e-4)


@given(histories, st.integers(0, 2**16))
@example(["commit", "commit", "save and load", "commit"], 0)
def test_saving_copying_and_relinking_change_no_bit(events: list[str], seed: int) -> None:
    """Where the kernel has still to settle a step, and of the sums that it announced."""
    went_through, left_alone = run(events, seed, 0.5), run(events, seed, 0.5, restored=False)
    assert went_through.get_normalized_variance() == left_alone.get_normalized_variance()
    for found, expected in zip(statistics(went_through), statistics(left_alone), strict=True):
        assert np.array_equal(found, expected)
