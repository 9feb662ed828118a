"""The documents under audit, line by line: what is cited, what is quoted, and what nobody answers for.

They stand in ``verification/documents`` as they were written. ``000:44-60`` are lines 44 to 60 of the one whose name
begins with 000; ``000:44`` is one line.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

FOLDER = Path(__file__).parent / "documents"
PATTERN = re.compile(r"(?P<document>\d{3}):(?P<first>[1-9]\d*)(?:-(?P<last>[1-9]\d*))?")


@dataclass(frozen=True)
class Citation:
    """Some consecutive lines of a document.

    :param document: the first three figures of its name
    :param first: number of the first line, from 1
    :param last: number of the last one
    """

    document: str
    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Citation:
        """Read ``000:44-60`` or ``000:44``.

        :raises ValueError: if it is neither, or no document has these lines
        """
        match = PATTERN.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no citation; write document:first-last, as in 000:44-60")
        first, last = int(match["first"]), int(match["last"] or match["first"])
        lines = documents().get(match["document"])
        if lines is None:
            raise ValueError(f"{text!r}: there is no document {match['document']}, only {', '.join(documents())}")
        if not first <= last <= len(lines):
            raise ValueError(f"{text!r}: document {match['document']} has the lines 1 to {len(lines)}")
        return cls(match["document"], first, last)

    @property
    def numbers(self) -> range:
        """The numbers of its lines."""
        return range(self.first, self.last + 1)

    @property
    def text(self) -> str:
        """The lines as they are written."""
        return "\n".join(documents()[self.document][self.first - 1 : self.last])

    @property
    def path(self) -> Path:
        """The document's file."""
        return next(FOLDER.glob(f"{self.document}_*.md"))


@cache
def documents() -> Mapping[str, tuple[str, ...]]:
    """The lines of every document, by the first three figures of its name."""
    return {path.name[:3]: tuple(path.read_text(encoding="utf-8").splitlines()) for path in sorted(FOLDER.glob("*.md"))}


def has_word(line: str) -> bool:
    """Whether a line says anything; an empty line, a rule and a fence do not."""
    return re.search(r"\w", line) is not None


def apart_from(cites: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    """What is left of citations without the lines of others: runs of lines that say something, and what is between."""
    taken = {(each.document, number) for each in map(Citation.parse, others) for number in each.numbers}
    return tuple(cite for each in map(Citation.parse, cites) for cite in _runs(each, taken))


def _runs(citation: Citation, taken: Container[tuple[str, int]]) -> Iterator[str]:
    lines = documents()[citation.document]
    telling = [number for number in citation.numbers if has_word(lines[number - 1])]
    for is_taken, run in groupby(telling, lambda number: (citation.document, number) in taken):
        first, *rest = run
        if not is_taken:
            yield f"{citation.document}:{first}" + (f"-{rest[-1]}" if rest else "")


def uncited(cites: Iterable[str]) -> dict[str, list[int]]:
    """The numbers of the lines, that say something and that none of the citations covers; by document."""
    covered = {(each.document, number) for each in map(Citation.parse, cites) for number in each.numbers}
    return {
        document: [
            number for number, line in enumerate(lines, start=1) if has_word(line) and (document, number) not in covered
        ]
        for document, lines in documents().items()
    }
