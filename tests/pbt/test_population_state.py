"""The file of a population's state: it holds any number of members and turns, and older ones are read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from rlcore import CheckpointError
from rlcore.checkpoint import save_container
from rlcore.pbt import HyperparamConfig, PBTConfig, PBTScheduler
from rlcore.pbt.files import STATE_FILE, SavedMember, SavedPopulation, described, read_state, write_state

CONFIG = PBTConfig(
    population_size=10,
    hyperparams=[HyperparamConfig(name="learning_rate", min_value=1e-4, max_value=1e-1, is_log_scale=True)],
    seed=3,
)


def state_after(turns: int) -> SavedPopulation:
    scheduler = PBTScheduler(CONFIG)
    for member in scheduler.initialize_population():
        for turn in range(1, turns + 1):
            scheduler.update_performance(member, [math.nan, math.inf, 0.1 * turn][turn % 3], turn)
    return SavedPopulation(
        seed=2**40 + 1,
        config=described(CONFIG),
        explored_step=turns,
        lineage_size=0,
        scheduler=scheduler.state_dict(),
        members=[SavedMember(file=f"member_{number}.zip") for number in range(10)],
    )


@pytest.mark.parametrize("turns", [0, 7, 4000])
def test_a_state_of_any_length_is_written_and_read(turns: int, tmp_path: Path) -> None:
    state = state_after(turns)
    write_state(state, tmp_path)
    found = read_state(tmp_path)
    assert found is not None
    # repr, as NaN is not equal to itself, and a number must not become one of another type.
    assert repr(found) == repr(state)
    again = PBTScheduler(CONFIG)
    again.load_state_dict(found.scheduler)
    assert repr(again.state_dict()) == repr(state.scheduler)


def test_a_state_of_version_1_is_read(tmp_path: Path) -> None:
    state: Any = state_after(3)
    save_container(tmp_path / STATE_FILE, {"format_version": "population_v1", **state.model_dump()})
    assert repr(read_state(tmp_path)) == repr(state)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"format_version": "population_v1", "seed": 5}, r"is damaged, or of another version: config: field required"),
        ({"format_version": "population_v2"}, r"is damaged, or of another version: 'state'"),
        ({"format_version": "population_v2", "state": b'{"seed": 5}'}, r"another version: config: field required"),
        ({"format_version": "population_v2", "state": b'{"seed": 5'}, r"is damaged, or of another version"),
        ({"format_version": "population_v3"}, r"is no state of a population \(population_v2\)"),
        ({"format_version": "model_v1"}, r"is no state of a population \(population_v2\)"),
    ],
)
def test_a_foreign_state_is_named(content: dict[str, Any], message: str, tmp_path: Path) -> None:
    if isinstance(content.get("state"), bytes):
        content = {**content, "state": torch.frombuffer(bytearray(content["state"]), dtype=torch.uint8)}
    save_container(tmp_path / STATE_FILE, content)
    with pytest.raises(CheckpointError, match=message):
        read_state(tmp_path)
