"""The tables of the catalogue that are no claims, and how many lines of each document are tested.

- ``[[untestable]]`` names lines of a document that state nothing that could be tested.
- ``[[untested]]`` names lines that state something testable that no claim measures, even if a claim cites them.
- ``[[contradiction]]`` names statements that cannot all be true.
- ``[[cause]]`` is the one reason of several claims.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from rlverify.project.citations import Documents
from rlverify.project.settings import toml_of
from rlverify.records.errors import CatalogueError
from verification.pages.ranking import Cause

HEADING = re.compile(r"#{1,6}\s|\s*\*\*[^*]+(:\*\*|\*\*:)\s*$")
"""A heading, or a label such as ``**Tests:**`` that has a line for itself."""
FENCE = re.compile(r"\s*(?P<mark>`{3,}(?=[^`]*$)|~{3,})(?P<rest>.*)")
"""The first or last line of a block of code; a line that begins with code and ends with more text is none."""


@dataclass(frozen=True)
class UntestedLines:
    """Lines of a document that no claim tests: they state nothing testable, or no claim measures what they state.

    :param why: the reason
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    cites: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Quotation:
    """A quotation from a document.

    :param cite: the lines in which it is
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    cite: str
    text: str


@dataclass(frozen=True)
class Contradiction:
    """Statements of the documents that cannot all be true.

    :param statement: what they disagree about, in our own words
    :param measured: what this project can say about it
    :param settled_by: ids of the claims whose verdict decides between them
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    id: str
    statement: str
    quotes: tuple[Quotation, ...]
    measured: str
    settled_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tables:
    """All tables of a catalogue folder that are no claims, in the order of the files and of the entries."""

    untestable: tuple[UntestedLines, ...] = ()
    untested: tuple[UntestedLines, ...] = ()
    contradiction: tuple[Contradiction, ...] = ()
    cause: tuple[Cause, ...] = ()


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


def load_tables(folder: Path, documents: Documents, claims: Collection[str]) -> Tables:
    """Read the tables, and check that quotations are in the documents and that named claims exist.

    :param claims: ids of all claims
    :raises CatalogueError: naming the first broken entry
    """
    content: dict[str, list[Any]] = {"untestable": [], "untested": [], "contradiction": [], "cause": []}
    for path in sorted(folder.glob("*.toml")):
        for kind, entries in toml_of(path, partial(CatalogueError, path.name, "", "")).items():
            if kind in content:
                content[kind] += entries
    found: Tables = validated(Tables, content, folder.name)
    try:
        documents.positions(cite for each in (*found.untestable, *found.untested) for cite in each.cites)
    except ValueError as error:
        raise CatalogueError(folder.name, "", "cites", str(error)) from error
    for each in found.contradiction:
        for quote in each.quotes:
            if quote.text not in documents.text(quote.cite):
                raise CatalogueError(folder.name, each.id, "quotes", f"{quote.text!r} is not in {quote.cite}")
        if unknown := set(each.settled_by) - set(claims):
            raise CatalogueError(folder.name, each.id, "settled_by", f"there is no claim {min(unknown)!r}")
    return found


def validated(kind: Any, content: object, place: str) -> Any:
    """Return the content of a TOML file as ``kind``; raise CatalogueError, which names the first broken field."""
    try:
        return TypeAdapter(kind).validate_python(content)
    except ValidationError as error:
        problem: Any = error.errors()[0]
        raise CatalogueError(place, "", ".".join(map(str, problem["loc"])), problem["msg"]) from error


def coverage(documents: Documents, tested: Iterable[str], found: Tables) -> Mapping[str, Coverage]:
    """The coverage of each document; an ``[[untested]]`` or ``[[untestable]]`` table overrides the claims.

    :param tested: what claims and criteria of checklists cite
    """
    quoted = [quote.cite for each in found.contradiction for quote in each.quotes]
    states = {  # the last one that cites a line decides
        line: state
        for state, cites in (
            ("untested", quoted),
            ("tested", tested),
            ("untestable", _cites(found.untestable)),
            ("untested", _cites(found.untested)),
        )
        for line in documents.positions(cites)
    }
    return {
        key: Coverage(**Counter(states.get((key, number), "uncited") for number in statements(documents.lines[key])))
        for key in documents.lines
    }


def total(each: Iterable[Coverage]) -> Coverage:
    """The coverage of several documents together."""
    found = list(each)
    names = ("tested", "untested", "untestable", "uncited")
    return Coverage(**{name: sum(getattr(one, name) for one in found) for name in names})


def _cites(entries: Iterable[UntestedLines]) -> list[str]:
    return [cite for each in entries for cite in each.cites]


def statements(lines: Sequence[str]) -> list[int]:
    """The numbers of the lines that have a word and are no heading, no label of a list and no code fence."""
    found, opened = [], ""
    for number, line in enumerate(lines, start=1):
        fence = FENCE.match(line)
        if fence is not None and not opened:
            opened = fence["mark"]
        elif fence is not None and fence["mark"].startswith(opened) and not fence["rest"].strip():
            opened = ""
        elif has_word(line) and (opened or not HEADING.match(line)):
            found.append(number)
    return found


def has_word(line: str) -> bool:
    """Whether a line has a word; an empty line, a rule and a fence have none."""
    return re.search(r"\w", line) is not None
