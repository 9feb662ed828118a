"""The global generators of Python, NumPy and torch are kept, seeded and set together."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from rlverify.checks.state.random_state import global_state, kept, seed_globals, set_global_state


def drawn() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_a_seed_fixes_all_three() -> None:
    with kept():
        seed_globals(3)
        first = drawn()
        seed_globals(3)
        assert drawn() == first
        seed_globals(4)
        assert not set(drawn()) & set(first)


def test_a_state_can_be_set_again() -> None:
    with kept():
        state = global_state()
        first = drawn()
        set_global_state(state)
        assert drawn() == first


def test_a_state_does_not_change_when_numbers_are_drawn() -> None:
    with kept():
        state = global_state()
        first = drawn()
        drawn()
        set_global_state(state)
        assert drawn() == first


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_the_state_is_kept_also_after_an_error(error: type[BaseException] | None) -> None:
    def block() -> None:
        with kept():
            seed_globals(5)
            if error is not None:
                raise error

    state = global_state()
    first = drawn()
    set_global_state(state)
    if error is None:
        block()
    else:
        with pytest.raises(error):
            block()
    assert drawn() == first


def test_generators_of_cuda_belong_to_the_state_once_cuda_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    assert "cuda" not in global_state() or torch.cuda.is_initialized()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: ["state of device 0"])
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", given.append)
    set_global_state(global_state())
    assert given == [["state of device 0"]]
