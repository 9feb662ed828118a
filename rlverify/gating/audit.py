"""Measures every claim, and compares with what is expected and with what is committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from rlverify.evidence.evidence_files import is_committable, load_file, load_folder, to_json
from rlverify.evidence.files import check_writable, prepare_working_folder, write_files
from rlverify.evidence.plot_files import FOLDER
from rlverify.evidence.staleness import misfits
from rlverify.gating.measuring import measure
from rlverify.gating.plot_audit import plot_problems, replace_plots
from rlverify.gating.problem_rules import REMEDY, compared, notes_of, problems_of_all
from rlverify.project.content import Project
from rlverify.project.settings import ReportPaths
from rlverify.records.claims import Claim
from rlverify.records.errors import EvidenceError
from rlverify.records.exit_codes import CLAIM_FELL, HARNESS_FAILED
from rlverify.records.measured import Evidence
from rlverify.records.problems import Problem, exit_code_of, is_regression
from rlverify.reporting.collecting import collect
from rlverify.reporting.record import Record
from rlverify.reporting.rendering import render_all
from rlverify.running.paired_runs import FigureProgress
from rlverify.running.runner import Progress

Level: TypeAlias = Literal["quick", "full"]
"""How much is measured: everything but the figures, which take an hour, or these too."""


@dataclass(frozen=True)
class Audit:
    """The records and all that is wrong with them.

    :param measured: how many claims were measured; the others keep their committed evidence
    :param notes: what is worth knowing and is no problem
    :param committed: the evidence that was compared with, by claim id
    """

    records: tuple[Record, ...]
    problems: tuple[Problem, ...]
    measured: int
    notes: tuple[str, ...] = ()
    committed: Mapping[str, Evidence] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """As `rlverify.records.exit_codes` says."""
        return exit_code_of(self.problems)


def audit(
    project: Project,
    paths: ReportPaths,
    *,
    update: bool,
    processes: int,
    on_progress: Progress,
    affected: frozenset[str] | None = None,
    level: Level = "quick",
    on_figures: FigureProgress = lambda _done, _total, _left: None,
    afresh: bool = False,
) -> Audit:
    """Measure all claims; compare with the committed evidence and reports, or replace them.

    Fresh evidence, report and raw runs are left in the working folder in either case. Where a claim could not be
    measured, an update keeps its committed evidence. The quick level takes figures as they are committed.

    :param affected: without an update, ids of the claims to measure, where not all of them: the others are taken as
        they are committed, if that evidence fits the code of today, and measured too if it does not
    :param afresh: ignore the paired runs that are kept from an earlier audit
    :raises HarnessError: if the catalogue is broken, or a folder cannot be written; nothing has been changed then
    """
    warnings = project.check()
    prepare_working_folder(paths.working)
    if update:
        _check_ours(project, paths)
        check_writable(paths.evidence)
    committed = {} if update else load_folder(paths.evidence)
    standing = {} if affected is None else _standing(project, committed, affected)
    if level == "quick":
        standing |= _figures_as_committed(project, paths)
    chosen = [claim for claim in project.claims if claim.id not in standing]
    fresh = measure(
        project,
        chosen,
        paths.runs,
        processes=processes,
        on_progress=on_progress,
        on_figures=on_figures,
        afresh=afresh,
    )
    records = tuple(standing.get(each.id) or fresh.record(each) for each in project.claims)
    _write(project, paths, paths.working, records, {"raw.jsonl": fresh.raw})
    problems = problems_of_all(records, committed)
    problems += [Problem(subject, HARNESS_FAILED, sentence) for subject, sentence in fresh.deaths]
    if update:
        _replace_committed(project, paths, records)
    else:
        problems += _compare_all(project, paths, records, committed)
    notes = notes_of(records, advise=not is_regression(problems))
    return Audit(records, tuple(problems), len(chosen), (*warnings, *notes), committed)


def _check_ours(project: Project, paths: ReportPaths) -> None:
    """Refuse to replace files in a folder to which no evidence was committed yet.

    :raises EvidenceError: naming the first file that is in the way
    """
    ids = {claim.id for claim in project.claims}
    if not paths.reports.is_dir() or any(
        path.stem in ids or _is_evidence(path) for path in paths.evidence.glob("*.json")
    ):
        return
    pages = ("index.md", "claims.md", *(page.name for page in project.pages))
    in_the_way = [paths.reports / name for name in pages if (paths.reports / name).exists()]
    in_the_way += [path for folder in ("evidence", FOLDER) for path in (paths.reports / folder).glob("*")]
    if in_the_way:
        raise EvidenceError(
            in_the_way[0], "was not written by an audit; move it away, or choose another folder for `reports`"
        )


def _is_evidence(path: Path) -> bool:
    try:
        return '"experiment_digest"' in path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def _figures_as_committed(project: Project, paths: ReportPaths) -> dict[str, Record]:
    """The records of all figures, measured or not.

    :raises EvidenceError: if a file of them is broken, which only measuring again fixes
    """
    found = {}
    for claim in project.claims:
        if claim.figure is not None:
            path = paths.evidence / f"{claim.id}.json"
            found[claim.id] = _record(project, claim, load_file(path) if path.is_file() else None)
    return found


def _standing(project: Project, committed: Mapping[str, Evidence], affected: frozenset[str]) -> dict[str, Record]:
    """The records of those claims whose committed evidence needs no new measurement."""
    records = {record.claim.id: record for record in committed_records(project, committed)}
    return {
        name: record
        for name, record in records.items()
        if name not in affected and record.evidence is not None and not record.misfits
    }


def _compare_all(
    project: Project, paths: ReportPaths, records: Sequence[Record], committed: Mapping[str, Evidence]
) -> list[Problem]:
    problems: list[Problem] = []
    for record in records:
        if record.evidence is not None and is_committable(record.evidence):
            problems += compared(record, committed.get(record.claim.id))
    plots = plot_problems(project, paths.reports)
    problems += [Problem(name, CLAIM_FELL, why, "stale", REMEDY) for name, why in plots]
    return problems or check_report(project, paths, committed_records(project, committed), committed)


def check_report(
    project: Project, paths: ReportPaths, records: Sequence[Record], committed: Mapping[str, Evidence]
) -> list[Problem]:
    """Whether the committed reports are, byte for byte, what the committed evidence gives."""
    unknown = sorted(committed.keys() - {record.claim.id for record in records})
    problems = [Problem(each, CLAIM_FELL, "has evidence but is in no catalogue", remedy=REMEDY) for each in unknown]
    for name, text in _render(project, paths, records).items():
        path = paths.reports / name
        if not path.is_file() or path.read_bytes() != text.encode():
            sentence = "is not what the committed evidence gives"
            problems.append(Problem(name, CLAIM_FELL, sentence, remedy="run `rlverify report`"))
    return problems


def write_report(project: Project, paths: ReportPaths, records: Sequence[Record]) -> None:
    """Render the reports from the records and replace the committed ones.

    :raises EvidenceError: if they cannot be written
    """
    write_files(paths.reports, _render(project, paths, records))


def committed_records(project: Project, committed: Mapping[str, Evidence]) -> list[Record]:
    """Every claim with its committed evidence, and why that does not fit where it does not; measures nothing."""
    return [_record(project, claim, committed.get(claim.id)) for claim in project.claims]


def _record(project: Project, claim: Claim, evidence: Evidence | None) -> Record:
    found = misfits(evidence, claim, *project.digests(claim)) if evidence is not None else ()
    return Record(claim, evidence, tuple(found))


def _render(project: Project, paths: ReportPaths, records: Sequence[Record]) -> Mapping[str, str]:
    return render_all(collect(project, paths.reports, records))


def _write(
    project: Project, paths: ReportPaths, folder: Path, records: Sequence[Record], more: Mapping[str, str]
) -> None:
    measured = [each.evidence for each in records if each.evidence is not None and is_committable(each.evidence)]
    evidence = {f"evidence/{each.claim_id}.json": to_json(each) for each in measured}
    write_files(folder, {**evidence, **_render(project, paths, records), **more})


def _replace_committed(project: Project, paths: ReportPaths, records: Sequence[Record]) -> None:
    kept = [_committable(project, paths, record) for record in records]
    replace_plots(project, paths.reports)
    _write(project, paths, paths.reports, kept, {})
    known = {record.claim.id for record in kept if record.evidence is not None}
    ids = {record.claim.id for record in kept}
    for path in paths.evidence.glob("*.json"):
        if path.stem not in known and (path.stem in ids or _is_evidence(path)):
            path.unlink()


def _committable(project: Project, paths: ReportPaths, record: Record) -> Record:
    if record.evidence is not None and is_committable(record.evidence):
        return record
    path = paths.evidence / f"{record.claim.id}.json"
    return _record(project, record.claim, _kept(path) if path.is_file() else None)


def _kept(path: Path) -> Evidence | None:
    """Committed evidence that an update keeps; a broken file counts as none."""
    try:
        return load_file(path)
    except EvidenceError:
        return None
