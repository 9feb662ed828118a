"""What the reports are made of, and on which page each claim has its section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rlverify.evidence.full_audit import FullAudit
from rlverify.project.citations import document_key
from rlverify.project.coverage import Coverage, total
from rlverify.project.pages import Page
from rlverify.records.checklists import Checklist, NamedTest
from rlverify.records.claims import Cause, Claim, Contradiction, UntestedLines, Verdict
from rlverify.records.plot_points import Plot
from rlverify.reporting.code_blocks import PlantedCode
from rlverify.reporting.record import Record

CLAIMS: Final = "claims.md"
"""The page of the claims for whose document the project registers no page."""

NO_ALARM: Final = (None, Verdict.STALE, Verdict.NOT_REPRODUCED)


@dataclass(frozen=True)
class ReportData:
    """Everything that the reports are made of.

    :param pages: the pages that the project registers, the index and the page of all other claims apart
    :param causes: the reasons that several claims share
    :param files: path of each document, relative to the folder of reports, by key
    :param lines: the lines of each document, by key
    :param coverage: how many lines of each document are tested, by key
    :param untestable: lines that state nothing testable, and why
    :param untested: lines that state something testable that no claim measures, and why
    :param tests: the tests that documents name, or None where they were not measured
    :param plots: what the plots show, by name
    :param templates: folder of the project's own templates, which come before those of the engine
    :param command: how the pages spell the command ``rlverify``
    :param code: what each fault and documented fix replaces, by its name
    :param full_audit: when, and of which revision, all claims were measured together
    :param under_test: the packages under test
    :param effects: what each claim's defect does to a training run, by id of the claim
    :param effects_page: the page that says how effects were measured, relative to the folder of reports
    """

    records: tuple[Record, ...]
    pages: tuple[Page, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    causes: tuple[Cause, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    coverage: Mapping[str, Coverage] = field(default_factory=dict)
    untestable: tuple[UntestedLines, ...] = ()
    untested: tuple[UntestedLines, ...] = ()
    checklists: tuple[Checklist, ...] = ()
    tests: tuple[NamedTest, ...] | None = None
    plots: Mapping[str, Plot] = field(default_factory=dict)
    templates: Path | None = None
    command: str = "rlverify"
    code: Mapping[str, PlantedCode] = field(default_factory=dict)
    full_audit: FullAudit = field(default_factory=FullAudit)
    under_test: tuple[str, ...] = ()
    effects: Mapping[str, str] = field(default_factory=dict)
    effects_page: str = ""

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
        """Our own findings on all pages; those that contradict a document first."""
        return [record for record in self.claims if record.claim.kind == "finding"]

    @property
    def false_alarms(self) -> list[Record]:
        """Null faults that a probe detected."""
        return [record for record in self.nulls if record.verdict not in NO_ALARM]

    def untestable_of(self, document: str) -> list[UntestedLines]:
        """The untestable lines of one document."""
        return [each for each in self.untestable if spans(each.cites[0])[0] == document]

    def untested_of(self, document: str) -> list[UntestedLines]:
        """The untested lines of one document."""
        return [each for each in self.untested if spans(each.cites[0])[0] == document]

    @property
    def total_coverage(self) -> Coverage:
        """The coverage of all documents together."""
        return total(self.coverage.values())

    def record(self, claim_id: str) -> Record | None:
        """The record of that id, or None where the catalogue has no such claim."""
        return next((record for record in self.records if record.claim.id == claim_id), None)

    def at_home(self, page: str) -> list[Record]:
        """The records whose sections stand on a page, differences first."""
        return [record for record in self.claims if self.home(record.claim) == page]

    def visitors(self, document: str) -> list[Record]:
        """Records that cite a document and have their section on another page, differences first."""
        return [
            record
            for record in self.claims
            if self.home(record.claim) != self.page_for(document)
            and any(spans(cite)[0] == document for cite in record.claim.cites)
        ]

    def parts(self, claim_id: str) -> list[Record]:
        """The effects, options and assurances of a problem, wherever their sections stand."""
        return [record for record in self.records if record.claim.part_of == claim_id]

    def problems(self, *documents: str) -> list[Record]:
        """The problems that documents describe, differences first."""
        return [r for r in self.claims if r.claim.problem is not None and document_key(r.claim.document) in documents]

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

    def home(self, claim: Claim) -> str:
        """The page on which a claim has its section."""
        by_file = () if claim.kind == "figure" and claim.cites else (claim.document,)
        return self.page_for(*by_file, document_of(claim))

    def page_for(self, *documents: str) -> str:
        """The page of the claims about a document, or stated in a catalogue file of that name; the first that fits."""
        found = (page.name for each in documents for page in self.pages if each in page.documents)
        return next(found, CLAIMS)

    def source(self, claim: Claim) -> str:
        """The key of the document that states a claim; ``ours`` for a finding."""
        return "ours" if claim.kind == "finding" else document_of(claim)


def document_of(claim: Claim) -> str:
    """The key of a claim's document; a figure is of the document that it cites first."""
    if claim.kind == "figure" and claim.cites:
        return spans(claim.cites[0])[0]
    return document_key(claim.document)


def anchor(claim_id: str) -> str:
    """The name of a claim's section within its page."""
    return claim_id.lower()


def spans(cite: str) -> tuple[str, int, int]:
    """Document, first and last line of a citation such as ``notes:44-60``, which the catalogue has checked."""
    document, _, lines = cite.partition(":")
    first, _, last = lines.partition("-")
    return document, int(first), int(last or first)


def _overlap(one: tuple[str, int, int], other: tuple[str, int, int]) -> bool:
    return one[0] == other[0] and one[1] <= other[2] and other[1] <= one[2]


def differences_first(records: Sequence[Record]) -> list[Record]:
    """Claims that contradict their document, then holes, then all others; each in the order of the catalogue."""
    return sorted(records, key=lambda record: (not record.contradicts_document, record.verdict is not None))
