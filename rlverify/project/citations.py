"""The documents under audit, line by line: which lines are cited, and which are not.

``notes:44-60`` are the lines 44 to 60 of the document ``notes.md``, and ``notes:44`` is one line. The key of a document
is its file name without ``.md``, up to the first underscore: ``notes_2026.md`` is cited as ``notes:44``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rlverify.records.errors import CatalogueError

PATTERN = re.compile(r"(?P<document>[^\s:]+):(?P<first>[1-9]\d*)(?:-(?P<last>[1-9]\d*))?")


def document_key(name: str) -> str:
    """The key under which a document is cited, from the stem of its file name."""
    return name.partition("_")[0]


@dataclass(frozen=True)
class Citation:
    """Some consecutive lines of a document."""

    document: str
    first: int
    last: int

    @property
    def numbers(self) -> range:
        """The numbers of its lines."""
        return range(self.first, self.last + 1)


@dataclass(frozen=True)
class Documents:
    """The documents of a project, by key."""

    paths: Mapping[str, Path] = field(default_factory=dict)
    lines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Documents:
        """The Markdown files of a folder; a folder that does not exist holds none."""
        paths: dict[str, Path] = {}
        lines: dict[str, tuple[str, ...]] = {}
        for path in sorted(folder.glob("*.md")):
            key = document_key(path.stem)
            if key in paths:
                raise CatalogueError(path.name, "", "", f"has the key {key!r}, as {paths[key].name}; rename one")
            try:
                lines[key] = tuple(path.read_bytes().decode().splitlines())
            except (OSError, UnicodeDecodeError) as error:
                raise CatalogueError(path.name, "", "", f"cannot be read: {error}") from error
            paths[key] = path
        return cls(paths, lines)

    def cite(self, text: str) -> Citation:
        """Read ``notes:44-60`` or ``notes:44``.

        :raises ValueError: if it is neither, or no document has these lines
        """
        match = PATTERN.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no citation; write document:first-last, as in notes:44-60")
        key, first, last = match["document"], int(match["first"]), int(match["last"] or match["first"])
        if key not in self.lines:
            known = f"only {', '.join(self.lines)}" if self.lines else "and no other either"
            raise ValueError(f"{text!r}: there is no document {key}, {known}")
        if not first <= last <= len(self.lines[key]):
            raise ValueError(f"{text!r}: document {key} has the lines 1 to {len(self.lines[key])}")
        return Citation(key, first, last)

    def text(self, cite: str) -> str:
        """The cited lines as they are written."""
        found = self.cite(cite)
        return "\n".join(self.lines[found.document][found.first - 1 : found.last])

    def positions(self, cites: Iterable[str]) -> set[tuple[str, int]]:
        """Document and number of every cited line."""
        return {(each.document, number) for each in map(self.cite, cites) for number in each.numbers}
