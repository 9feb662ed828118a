"""How many lines of each document are tested.

Lines count that have a word and are no heading, no label of a list and no code fence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rlverify.project.catalogue import Catalogue
from rlverify.project.citations import Documents
from rlverify.records.checklists import Checklist, ChecklistItem
from rlverify.records.claims import Claim, UntestedLines


@dataclass(frozen=True)
class Coverage:
    """The lines of a document, counted.

    :param tested: lines that a claim or a checklist measures
    :param untested: lines that state something testable that nothing measures, even if something cites them
    :param untestable: lines that state nothing testable
    :param uncited: lines that the catalogue does not cite
    """

    tested: int = 0
    untested: int = 0
    untestable: int = 0
    uncited: int = 0

    @property
    def lines(self) -> int:
        """All of them."""
        return self.tested + self.untested + self.untestable + self.uncited


def coverage(
    documents: Documents, catalogue: Catalogue, checklists: Sequence[Checklist] = ()
) -> Mapping[str, Coverage]:
    """The coverage of each document; an ``[[untested]]`` or ``[[untestable]]`` table overrides the claims."""
    items = [item for checklist in checklists for item in checklist.items if item.claims or item.tests]
    measured = [*_cites(catalogue.claims), *_cites(items)]
    states = {  # the last one that cites a line decides
        line: state
        for state, cites in (
            ("untested", catalogue.cites),
            ("tested", measured),
            ("untestable", _cites(catalogue.untestable)),
            ("untested", _cites(catalogue.untested)),
        )
        for line in documents.positions(cites)
    }
    return {
        key: Coverage(**Counter(states.get((key, number), "uncited") for number in documents.statements(key)))
        for key in documents.lines
    }


def total(each: Iterable[Coverage]) -> Coverage:
    """The coverage of several documents together."""
    found = list(each)
    names = ("tested", "untested", "untestable", "uncited")
    return Coverage(**{name: sum(getattr(one, name) for one in found) for name in names})


def _cites(entries: Iterable[Claim | ChecklistItem | UntestedLines]) -> list[str]:
    return [cite for each in entries for cite in each.cites]
