"""The code of a re-injected bug, and of the healthy member that it replaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlverify.records.claims import Claim


@dataclass(frozen=True)
class PlantedCode:
    """A member under test and what a fault or a documented fix replaces it by, as source code.

    :param target: ``package.module:Class.member``
    """

    target: str
    healthy: str
    replacement: str


def planted_code(claim: Claim, code: Mapping[str, PlantedCode]) -> list[tuple[str, str]]:
    """(title, source) of the bug and of the documented fix; empty where a claim plants nothing.

    Committed pages show these alone: with the healthy member, a renamed local variable would make them out of date.

    :param code: by name of the fault or fix
    """
    named = (("the bug", claim.fault), ("the documented fix", claim.documented_fix))
    return [
        (f"{title}, in place of {code[name].target}", code[name].replacement)
        for title, name in named
        if name is not None and name in code
    ]


def code_of(claim: Claim, code: Mapping[str, PlantedCode]) -> list[tuple[str, str]]:
    """(title, source) of the healthy member, of the bug and of the documented fix; empty where a claim plants nothing.

    A fix that replaces another member than the bug is shown with the healthy version of that member.

    :param code: by name of the fault or fix
    """
    blocks: list[tuple[str, str]] = []
    shown: set[str] = set()
    for title, name in (("with the bug", claim.fault), ("with the documented fix", claim.documented_fix)):
        if name is None or name not in code:
            continue
        found = code[name]
        if found.target not in shown:
            blocks.append((f"{found.target}, healthy", found.healthy))
            shown.add(found.target)
        blocks.append((title, found.replacement))
    return blocks
