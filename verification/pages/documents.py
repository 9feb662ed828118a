"""What the pages say of the documents: their checklists, the tests that they name, and which lines are tested.

``checklists.toml`` has one ``[[checklist]]`` for each conclusion of a document, and in it one ``[[checklist.item]]``
for each criterion with the ids of the claims that answer it. ``effects.toml`` says what defects do to a training run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from pydantic import ConfigDict

from rlverify import facts
from rlverify.kill_matrix.committed import MATRIX, load_matrix
from rlverify.project.citations import Documents, document_key
from rlverify.project.content import Project
from rlverify.project.settings import toml_of
from rlverify.records.claims import Verdict
from rlverify.records.errors import CatalogueError
from rlverify.reporting.phrasing import prose
from rlverify.reporting.report_data import ReportData, spans
from rlverify.verdicts.verdict import Record, decide_variant
from verification.pages.coverage import Contradiction, Coverage, UntestedLines, coverage, load_tables, total, validated
from verification.pages.ranking import Cause

CHECKLISTS: Final = "checklists.toml"
EFFECTS: Final = "effects.toml"

HOLDS: Final = "holds"
FOUND: Final = "found"
NOT_FOUND: Final = "not found"
NOT_RUN: Final = "not measured"
UNTOLD: Final = "cannot be told"

Rule = Callable[[Record], bool]


@dataclass(frozen=True)
class ChecklistItem:
    """One line of a document's checklist, and the claims that answer it.

    :param documented: the document's own answer
    :param met: whether that answer says that the criterion is met
    :param claims: ids; all of them must fit. None where nothing could be run. Where the answer is that the criterion is
        not met, they are the problems that the document names
    :param tests: figures of the document all of whose named tests must pass on the code as it is, or empty
    :param core_claims: ids that answer for the code as it is, where ``claims`` measure what a document describes
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    item: str
    documented: str
    met: bool
    cites: tuple[str, ...]
    claims: tuple[str, ...] = ()
    tests: str = ""
    core_claims: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checklist:
    """A document's verdict on the whole, and the criteria that it stands on.

    :param documented: what the document concludes, in our words
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    id: str
    title: str
    documented: str
    cites: tuple[str, ...]
    item: tuple[ChecklistItem, ...]


@dataclass(frozen=True)
class NamedTest:
    """A test that a document names, as it went on the code as it is.

    :param document: the first three figures of the document's name
    :param outcome: passed, failed, skipped or missing
    :param kills: planted faults that it detected
    """

    document: str
    file: str
    name: str
    outcome: str
    kills: tuple[str, ...] = ()


@dataclass(frozen=True)
class CriterionResult:
    """A criterion and what became of it, each a word and the claims that it falls with or hangs on.

    :param described: of a criterion that the document calls met, whether it holds: no claim contradicts a document; of
        one that it calls unmet, whether a problem that it names was found
    :param in_core: whether it holds here: nothing that the claims look at is violated on the code as it is
    """

    item: ChecklistItem
    described: str
    in_core: str


@dataclass(frozen=True)
class ChecklistResult:
    """A checklist with its answers, and what became of how many, in words."""

    checklist: Checklist
    lines: tuple[CriterionResult, ...]
    conclusion: str


@dataclass(frozen=True)
class DocumentFacts:
    """What the templates are told of the documents.

    :param tests: the tests that documents name, or None where they were not measured
    :param coverage: how many lines of each document are tested, by key
    """

    checklists: tuple[Checklist, ...] = ()
    tests: tuple[NamedTest, ...] | None = None
    coverage: Mapping[str, Coverage] = field(default_factory=dict)
    untested: tuple[UntestedLines, ...] = ()
    untestable: tuple[UntestedLines, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    causes: tuple[Cause, ...] = ()

    @property
    def total_coverage(self) -> Coverage:
        """The coverage of all documents together."""
        return total(self.coverage.values())

    def untested_of(self, document: str) -> list[UntestedLines]:
        """The untested lines of one document."""
        return [each for each in self.untested if spans(each.cites[0])[0] == document]

    def untestable_of(self, document: str) -> list[UntestedLines]:
        """The untestable lines of one document."""
        return [each for each in self.untestable if spans(each.cites[0])[0] == document]

    def visitors(self, data: ReportData, document: str) -> list[Record]:
        """Records that cite a document and have their section on another page, differences first."""
        return [
            record
            for record in data.claims
            if data.home(record.claim) != data.page_for(document)
            and any(spans(cite)[0] == document for cite in record.claim.cites)
        ]

    def problems(self, data: ReportData, *documents: str) -> list[Record]:
        """The problems that documents describe, differences first."""
        return [r for r in data.claims if r.claim.problem is not None and document_key(r.claim.document) in documents]

    def about(self, data: ReportData, prefix: str, *cites: str) -> list[Record]:
        """Records whose ids begin with a word, and those that cite at least one of these lines; differences first."""
        found = {record.claim.id for record in self.citing(data, *cites)}
        return [r for r in data.claims if r.claim.id in found or r.claim.id.startswith(f"{prefix}-")]

    def citing(self, data: ReportData, *cites: str) -> list[Record]:
        """Records that cite at least one of these lines, differences first."""
        wanted = [spans(cite) for cite in cites]
        return [
            record
            for record in data.claims
            if any(_overlap(spans(cite), want) for cite in record.claim.cites for want in wanted)
        ]

    def results(self, data: ReportData) -> list[ChecklistResult]:
        """Every checklist, answered."""
        found = []
        for checklist in self.checklists:
            lines = tuple(
                CriterionResult(item, _described(data, item), self._in_core(data, item)) for item in checklist.item
            )
            found.append(ChecklistResult(checklist, lines, f"{_of_document(lines)} {_of_core(lines)}"))
        return found

    def _in_core(self, data: ReportData, item: ChecklistItem) -> str:
        """As by the claims; where the item has tests instead, by their outcome on the code as it is."""
        if not item.tests:
            return _answer(data, item.core_claims or item.claims, _holds_in_core)
        named = [test for test in self.tests or () if test.document == item.tests]
        passed = sum(test.outcome == "passed" for test in named)
        if not named:
            return f"{UNTOLD}, no outcome of the tests that document {item.tests} names"
        return HOLDS if passed == len(named) else f"falls: {passed} of {len(named)} named tests pass"


def _overlap(one: tuple[str, int, int], other: tuple[str, int, int]) -> bool:
    return one[0] == other[0] and one[1] <= other[2] and other[1] <= one[2]


@facts("documents")
def documents(project: Project, reports: Path) -> DocumentFacts:
    """What the catalogue, the checklists and the kill matrix say of the documents."""
    checklists = load_checklists(project.folder, project.documents)
    found = load_tables(project.catalogue_folder, project.documents, {claim.id for claim in project.claims})
    stated = [cite for claim in project.claims for cite in claim.cites]
    items = [item for each in checklists for item in each.item if item.claims and not item.tests]
    measured = [cite for item in items for cite in item.cites]
    return DocumentFacts(
        checklists,
        load_named_tests(reports),
        coverage(project.documents, [*stated, *measured], found),
        found.untested,
        found.untestable,
        found.contradiction,
        found.cause,
    )


@facts("remarks")
def effects(project: Project, _reports: Path) -> Mapping[str, str]:
    """A line of each claim's section: what its defect does to a training run."""
    content = toml_of(project.folder / EFFECTS, partial(CatalogueError, EFFECTS, "", ""))
    how = f"- [In a training run]({content['about']})"
    return {claim: f"{how}: {prose(text)}" for claim, text in content["effects"].items()}


def load_checklists(folder: Path, cited: Documents) -> tuple[Checklist, ...]:
    """The checklists in a content package's folder.

    :raises CatalogueError: naming the field of the first broken entry
    """
    content = toml_of(folder / CHECKLISTS, partial(CatalogueError, CHECKLISTS, "", ""))
    found: tuple[Checklist, ...] = validated(tuple[Checklist, ...], content["checklist"], CHECKLISTS)
    for each in found:
        try:
            cited.positions([*each.cites, *(cite for item in each.item for cite in item.cites)])
        except ValueError as error:
            raise CatalogueError(CHECKLISTS, each.id, "cites", str(error)) from error
    return found


def load_named_tests(reports: Path) -> tuple[NamedTest, ...] | None:
    """Every test that a document names, with its outcome and the faults that it detects; None without a matrix.

    :param reports: the folder of reports
    """
    matrix = load_matrix(reports / MATRIX)
    if matrix is None:
        return None
    return tuple(
        NamedTest(
            suite.document,
            suite.file,
            test.removeprefix(f"{suite.file}::"),
            matrix.tests.get(test, "not run"),
            tuple(sorted({row.plan.fault for row in matrix.rows if test in row.killers})),
        )
        for suite in matrix.suites
        for test in suite.tests
    )


def _described(data: ReportData, item: ChecklistItem) -> str:
    return _answer(data, item.claims, _stands) if item.met else _problem(data, item.claims)


def _answer(data: ReportData, claims: Sequence[str], rule: Rule) -> str:
    if not claims:
        return NOT_RUN
    records = {claim_id: data.record(claim_id) for claim_id in claims}
    holes = [claim_id for claim_id, record in records.items() if record is None or not record.has_verdict]
    fallen = [claim_id for claim_id, record in records.items() if record and claim_id not in holes and not rule(record)]
    if fallen:
        return f"falls: {', '.join(fallen)}"
    return f"{UNTOLD}, undecided or not measured: {', '.join(holes)}" if holes else HOLDS


def _stands(record: Record) -> bool:
    return not record.contradicts_document


def _problem(data: ReportData, claims: Sequence[str]) -> str:
    """Whether a problem that a document names was found, whatever a fix of it does."""
    if not claims:
        return NOT_RUN
    verdicts = {claim_id: record.verdict for claim_id in claims if (record := data.record(claim_id)) is not None}
    found = [claim_id for claim_id in claims if verdicts.get(claim_id) is Verdict.CONFIRMED]
    absent = (Verdict.REFUTED, Verdict.NOT_REPRODUCED)
    untold = [claim_id for claim_id in claims if claim_id not in found and verdicts.get(claim_id) not in absent]
    if found:
        return f"{FOUND}: {', '.join(found)}"
    return f"{UNTOLD}, undecided or not measured: {', '.join(untold)}" if untold else NOT_FOUND


def _holds_in_core(record: Record) -> bool:
    healthy = record.evidence.variant("healthy") if record.evidence is not None else None
    return _stands(record) if healthy is None else decide_variant(healthy).outcome == "held"


def _of_document(lines: Sequence[CriterionResult]) -> str:
    met = [line.described for line in lines if line.item.met]
    named = [line.described for line in lines if not line.item.met]
    found = sum(answer.startswith(FOUND) for answer in named)
    parts = [f"{met.count(HOLDS)} of {len(met)} criteria that it calls met hold"] if met else []
    parts += [f"of {len(named)} that it calls unmet the problem was found in {found}"] if named else []
    return f"As the document describes it, {'; '.join(parts)}{_cannot_be_told([*met, *named])}."


def _of_core(lines: Sequence[CriterionResult]) -> str:
    answers = [line.in_core for line in lines]
    return f"In this core, {answers.count(HOLDS)} of {len(answers)} criteria hold{_cannot_be_told(answers)}."


def _cannot_be_told(answers: Sequence[str]) -> str:
    untold = sum(NOT_RUN in answer or UNTOLD in answer for answer in answers)
    return f"; {untold} cannot be told" if untold else ""
