"""Measures every claim, and compares with what is expected and with what is committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from rlverify.evidence.comparing import compare
from rlverify.evidence.evidence_files import is_committable, load_file, load_folder, to_json
from rlverify.evidence.files import check_writable, prepare_working_folder, write_files
from rlverify.evidence.plot_files import FOLDER
from rlverify.evidence.staleness import misfits
from rlverify.gating.measuring import measure
from rlverify.gating.plot_audit import plot_problems, replace_plots
from rlverify.project.content import Project
from rlverify.project.settings import ReportPaths
from rlverify.records.claims import Claim, Verdict
from rlverify.records.errors import EvidenceError
from rlverify.records.exit_codes import CLAIM_FELL, HARNESS_FAILED
from rlverify.records.measured import Evidence
from rlverify.records.problems import Problem, exit_code_of
from rlverify.reporting.collecting import collect
from rlverify.reporting.record import Record
from rlverify.reporting.rendering import render_all
from rlverify.running.paired_runs import FigureProgress
from rlverify.running.runner import Progress
from rlverify.verdicts.verdict import NOT_MEASURED, decide_variant

Level: TypeAlias = Literal["quick", "full"]
"""How much is measured: everything but the figures, which take an hour, or these too."""

SHOWN_DIFFERENCES = 3
REMEDY = "run `rlverify audit --update`"
REMEDY_OF_FIGURES = "run `rlverify audit --level full --update`"

UNDECIDED_FIGURES = 2
"""How many figures may stay undecided, whatever the number of runs; more say that the experiments are too weak."""


@dataclass(frozen=True)
class Audit:
    """The records and all that is wrong with them.

    :param measured: how many claims were measured; the others keep their committed evidence
    :param notes: what is worth knowing and is no problem
    """

    records: tuple[Record, ...]
    problems: tuple[Problem, ...]
    measured: int
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 as expected, 1 a claim fell, 2 the harness failed."""
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
    records = tuple(standing.get(claim.id) or Record(claim, fresh.evidence[claim.id]) for claim in project.claims)
    _write(project, paths, paths.working, records, {"raw.jsonl": fresh.raw})
    problems = problems_of_all(records)
    if update:
        _replace_committed(project, paths, records)
    else:
        problems += _compare_all(project, paths, records, committed)
    return Audit(records, tuple(problems), len(chosen), (*warnings, *notes_of(records)))


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


def problems_of_all(records: Sequence[Record]) -> list[Problem]:
    """Where fresh or committed records are not what the catalogue expects, each of them and taken together."""
    problems = [problem for record in records for problem in problems_of(record)]
    undecided = _undecided_figures(records)
    if len(undecided) > UNDECIDED_FIGURES:
        sentence = (
            f"{len(undecided)} figures are UNDECIDED, of which at most {UNDECIDED_FIGURES} may be; give them runs"
        )
        problems.append(Problem(", ".join(undecided), HARNESS_FAILED, sentence))
    return problems


def notes_of(records: Sequence[Record]) -> list[str]:
    """What is to be told of figures that makes no audit fail, a line each."""
    stale = [record.claim.id for record in records if record.claim.figure is not None and record.misfits]
    undecided = _undecided_figures(records)
    notes = []
    if stale:
        notes.append(f"{', '.join(stale)}: STALE, measured of another experiment or other code; {REMEDY_OF_FIGURES}")
    if 0 < len(undecided) <= UNDECIDED_FIGURES:
        notes.append(f"{', '.join(undecided)}: UNDECIDED, as at most {UNDECIDED_FIGURES} figures may be")
    return notes


def _undecided_figures(records: Sequence[Record]) -> list[str]:
    return [each.claim.id for each in records if each.claim.figure is not None and each.verdict is Verdict.UNDECIDED]


def problems_of(record: Record) -> list[Problem]:
    """Where a record is not what the catalogue expects.

    Of a figure, stale evidence and an interval that decides nothing are none: measuring them all takes an hour, and
    some may stay undecided (see `notes_of` and `problems_of_all`).
    """
    claim, verdict, grade = record.claim, record.verdict, record.fix_grade
    if record.evidence is None or verdict is None:
        remedy = REMEDY if claim.figure is None else REMEDY_OF_FIGURES
        return [Problem(claim.id, CLAIM_FELL, f"has no evidence; {remedy}")]
    if claim.figure is not None and verdict in (Verdict.STALE, Verdict.UNDECIDED):
        return []
    if record.misfits:
        return [Problem(claim.id, CLAIM_FELL, f"{verdict.value}, {'; '.join(record.misfits)}; {REMEDY}")]
    if verdict in NOT_MEASURED:
        return [Problem(claim.id, HARNESS_FAILED, f"{verdict.value}{_reason(record.evidence, verdict)}")]
    problems = []
    if verdict is not claim.expected_verdict:
        problems.append(Problem(claim.id, CLAIM_FELL, f"{verdict.value}, expected {claim.expected_verdict.value}"))
    if grade is not claim.expected_fix_grade:
        told, expected = (each.value if each else "no grade" for each in (grade, claim.expected_fix_grade))
        problems.append(Problem(claim.id, CLAIM_FELL, f"fix {told}, expected {expected}"))
    return problems


def _reason(evidence: Evidence, verdict: Verdict) -> str:
    if evidence.figure is not None and evidence.figure.errors:
        return f", {evidence.figure.errors[0]}"
    for variant in evidence.variants:
        if verdict is Verdict.ERROR and variant.errors:
            return f", {variant.variant}, {variant.errors[0]}"
        if verdict is Verdict.STALE and variant.stale is not None:
            return f", {variant.stale}"
        if verdict is Verdict.UNREACHED and variant.reached is False:
            if variant.hint is not None:
                return f", {variant.variant}: production code does not execute the planted fault: {variant.hint}"
            return f", {variant.variant}: the planted fault was never executed, so the probe proves nothing"
        if verdict is Verdict.UNDECIDED and variant.variant == "faulty" and evidence.shows:
            broken = [
                f"{each.symptom!r} ({each.runs - each.held_runs} of {each.runs})"
                for each in variant.symptoms
                if each.held_runs < each.runs
            ]
            return f", faulty broke {', '.join(broken)} and was to break {', '.join(map(repr, evidence.shows))}"
        if verdict is Verdict.UNDECIDED and 0 < variant.held_runs < variant.runs:
            low, high = decide_variant(variant).low, decide_variant(variant).high
            share = f"held in {variant.held_runs} of {variant.runs} runs"
            return f", {variant.variant} {share} (95 % interval {low:.2f} to {high:.2f})"
    return ""


def _compare_all(
    project: Project, paths: ReportPaths, records: Sequence[Record], committed: Mapping[str, Evidence]
) -> list[Problem]:
    problems = []
    for record in records:
        claim, fresh = record.claim, record.evidence
        if fresh is None or not is_committable(fresh):
            continue
        if claim.id not in committed:
            problems.append(Problem(claim.id, CLAIM_FELL, f"has no committed evidence; {REMEDY}"))
        else:
            differences = compare(committed[claim.id], fresh, claim.figure.tolerance if claim.figure else 0.0)
            problems += [
                Problem(claim.id, CLAIM_FELL, f"differs from the committed evidence: {_and_remedy(differences)}")
            ] * bool(differences)
    problems += [Problem(name, CLAIM_FELL, f"{why}; {REMEDY}") for name, why in plot_problems(project, paths.reports)]
    return problems or check_report(project, paths, committed_records(project, committed), committed)


def _and_remedy(differences: Sequence[str]) -> str:
    shown = [*differences[:SHOWN_DIFFERENCES]]
    if len(differences) > len(shown):
        shown.append(f"and {len(differences) - len(shown)} more differences")
    return f"{'; '.join(shown)}; if that is right, {REMEDY}"


def check_report(
    project: Project, paths: ReportPaths, records: Sequence[Record], committed: Mapping[str, Evidence]
) -> list[Problem]:
    """Whether the committed reports are, byte for byte, what the committed evidence gives."""
    unknown = sorted(committed.keys() - {record.claim.id for record in records})
    problems = [Problem(each, CLAIM_FELL, f"has evidence but is in no catalogue; {REMEDY}") for each in unknown]
    for name, text in _render(project, paths, records).items():
        path = paths.reports / name
        if not path.is_file() or path.read_bytes() != text.encode():
            problems.append(
                Problem(name, CLAIM_FELL, "is not what the committed evidence gives; run `rlverify report`")
            )
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
