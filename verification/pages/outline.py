"""The sections of the documents, in their own order: on its page, a claim is in the section that it cites first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from rlverify.reporting.report_data import ReportData, spans
from rlverify.verdicts.verdict import Record
from verification.pages.documents import ChecklistResult, DocumentFacts


@dataclass(frozen=True)
class Section:
    """A section of a document.

    :param line: its first line; a claim belongs to the last section that begins at or above the line that it cites
    :param level: how many ``#`` its heading has
    :param visitors: claims that cite it and are on another page
    :param is_empty: whether neither it nor a section below it has anything
    """

    line: int
    level: int
    title: str
    records: tuple[Record, ...] = ()
    checklists: tuple[ChecklistResult, ...] = ()
    visitors: tuple[Record, ...] = ()
    is_empty: bool = False


END: Final = 10**6
OUTLINES: Final[dict[str, str]] = {
    "000": """
        24 2 Problems
        26 3 Problem 1: `torch.load()` without weights_only
        82 3 Problem 2: pydantic V1 deprecation warnings
        134 3 Problem 3: gradient scaling and population checkpoints
        208 3 Problem 4: noise of UPGD and scaled gradients
        288 3 Problem 5: twin critics and mutated hyperparameters
        318 3 Problem 6: missing integration tests
        338 3 Problem 7: warm-up and early exploits
        357 2 Priorities, action plan and probabilities
        423 2 Conclusion
    """,
    "001": """
        9 2 Executive summary of the document
        28 2 The seven problems, checked again
        30 3 Problem 1: `torch.load()` security
        52 3 Problem 2: pydantic V1 deprecation
        63 3 Problem 3: gradient scaling and population state
        104 3 Problem 4: noise of UPGD and scaled gradients
        144 3 Problem 5: twin critics and mutations
        158 3 Problem 6: missing integration tests
        175 3 Problem 7: warm-up timing
        189 2 Remaining problems
        226 2 Integration tests
        272 2 Architecture
        274 3 Checkpoint formats
        303 3 Adaptive noise
        316 3 State of gradient scaling
        331 2 Production readiness
        352 2 Recommendations
        371 3 Monitoring in production
        393 3 Configuration
        428 2 Commits and conclusion
    """,
    "002": """
        21 2 Bug #10: gradient scaling state is not preserved
        48 3 Root cause
        107 3 Impact and scenarios
        151 3 Proposed fix
        223 3 Verification plan, priority and complexity
        276 2 Regression: bugs #1 to #9
        316 2 Edge cases
        339 2 Test statistics
        372 2 Production readiness
        394 2 Recommendations
        429 2 Overall assessment and conclusions
    """,
    "003": """
        3 2 Problem
        19 2 Solution
        54 3 Usage
        81 2 Test results
        119 2 Files modified
        137 2 Migration guide
        157 2 Benefits and conclusion
    """,
    "004": """
        12 2 Confirmed problems
        14 3 1. Semantics of gradient scaling v3.0
        56 3 2. Timing of the return-scale snapshot
        105 3 3. Divergence of VecNormalize and LSTM
        150 2 Partly confirmed problems
        152 3 4. Documentation of gradient scaling
        183 3 5. Statistics of LSTM hidden states
        211 2 Rejected problems
        213 3 6. Entropy double suppression
        243 3 7. LSTM reset at the end of an episode
        270 2 Priority matrix
        282 2 Recommended fixes
        284 3 FIX #1: timing of the snapshot
        317 3 FIX #2: synchronise VecNormalize
        361 3 FIX #3: documentation
        392 2 Test plan
        476 2 Final recommendations
    """,
}
"""Of each document, the first line, level and title of every section."""


def sections(data: ReportData, document: str, records: Sequence[Record]) -> list[Section]:
    """The sections of a document, with the claims and checklists whose first cited line is in them."""
    facts: DocumentFacts = data.facts["documents"]
    rows = [line.split(maxsplit=2) for line in OUTLINES[document].strip().splitlines()]
    starts = [0, *(int(line) for line, _, _ in rows[1:]), END + 1]
    results = [each for each in facts.results(data) if spans(each.checklist.cites[0])[0] == document]
    visitors = facts.visitors(data, document)
    found = []
    for (line, level, title), start, end in zip(rows, starts, starts[1:], strict=False):
        own, others = (
            tuple(each for each in some if start <= first_line(document, each.claim.cites) < end)
            for some in (records, visitors)
        )
        lists = tuple(each for each in results if start <= first_line(document, each.checklist.cites) < end)
        found.append(Section(int(line), int(level), title, own, lists, others))
    is_parent = [*(after.level > each.level for each, after in pairwise(found)), False]
    return [
        replace(each, is_empty=not (each.records or each.checklists or each.visitors or parent))
        for each, parent in zip(found, is_parent, strict=True)
    ]


def first_line(document: str, cites: Sequence[str]) -> int:
    """The first line of a document that is cited; the last section takes claims that cite none."""
    return next((first for key, first, _ in map(spans, cites) if key == document), END)
