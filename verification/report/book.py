"""What the reports are made of, and where in them each claim stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from verification.model import Aside, Claim, Contradiction
from verification.report.interface import Record
from verification.report.plot import Plot

HOMES: Final = {
    "000": "potential-problems.md",
    "001": "integration-analysis.md",
    "002": "bug-report.md",
    "003": "fix-summary.md",
    "004": "ppo-verification.md",
}
"""The page on which the claims of a document stand, by the first three figures of its name."""

FINDINGS: Final = "findings.md"
"""The page of the claims that are of no document."""

DOCUMENTS: Final = "../verification/documents"
"""The folder of the documents, as a page names it."""


@dataclass(frozen=True)
class Item:
    """One line of a document's checklist, and the claims that answer it.

    :param documented: the document's own answer
    :param met: whether that answer says that the criterion is met
    :param claims: ids; all of them must fit. None where nothing could be run. Where the answer is that the criterion is
        not met, they are the problems that the document names
    :param tests: figures of the document all of whose named tests must pass on the code as it is, or empty
    :param core_claims: ids that answer for the code as it is, where ``claims`` measure what a document describes
    """

    item: str
    documented: str
    met: bool
    cites: tuple[str, ...]
    claims: tuple[str, ...]
    tests: str = ""
    core_claims: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checklist:
    """A document's verdict on the whole, and the criteria that it stands on.

    :param documented: what the document concludes, in our words
    """

    id: str
    title: str
    documented: str
    cites: tuple[str, ...]
    items: tuple[Item, ...]


@dataclass(frozen=True)
class NamedTest:
    """A test that a document names, as it went on the code as it is.

    :param document: the first three figures of the document's name
    :param outcome: passed, failed, skipped or missing
    :param kills: faults that were planted one by one and that it noticed
    """

    document: str
    file: str
    name: str
    outcome: str
    kills: tuple[str, ...] = ()


@dataclass(frozen=True)
class Book:
    """Everything that the reports are made of.

    :param files: file name of each of the five documents, by the first three figures of it
    :param uncited: how many lines of each document nobody answers for yet, and how many say something
    :param asides: the lines that no claim and no contradiction cites, and why nothing in them can be tested
    :param tests: the tests that documents name, or None where they were not measured
    :param plots: what the plots show, by name
    """

    records: tuple[Record, ...]
    contradictions: tuple[Contradiction, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    uncited: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    asides: tuple[Aside, ...] = ()
    checklists: tuple[Checklist, ...] = ()
    tests: tuple[NamedTest, ...] | None = None
    plots: Mapping[str, Plot] = field(default_factory=dict)

    @property
    def claims(self) -> list[Record]:
        """All but the null faults; those that contradict their document first."""
        return differences_first([record for record in self.records if record.claim.kind != "null"])

    @property
    def nulls(self) -> list[Record]:
        """The null faults."""
        return [record for record in self.records if record.claim.kind == "null"]

    @property
    def statements(self) -> list[Record]:
        """What documents state, those that contradict first."""
        return [record for record in self.claims if record.claim.kind != "finding"]

    @property
    def findings(self) -> list[Record]:
        """What we found, on whatever page it stands, those that speak against a document first."""
        return [record for record in self.claims if record.claim.kind == "finding"]

    def asides_of(self, document: str) -> list[Aside]:
        """Of one document."""
        return [aside for aside in self.asides if aside.cites[0].startswith(document)]

    def record(self, claim_id: str) -> Record | None:
        """The record of that id, or None where the catalogue has no such claim."""
        return next((record for record in self.records if record.claim.id == claim_id), None)

    def at_home(self, page: str) -> list[Record]:
        """The records whose sections stand on a page, differences first."""
        return [record for record in self.claims if home(record.claim) == page]

    def visitors(self, document: str) -> list[Record]:
        """Records that cite a document and have their section on another page, differences first."""
        return [
            record
            for record in self.claims
            if home(record.claim) != HOMES[document] and any(cite.startswith(document) for cite in record.claim.cites)
        ]

    def parts(self, claim_id: str) -> list[Record]:
        """The effects, options and assurances of a problem, wherever their sections stand."""
        return [record for record in self.records if record.claim.part_of == claim_id]

    def problems(self, *documents: str) -> list[Record]:
        """The problems that documents describe, differences first."""
        return [r for r in self.claims if r.claim.problem is not None and r.claim.document.startswith(documents)]

    def about(self, prefix: str, *cites: str) -> list[Record]:
        """Records whose ids begin with a word, and those that cite at least one of these lines; differences first."""
        found = {record.claim.id for record in self.citing(*cites)}
        return [r for r in self.claims if r.claim.id in found or r.claim.id.startswith(f"{prefix}-")]

    def citing(self, *cites: str) -> list[Record]:
        """Records that cite at least one of these lines, differences first."""
        wanted = [spans(cite) for cite in cites]
        return [
            record
            for record in self.claims
            if any(_overlap(spans(cite), want) for cite in record.claim.cites for want in wanted)
        ]


def home(claim: Claim) -> str:
    """The page on which a claim has its section: that of its document, or of the one that a figure cites first."""
    number = claim.document[:3]
    if claim.kind == "figure" and claim.cites:
        number = claim.cites[0][:3]
    return HOMES.get(number, FINDINGS)


def source(claim: Claim) -> str:
    """The document that states a claim, by the first three figures of its name; for a finding, whose it is."""
    if claim.kind == "finding":
        return "ours"
    return next((number for number, page in HOMES.items() if page == home(claim)), claim.document)


def anchor(claim_id: str) -> str:
    """The name of a claim's section within its page."""
    return claim_id.lower()


def spans(cite: str) -> tuple[str, int, int]:
    """Document, first and last line of a citation such as ``000:44-60``, which the catalogue has checked."""
    document, _, lines = cite.partition(":")
    first, _, last = lines.partition("-")
    return document, int(first), int(last or first)


def _overlap(one: tuple[str, int, int], other: tuple[str, int, int]) -> bool:
    return one[0] == other[0] and one[1] <= other[2] and other[1] <= one[2]


def differences_first(records: Sequence[Record]) -> list[Record]:
    """Claims that contradict their document, then holes, then all others; each in the order of the catalogue."""
    return sorted(records, key=lambda record: (not record.contradicts_document, record.verdict is not None))
