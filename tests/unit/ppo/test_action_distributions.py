"""Actions that start elsewhere than at 0 are the same actions under other names."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.distributions import make_proba_distribution

from rlcore.ppo.actions import action_distribution

SPACES: dict[str, tuple[spaces.Space[Any], spaces.Space[Any], torch.Tensor]] = {
    "one choice": (spaces.Discrete(3), spaces.Discrete(3, start=-2), torch.tensor(-2)),
    "several choices": (
        spaces.MultiDiscrete([3, 2]),
        spaces.MultiDiscrete([3, 2], start=[5, -1]),
        torch.tensor([5, -1]),
    ),
}


@pytest.mark.parametrize("case", SPACES)
def test_every_action_has_the_probability_of_the_one_it_stands_for(case: str) -> None:
    from_zero, shifted, start = SPACES[case]
    logits = torch.randn(64, 3 if case == "one choice" else 5, generator=torch.Generator().manual_seed(1))
    plain: Any = make_proba_distribution(from_zero)
    plain.proba_distribution(logits)
    offset: Any = action_distribution(shifted, make_proba_distribution(shifted))
    offset.proba_distribution(logits)

    assert torch.equal(offset.mode(), plain.mode() + start)
    torch.manual_seed(3)
    drawn = plain.sample()
    torch.manual_seed(3)
    assert torch.equal(offset.sample(), drawn + start)
    assert torch.equal(offset.log_prob(drawn + start), plain.log_prob(drawn))
    assert torch.equal(offset.entropy(), plain.entropy())


@pytest.mark.parametrize(
    "space", [spaces.Discrete(3), spaces.MultiDiscrete([3, 2]), spaces.MultiBinary(2), spaces.Box(-1, 1, (2,))]
)
def test_what_starts_at_0_keeps_the_distribution_of_stable_baselines3(space: spaces.Space[Any]) -> None:
    given = make_proba_distribution(space)
    assert action_distribution(space, given) is given
