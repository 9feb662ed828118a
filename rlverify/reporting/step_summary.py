"""The summary of a step on GitHub: what failed first, then what speaks against the documents, then all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from rlverify.reporting.claim_status import ClaimStatus, status_of, told
from rlverify.reporting.markdown import cell
from rlverify.reporting.phrasing import difference, outcome_in_words
from rlverify.reporting.record import Record

LIMIT: Final = 2**20
"""Bytes that GitHub shows; a summary that is longer by one it refuses as a whole."""

HEADING: Final = "| claim | measured | what it says | proof |\n|---|---|---|---|\n"
ORDER: Final = tuple(ClaimStatus)


class StepSummary:
    """One table, worst first, cut off within the limit with a word on what was left out.

    :param limit: bytes in UTF-8
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit

    def format(self, records: Sequence[Record], fallen: Collection[str] = ()) -> str:
        """The summary as GitHub-flavoured Markdown.

        :param fallen: ids of claims that failed whatever their verdict, as their values are not those committed
        """
        statuses = {record.claim.id: _status(record, fallen) for record in records}
        ordered = sorted(
            records, key=lambda each: (ORDER.index(statuses[each.claim.id]), not each.contradicts_document)
        )
        head = f"## rlverify\n\n{_counts(records, statuses)}\n\n{HEADING}"
        rows = [_row(record, statuses[record.claim.id]) for record in ordered]
        kept, left = rows, 0
        room = self.limit - len((head + _cut(len(rows))).encode())
        if len((head + "".join(rows)).encode()) > self.limit:
            kept = _within(rows, room)
            left = len(rows) - len(kept)
        return head + "".join(kept) + (_cut(left) if left else "")


def _status(record: Record, fallen: Collection[str]) -> ClaimStatus:
    status = status_of(record)
    return ClaimStatus.FAILED if status is not ClaimStatus.ERROR and record.claim.id in fallen else status


def _counts(records: Sequence[Record], statuses: Mapping[str, ClaimStatus]) -> str:
    found = Counter(statuses.values())
    against = sum(record.contradicts_document for record in records)
    told_counts = ", ".join(f"{found[each]} {each.value}" for each in ORDER if found[each]) or "nothing"
    return f"{len(records)} claims: {told_counts}. {against} contradict a document."


def _row(record: Record, status: ClaimStatus) -> str:
    claim = record.claim
    if status is ClaimStatus.PASSED:
        measured = outcome_in_words(record)
    else:
        measured = f"{told(record)}, with other values than committed" if record.as_expected else told(record)
    words = difference(record) or claim.title
    return f"| {claim.id} | {cell(measured)} | {cell(words)} | `rlverify reproduce {claim.id}` |\n"


def _within(rows: Sequence[str], room: int) -> list[str]:
    kept = []
    for row in rows:
        room -= len(row.encode())
        if room < 0:
            break
        kept.append(row)
    return kept


def _cut(left: int) -> str:
    return f"\nTruncated: {left} more claims do not fit here; all of them are in the index of the reports.\n"
