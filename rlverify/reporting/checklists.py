"""Checklists of documents, the tests that documents name, coverage and effects, for the pages about documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlverify.evidence.files import first_problem, text_of
from rlverify.project.catalogue import Catalogue
from rlverify.project.catalogue_entries import Cite, Identifier, Text
from rlverify.project.citations import Documents
from rlverify.project.settings import read_toml
from rlverify.records.claims import Claim, UntestedLines
from rlverify.records.errors import EvidenceError


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
    items: tuple[ChecklistItem, ...]


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


CHECKLISTS = "checklists.toml"


class _Item(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    item: Text
    documented: Text
    met: Annotated[bool, Field(strict=True)]
    cites: Annotated[tuple[Cite, ...], Field(min_length=1)]
    claims: tuple[Identifier, ...] = ()
    core_claims: tuple[Identifier, ...] = ()
    tests: Annotated[str, Field(pattern=r"^[^\s:]*$")] = ""


class _Checklist(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Identifier
    title: Text
    documented: Text
    cites: Annotated[tuple[Cite, ...], Field(min_length=1)]
    item: Annotated[tuple[_Item, ...], Field(min_length=1)]


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    checklist: tuple[_Checklist, ...]


def load_checklists(folder: Path, documents: Documents) -> tuple[Checklist, ...]:
    """The checklists in a content package's folder; none where it has no such file.

    :raises CatalogueError: naming the field of the first broken entry
    """
    path = folder / CHECKLISTS
    if not path.is_file():
        return ()
    content = read_toml(path, _File, {"documents": documents})
    return tuple(_checklist(each) for each in content.checklist)


def _checklist(entry: _Checklist) -> Checklist:
    items = tuple(
        ChecklistItem(each.item, each.documented, each.met, each.cites, each.claims, each.tests, each.core_claims)
        for each in entry.item
    )
    return Checklist(entry.id, entry.title, entry.documented, entry.cites, items)


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


EFFECTS: Final = "effects.toml"


@dataclass(frozen=True)
class Effects:
    """The texts by id of the claim, and the page about them."""

    about: str = ""
    texts: dict[str, str] = field(default_factory=dict)


class _EffectsFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    about: Text
    effects: dict[str, Text]


def load_effects(folder: Path) -> Effects:
    """The effects in a content package's folder; none where it has no such file.

    :raises CatalogueError: naming the field of the first broken entry
    """
    path = folder / EFFECTS
    if not path.is_file():
        return Effects()
    content = read_toml(path, _EffectsFile)
    return Effects(content.about, content.effects)


MATRIX = "matrix.json"


class _Lenient(BaseModel):
    """Of the matrix only what is shown here; whether all of it can be believed, its own reader tells."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _Plan(_Lenient):
    fault: str


class _Row(_Lenient):
    plan: _Plan
    killers: tuple[str, ...]


class _Suite(_Lenient):
    document: str
    file: str
    tests: tuple[str, ...]


class _Matrix(_Lenient):
    rows: tuple[_Row, ...]
    tests: dict[str, str]
    suites: tuple[_Suite, ...]


def load_named_tests(reports: Path) -> tuple[NamedTest, ...] | None:
    """Every test that a document names, with its outcome and the faults that it detects; None without a matrix.

    :param reports: the folder of reports
    :raises EvidenceError: if the matrix cannot be read
    """
    path = reports / MATRIX
    if not path.is_file():
        return None
    try:
        matrix = _Matrix.model_validate_json(text_of(path))
    except ValidationError as error:
        raise EvidenceError(path, f"{first_problem(error)}; measure it again") from error
    return tuple(_named(matrix, suite, test) for suite in matrix.suites for test in suite.tests)


def _named(matrix: _Matrix, suite: _Suite, test: str) -> NamedTest:
    kills = sorted({row.plan.fault for row in matrix.rows if test in row.killers})
    name = test.removeprefix(f"{suite.file}::")
    return NamedTest(suite.document, suite.file, name, matrix.tests.get(test, "not run"), tuple(kills))
