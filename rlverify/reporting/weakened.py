"""What a change weakens, as lines of text and as a table in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten
from typing import Final

from rlverify.records.problems import Weakening
from rlverify.reporting.markdown import cell

MOST_OF_A_KIND: Final = 3
MOST_LINES: Final = 20
LONGEST: Final = 70
"""Characters of what it was and of what it is; the whole is in the table and in JSON."""


def lines_of_weakened(weakened: Sequence[Weakening]) -> list[str]:
    """A line for each, of which a kind has at most `MOST_OF_A_KIND`; none if nothing is weakened."""
    of_kinds: dict[str, list[Weakening]] = {}
    for each in weakened:
        of_kinds.setdefault(each.kind, []).append(each)
    shown = [each for own in of_kinds.values() for each in own[:MOST_OF_A_KIND]][:MOST_LINES]
    left = len(weakened) - len(shown)
    more = [f"  and {left} more; see --summary FILE or --json FILE"] * bool(left)
    title = [f"what this change weakens, or may weaken ({len(weakened)}):"] * bool(weakened)
    return [*title, *(f"  {_in_words(each)}" for each in shown), *more]


def _in_words(one: Weakening) -> str:
    before, after = (shorten(text, LONGEST, placeholder="...") or "nothing" for text in (one.before, one.after))
    return f"{one.kind}: {one.subject}: {before} -> {after}"


def table_of_weakened(weakened: Sequence[Weakening]) -> str:
    """All of them as a section of a Markdown page; empty if nothing is weakened."""
    rows = [f"| {' | '.join(map(cell, (each.kind, each.subject, each.before, each.after)))} |\n" for each in weakened]
    head = "## What this change weakens, or may weaken\n\n| what | where | before | now |\n|---|---|---|---|\n"
    return f"{head}{''.join(rows)}\n" if rows else ""
