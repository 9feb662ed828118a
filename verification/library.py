"""Gathers from the folders what the reports are made of; measures nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from verification.citations import FOLDER, apart_from, documents, has_word, uncited
from verification.laboratory import Laboratory
from verification.model import Aside
from verification.named_tests import load_named_tests
from verification.plot_files import load_plots
from verification.readiness import load_checklists
from verification.report.book import Book
from verification.report.interface import Record


def gather(laboratory: Laboratory, reports: Path, records: Sequence[Record]) -> Book:
    """The book of a laboratory's reports.

    :param reports: the folder in which what is committed stands
    :raises HarnessError: if a file cannot be read
    """
    return Book(
        records=tuple(records),
        contradictions=laboratory.entries.contradictions,
        files={path.name[:3]: path.name for path in FOLDER.glob("*.md")},
        uncited=_unanswered(laboratory),
        asides=_asides(laboratory),
        checklists=load_checklists(laboratory.folder),
        tests=load_named_tests(reports),
        plots={name: points.plot for name, points in load_plots(reports).items()},
    )


def _unanswered(laboratory: Laboratory) -> Mapping[str, tuple[int, int]]:
    """For each document: how many of its lines nothing in the catalogue cites, and how many it has."""
    left = uncited(laboratory.entries.cites)
    return {number: (len(left[number]), sum(map(has_word, lines))) for number, lines in documents().items()}


def _asides(laboratory: Laboratory) -> tuple[Aside, ...]:
    """Why nothing in the lines can be tested that neither a claim nor a contradiction cites."""
    answered = laboratory.entries.answered
    left = (Aside(apart_from(aside.cites, answered), aside.why) for aside in laboratory.entries.asides)
    return tuple(aside for aside in left if aside.cites)
