"""A generator goes on where its state was taken, and a state that it could not go on from is refused."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from rlcore.errors import StateError
from rlcore.state.training import (
    apply_generators,
    capture_generators,
    check_generators,
    generator_from_state,
    generator_state,
)


@pytest.fixture(autouse=True)
def _global_generators_as_before() -> Any:
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(before[0])
    np.random.set_state(before[1])
    torch.set_rng_state(before[2])


def seeded(seed: int) -> dict[Any, Any]:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    return capture_generators()


def test_a_state_at_either_end_of_its_keys_is_taken() -> None:
    for position in (0, 624):
        state: Any = seeded(3)
        state["numpy"][1] = position
        check_generators(state)
        apply_generators(state)
        assert np.random.get_state()[2] == position  # type: ignore[index]


def with_entry(*path: Any, value: Any) -> Callable[[Any], None]:
    def change(state: Any) -> None:
        *first, last = path
        for key in first:
            state = state[key]
        state[last] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        *(with_entry("python", value=value) for value in (None, [3, []], [3, [0] * 625, "x"], [3, [0] * 625, 1])),
        with_entry("python", 0, value=9),
        with_entry("python", 1, value=[0] * 624),
        with_entry("python", 1, 0, value=-1),
        with_entry("python", 1, 624, value=625),
        with_entry("numpy", 0, value=torch.zeros(623, dtype=torch.int64)),
        with_entry("numpy", 0, value=torch.zeros(625, dtype=torch.int64)),
        with_entry("numpy", 0, value=[0] * 624),
        *(with_entry("numpy", 1, value=value) for value in (-1, 625, True, 3.0, None)),
        *(with_entry("numpy", 2, value=value) for value in (True, 0.0, None, "0")),
        *(with_entry("numpy", 3, value=value) for value in (1, None, "0")),
        with_entry("numpy", value=[]),
        *(with_entry("torch", value=value) for value in (None, torch.zeros(3), torch.zeros(16, dtype=torch.uint8))),
        *(with_entry("cuda", value=value) for value in (None, [3], [torch.zeros(4), torch.zeros(5)])),
    ],
)
def test_what_no_generator_takes_is_refused_and_changes_none(change: Callable[[Any], None]) -> None:
    state = seeded(3)
    before = copy.deepcopy(state)
    change(state)
    with pytest.raises(StateError, match=r"^rng_state is none that a generator takes \(.*Nothing was changed\.$"):
        check_generators(state)
    assert repr(capture_generators()) == repr(before)


def test_the_generators_of_devices_are_captured_where_they_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    states = (torch.tensor([1]), torch.tensor([2]))
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: states)
    for in_use, held in [(False, []), (True, list(states))]:
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda in_use=in_use: in_use)
        assert capture_generators()["cuda"] == held


@pytest.mark.parametrize(("held", "devices", "given"), [(2, 2, [[1, 2]]), (2, 1, []), (0, 0, []), (0, 2, [])])
def test_the_generators_of_devices_go_on_where_there_are_as_many(
    held: int, devices: int, given: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[Any] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", lambda all_: received.append([t.item() for t in all_]))
    apply_generators({**seeded(3), "cuda": [torch.tensor(number + 1) for number in range(held)]})
    assert received == given


def through_state(generator: np.random.Generator) -> np.random.Generator:
    return generator_from_state(generator_state(generator), "it")


def test_a_generator_of_numpy_goes_on_from_plain_values() -> None:
    generator = np.random.Generator(np.random.PCG64(3))
    generator.random(1001)
    generator.integers(9, dtype=np.int32)  # keeps half of 64 bits
    state = generator_state(generator)
    back = generator_from_state(state, "it")
    assert generator_state(back) == state
    assert back.random(1001).tolist() == generator.random(1001).tolist()


def test_integers_of_128_bits_stay_exact() -> None:
    state = generator_state(np.random.Generator(np.random.PCG64(3)))
    state |= {"state": {"state": 2**128 - 1, "inc": 2**127 + 1}, "uinteger": 2**32 - 1}
    assert generator_state(generator_from_state(state, "it")) == state


def test_a_generator_of_another_kind_is_not_stored() -> None:
    with pytest.raises(StateError, match=r"^the generator Philox cannot be stored"):
        generator_state(np.random.Generator(np.random.Philox(3)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        *((with_entry("bit_generator", value=value), "bit_gen") for value in ("Custom", None, ["x"])),
        (with_entry("seed", value=3), "unknown keys"),
        (with_entry("state", value=3), "'state'"),
        (with_entry("state", "inc", value=2**128), "'inc'"),
        (with_entry("has_uint32", value=2), "'has_uint32'"),
        (with_entry("uinteger", value=2**32), "'uinteger'"),
    ],
)
def test_what_a_generator_of_numpy_does_not_take_is_refused_with_its_place(
    change: Callable[[Any], None], said: str
) -> None:
    state = generator_state(np.random.Generator(np.random.PCG64(3)))
    change(state)
    with pytest.raises(StateError, match=f"^it.*{said}.*Nothing was changed"):
        generator_from_state(state, "it")
