"""The code of a re-injected bug and of its documented fix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlverify.records.claims import Claim


@dataclass(frozen=True)
class PlantedCode:
    """What a fault or a documented fix replaces a member by, as source code.

    :param target: ``package.module:Class.member``
    """

    target: str
    replacement: str


def planted_code(claim: Claim, code: Mapping[str, PlantedCode]) -> list[tuple[str, str]]:
    """(title, source) of the bug and of the documented fix; empty where a claim plants nothing.

    The healthy member is left out: a renamed local variable would make committed pages out of date.

    :param code: by name of the fault or fix
    """
    named = (("the bug", claim.fault), ("the documented fix", claim.documented_fix))
    return [
        (f"{title}, in place of {code[name].target}", code[name].replacement)
        for title, name in named
        if name is not None and name in code
    ]
