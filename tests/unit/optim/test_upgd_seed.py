"""Where the seed of the noise comes from, and how it is exchanged."""

from __future__ import annotations

from typing import Any

import torch

from rlcore.optim.upgd import UPGD
from tests.unit.optim.upgd_steps import BOTH, make_parameters


def seeds(optimizer: torch.optim.Optimizer) -> list[int]:
    return [group["seed"] for group in optimizer.param_groups]


@BOTH
def test_a_seed_is_one_draw_from_the_global_generator_below_2_to_the_63(optimizer_class: Any) -> None:
    drawn = []
    for global_seed in range(8):
        torch.manual_seed(global_seed)
        expected = torch.randint(2**63 - 1, ()).item()
        after = torch.get_rng_state()
        torch.manual_seed(global_seed)
        drawn += seeds(optimizer_class(make_parameters()))
        assert drawn[-1] == expected
        assert torch.equal(torch.get_rng_state(), after)
    assert len(set(drawn)) == 8


@BOTH
def test_reseeding_gives_all_groups_one_new_seed_from_the_global_generator(optimizer_class: Any) -> None:
    optimizer = optimizer_class([{"params": make_parameters()}, {"params": make_parameters(), "seed": 5}], seed=4)
    found = []
    for global_seed in (1, 1, 2):
        torch.manual_seed(global_seed)
        optimizer.reseed()
        first, second = seeds(optimizer)
        assert type(first) is int
        assert first == second
        found.append(first)
    assert found[0] == found[1] != found[2]
    assert not {4, 5} & set(found)


def test_the_default_device_of_torch_does_not_change_the_seed() -> None:
    parameters, found = make_parameters(), []
    for device in ("cpu", "meta"):
        torch.manual_seed(1)
        with torch.device(device):
            found += seeds(UPGD(parameters))
    assert found[0] == found[1]
