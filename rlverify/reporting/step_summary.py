"""The summary of a step on GitHub: what failed first, then what speaks against the documents, then all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from rlverify.records.problems import Weakening
from rlverify.reporting.markdown import cell
from rlverify.reporting.outcome import Outcome, lines_of
from rlverify.reporting.phrasing import difference, outcome_in_words, told
from rlverify.verdicts.verdict import ClaimStatus, Record, status_of

HEADING: Final = "| claim | measured | what it says | proof |\n|---|---|---|---|\n"
ORDER: Final = tuple(ClaimStatus)
NONE_FELL: Final[Mapping[str, str]] = {}


def table_of(records: Sequence[Record], fallen: Mapping[str, str] = NONE_FELL) -> str:
    """Return one table, worst first."""
    statuses = {each.claim.id: ClaimStatus.FAILED if each.claim.id in fallen else status_of(each) for each in records}
    ordered = sorted(records, key=lambda each: (ORDER.index(statuses[each.claim.id]), not each.contradicts_document))
    head = f"## rlverify\n\n{_counts(records, statuses)}\n\n{HEADING}"
    rows = [_row(record, statuses[record.claim.id], fallen) for record in ordered]
    return head + "".join(rows)


def _counts(records: Sequence[Record], statuses: Mapping[str, ClaimStatus]) -> str:
    found = Counter(statuses.values())
    against = sum(record.contradicts_document for record in records)
    told_counts = ", ".join(f"{found[each]} {each.value}" for each in ORDER if found[each]) or "nothing"
    claims = "1 claim" if len(records) == 1 else f"{len(records)} claims"
    return f"{claims}: {told_counts}. {against} contradict a document."


def _row(record: Record, status: ClaimStatus, fallen: Mapping[str, str]) -> str:
    claim = record.claim
    measured = outcome_in_words(record) if status is ClaimStatus.PASSED else fallen.get(claim.id) or told(record)
    words = difference(record) or claim.title
    return f"| {claim.id} | {cell(measured)} | {cell(words)} | `rlverify reproduce {claim.id}` |\n"


TITLES = {0: "as expected", 1: "failed", 2: "could not be measured"}


def summary_of_run(outcome: Outcome) -> str:
    """What happened as preformatted text, and the table of all claims folded in below it."""
    failed = {each.subject: each.sentence for each in outcome.problems if each.kind == "other" and each.exit_code == 1}
    fallen = {each.claim.id: each.headline for each in outcome.fallen}
    table = table_of(outcome.records, {**failed, **fallen})
    lines = lines_of(replace(outcome, weakened=()))
    return page_of(outcome.exit_code, lines, "All claims", table, table_of_weakened(outcome.weakened))


def page_of(exit_code: int, lines: Sequence[str], title: str, table: str, between: str = "") -> str:
    """Return lines as preformatted text, what is ``between``, and a table that is folded in."""
    text = "\n".join(line.replace("```", "'''") for line in lines)
    head = f"# rlverify: {TITLES[exit_code]}\n\n```text\n{text}\n```\n\n"
    return f"{head}{between}<details><summary>{title}</summary>\n\n{table}\n</details>\n"


def table_of_weakened(weakened: Sequence[Weakening]) -> str:
    """All of them as a section of a Markdown page; empty if nothing is weakened."""
    rows = [f"| {' | '.join(map(cell, (each.kind, each.subject, each.before, each.after)))} |\n" for each in weakened]
    head = "## What this change weakens, or may weaken\n\n| what | where | before | now |\n|---|---|---|---|\n"
    return f"{head}{''.join(rows)}\n" if rows else ""
