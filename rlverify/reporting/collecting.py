"""Collects from the folders of a project what its reports are made of; measures nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlverify.evidence.full_audit import load_full_audit, parsed
from rlverify.project.checklist_file import load_checklists
from rlverify.project.content import Project
from rlverify.project.coverage import coverage
from rlverify.project.effects_file import load_effects
from rlverify.project.planting import source_of_fault
from rlverify.records.plot_points import Plot
from rlverify.reporting.code_blocks import PlantedCode
from rlverify.reporting.named_tests import load_named_tests
from rlverify.reporting.record import Record, with_conditions
from rlverify.reporting.report_data import ReportData


def collect(project: Project, reports: Path, records: Sequence[Record], full_audit: str | None = None) -> ReportData:
    """Everything that the reports of a project are made of.

    :param reports: the folder of the committed reports
    :param full_audit: the text of a `full_audit.json` that is about to replace the committed one, or None
    :raises HarnessError: if a file cannot be read
    """
    home = project.settings.reports  # links are the same wherever the pages are written
    effects = load_effects(project.folder)
    checklists = load_checklists(project.folder, project.documents)
    return ReportData(
        records=tuple(with_conditions(records)),
        pages=project.pages,
        contradictions=project.catalogue.contradictions,
        causes=project.catalogue.causes,
        code=_code(project),
        full_audit=load_full_audit(reports) if full_audit is None else parsed(full_audit),
        under_test=project.settings.under_test,
        files={key: Path(os.path.relpath(path, home)).as_posix() for key, path in project.documents.paths.items()},
        lines=project.documents.lines,
        coverage=coverage(project.documents, project.catalogue, checklists),
        untestable=project.catalogue.untestable,
        untested=project.catalogue.untested,
        checklists=checklists,
        tests=load_named_tests(reports),
        plots=_plots(project, records),
        templates=project.templates,
        command=project.settings.command,
        effects=effects.texts,
        effects_page=effects.about,
    )


def _code(project: Project) -> Mapping[str, PlantedCode]:
    """What every fault and documented fix that a claim names replaces; nothing of one whose target is gone."""
    names = {name for claim in project.claims for name in (claim.fault, claim.documented_fix) if name is not None}
    found = {name: source_of_fault(each) for name, each in project.faults.items() if name in names}
    return {name: PlantedCode(*sources) for name, sources in found.items() if sources is not None}


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
