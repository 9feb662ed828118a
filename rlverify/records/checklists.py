"""A document's checklists and the tests that it names; frozen records."""

from __future__ import annotations

from dataclasses import dataclass


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
