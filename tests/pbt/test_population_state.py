"""The file of a population's state holds any number of members and turns."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rlcore.pbt import HyperparamConfig, PBTConfig, PBTScheduler
from rlcore.pbt.population import SavedPopulation, read_state, write_state

CONFIG = PBTConfig(population_size=10, hyperparams=[HyperparamConfig("gamma", min_value=0.5, max_value=0.9)], seed=3)


@pytest.mark.parametrize("turns", [0, 7, 4000])
def test_a_state_of_any_length_is_written_and_read(turns: int, tmp_path: Path) -> None:
    scheduler = PBTScheduler(CONFIG)
    for member in scheduler.initialize_population():
        for turn in range(1, turns + 1):
            scheduler.update_performance(member, [math.nan, math.inf, 0.1 * turn][turn % 3], turn)
    members = [{"file": f"member_{number}.zip", "exploits": 1, "vgs_transfers": 0} for number in range(10)]
    state = SavedPopulation(2**40 + 1, CONFIG.model_dump(mode="json"), turns, 0, scheduler.state_dict(), members)
    write_state(state, tmp_path)
    found = read_state(tmp_path)
    assert found is not None
    # repr, as NaN is not equal to itself, and a number must not become one of another type.
    assert repr(found) == repr(state)
    again = PBTScheduler(CONFIG)
    again.load_state_dict(found.scheduler)
    assert repr(again.state_dict()) == repr(state.scheduler)
