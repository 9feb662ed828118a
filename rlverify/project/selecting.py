"""Chooses claims by id, by pattern and by area."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from rlverify.records.claims import Claim
from rlverify.records.errors import UnknownNameError
from rlverify.records.suggesting import suggestion


def select_claims(claims: Sequence[Claim], patterns: Sequence[str], areas: Sequence[str]) -> tuple[Claim, ...]:
    """The claims that fit one of the patterns and are in one of the areas, in their order.

    :param patterns: ids or glob patterns such as ``PPO-*``, in any case; none for every id
    :param areas: names of areas, in any case; none for every area
    :raises UnknownNameError: if a pattern fits no claim, no claim is in an area, or no claim fits both
    """
    for pattern in patterns:
        if not _with_id(claims, [pattern]):
            raise UnknownNameError(f"no claim fits {pattern!r}{_suggested_id(pattern, claims)}")
    for area in areas:
        if not _in_area(claims, [area]):
            known = dict.fromkeys(claim.area for claim in claims)
            hint = suggestion(area, known) or f"; the areas are {', '.join(known)}"
            raise UnknownNameError(f"no claim is in area {area!r}{hint}")
    found = _in_area(_with_id(claims, patterns), areas)
    if not found:
        raise UnknownNameError(f"no claim fits {_either(patterns)} and is in area {_either(areas)}")
    return tuple(found)


def is_pattern(name: str) -> bool:
    """Whether this is a glob pattern rather than an id."""
    return any(sign in name for sign in "*?[")


def _with_id(claims: Sequence[Claim], patterns: Sequence[str]) -> list[Claim]:
    wanted = [pattern.casefold() for pattern in patterns or ["*"]]
    return [claim for claim in claims if any(fnmatchcase(claim.id.casefold(), each) for each in wanted)]


def _in_area(claims: Sequence[Claim], areas: Sequence[str]) -> list[Claim]:
    wanted = {area.casefold() for area in areas}
    return [claim for claim in claims if not wanted or claim.area.casefold() in wanted]


def _suggested_id(pattern: str, claims: Sequence[Claim]) -> str:
    """Of a pattern such as ``PPX-*``, the suggestion is a family of ids: ``PPO-*``."""
    if is_pattern(pattern):
        return suggestion(pattern, [f"{claim.id.partition('-')[0]}-*" for claim in claims])
    return suggestion(pattern, [claim.id for claim in claims])


def _either(names: Sequence[str]) -> str:
    return " or ".join(map(repr, names))
