"""Tiers: how much time the checks of one subject may take, and what is left out for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

TierName = Literal["smoke", "default", "full"]


@dataclass(frozen=True)
class Tier:
    """What is done within a tier.

    :param seconds: after which no further check of a subject is started; None for no limit
    :param plants_faults: whether passes are proven
    :param finds_reasons: whether a failure of a resume is searched for what was lost
    :param is_full: whether all that could be forgotten is, and the search has no limit
    """

    name: TierName
    seconds: float | None
    plants_faults: bool
    finds_reasons: bool
    is_full: bool


TIERS: Final[dict[TierName, Tier]] = {
    "smoke": Tier("smoke", 7.0, plants_faults=False, finds_reasons=False, is_full=False),
    "default": Tier("default", None, plants_faults=True, finds_reasons=True, is_full=False),
    "full": Tier("full", None, plants_faults=True, finds_reasons=True, is_full=True),
}


def tier_named(name: str) -> Tier:
    """The tier of a name.

    :raises ValueError: with the names that there are
    """
    for each in TIERS.values():
        if each.name == name:
            return each
    raise ValueError(f"there is no tier {name!r}; choose from {', '.join(TIERS)}")
