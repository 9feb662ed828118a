"""What the reports are made of, and on which page each claim has its section."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path
from typing import Any, Final, TypeAlias

from rlverify.evidence.evidence_files import FullAudit, load_full_audit
from rlverify.project.citations import document_key
from rlverify.project.content import Project
from rlverify.project.planting import SourceCode, source_of_fault
from rlverify.project.registry import Page, Plot
from rlverify.records.claims import Claim, Verdict
from rlverify.verdicts.verdict import Record, with_conditions

Code: TypeAlias = Mapping[str, tuple[SourceCode, SourceCode]]
"""The healthy member that a fault replaces, and its replacement, by the name of the fault."""


def planted_code(claim: Claim, code: Code, most: int) -> list[tuple[str, str]]:
    """The bug of a claim and the documented fix, each next to the healthy code as a diff; empty without a fault.

    :param most: how many lines of the healthy code are shown at most
    """
    named = (
        ("The bug as tested", claim.fault),
        ("The document's fix as tested, not code to copy", claim.documented_fix),
    )
    return [(title, _next_to(*code[name], most)) for title, name in named if name and name in code]


def _next_to(healthy: SourceCode, planted: SourceCode, most: int) -> str:
    lines = healthy.text.splitlines()
    more = [f"# and {len(lines) - most} more lines"] if len(lines) > most else []
    texts = ([*lines[:most], *more], planted.text.splitlines())
    found = [*unified_diff(*texts, healthy.place, planted.place, n=len(lines), lineterm="")]
    return "\n".join(line for line in found if not line.startswith("@@"))


CLAIMS: Final = "claims.md"
"""The page of the claims for whose document the project registers no page."""

NO_ALARM: Final = (None, Verdict.STALE, Verdict.NOT_REPRODUCED)


@dataclass(frozen=True)
class ReportData:
    """Everything that the reports are made of.

    :param pages: the pages that the project registers, the index and the page of all other claims apart
    :param files: path of each document, relative to the folder of reports, by key
    :param lines: the lines of each document, by key
    :param facts: what the project adds for its own templates, by name; see `rlverify.facts`
    :param in_full: whether each claim is followed by its full record, as on the HTML page
    """

    records: tuple[Record, ...]
    pages: tuple[Page, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    plots: Mapping[str, Plot] = field(default_factory=dict)
    templates: Path | None = None
    command: str = "rlverify"
    code: Code = field(default_factory=dict)
    full_audit: FullAudit = field(default_factory=FullAudit)
    under_test: tuple[str, ...] = ()
    has_matrix: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)
    in_full: bool = False

    @property
    def remarks(self) -> Mapping[str, str]:
        """A line of Markdown that the project adds to the section of a claim, by its id."""
        found: Mapping[str, str] = self.facts.get("remarks", {})
        return found

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

    def record(self, claim_id: str) -> Record | None:
        """The record of that id, or None where the catalogue has no such claim."""
        return next((record for record in self.records if record.claim.id == claim_id), None)

    def at_home(self, page: str) -> list[Record]:
        """The records whose sections stand on a page, differences first."""
        return [record for record in self.claims if self.home(record.claim) == page]

    def parts(self, claim_id: str) -> list[Record]:
        """The effects, options and assurances of a problem, wherever their sections stand."""
        return [record for record in self.records if record.claim.part_of == claim_id]

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


def differences_first(records: Sequence[Record]) -> list[Record]:
    """Claims that contradict their document, then holes, then all others; each in the order of the catalogue."""
    return sorted(records, key=lambda record: (not record.contradicts_document, record.verdict is not None))


def collect(
    project: Project, reports: Path, records: Sequence[Record], full_audit: FullAudit | None = None
) -> ReportData:
    """Everything that the reports of a project are made of."""
    home = project.settings.reports  # links are the same wherever the pages are written
    return ReportData(
        records=tuple(with_conditions(records)),
        pages=project.pages,
        code=_code(project),
        full_audit=full_audit or load_full_audit(reports),
        under_test=project.settings.under_test,
        files={key: Path(os.path.relpath(path, home)).as_posix() for key, path in project.documents.paths.items()},
        lines=project.documents.lines,
        has_matrix=(reports / "matrix.json").is_file(),
        facts={name: make(project, reports) for name, make in project.facts.items()},
        plots=_plots(project, records),
        templates=project.templates,
        command=project.settings.command,
    )


def _code(project: Project) -> Code:
    """The code of every fault and documented fix that a claim names; without those whose target is gone."""
    names = {name for claim in project.claims for name in (claim.fault, claim.documented_fix) if name is not None}
    found = {name: source_of_fault(each, project.root) for name, each in project.faults.items() if name in names}
    return {name: sources for name, sources in found.items() if sources is not None}


def _plots(project: Project, records: Sequence[Record]) -> dict[str, Plot]:
    """The plots of figures by name, without those of a figure that has no values."""
    values = {
        record.claim.id: record.evidence.figure.values
        for record in records
        if record.evidence is not None and record.evidence.figure is not None
    }
    return {
        name: each.draw(*(values[claim] for claim in each.claims))
        for name, each in project.figure_plots.items()
        if all(claim in values for claim in each.claims)
    }
