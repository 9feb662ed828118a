"""Suggests the known name that a misspelt one was probably meant to be."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of an error message that asks whether a similar name was meant; empty if none is similar.

    ``PPO-1`` suggests ``PPO-01``: names that differ only in case and in leading zeros come before all others.
    """
    spelt = {each.casefold(): each for each in known}
    same = [each for each in spelt if _without_zeros(each) == _without_zeros(name.casefold())]
    close = same or get_close_matches(name.casefold(), spelt)
    return f"; did you mean {spelt[close[0]]!r}?" if close else ""


def _without_zeros(name: str) -> str:
    return re.sub(r"(?<!\d)0+(?=\d)", "", name)
