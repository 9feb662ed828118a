"""What is committed: evidence, the reports that it gives, and when all of it was measured together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Final

from rlverify.evidence.evidence_files import (
    FULL_AUDIT,
    FullAudit,
    is_committable,
    load_file,
    load_folder,
    load_full_audit,
    misfits,
    to_json,
)
from rlverify.evidence.files import canonical_json, text_of, write_files
from rlverify.gating.git_base import answer
from rlverify.gating.problem_rules import REMEDY, REMEDY_OF_FIGURES
from rlverify.project.code import CurrentCode, machine
from rlverify.project.content import Project
from rlverify.project.registry import PLOTS_FOLDER
from rlverify.project.settings import ReportPaths
from rlverify.records.claims import Claim
from rlverify.records.errors import EvidenceError
from rlverify.records.measured import Evidence
from rlverify.records.problems import CLAIM_FELL, Problem
from rlverify.reporting.rendering import render_all
from rlverify.reporting.report_data import collect
from rlverify.verdicts.verdict import Record, attached

NOTHING: Final = re.compile("(?!)")
CODE: Final = re.compile(r"^```diff\n.*?^```$", re.DOTALL | re.MULTILINE)
"""The code that pages quote, which may change while nothing else does."""


@dataclass(frozen=True)
class Committed:
    """The committed evidence of a project, and the reports that it gives."""

    project: Project
    paths: ReportPaths

    @cached_property
    def evidence(self) -> Mapping[str, Evidence]:
        """All evidence, by claim id."""
        return load_folder(self.paths.evidence)

    def record(self, claim: Claim) -> Record:
        """A claim with its committed evidence, and why that does not fit the catalogue where it does not."""
        path = self.paths.evidence / f"{claim.id}.json"
        return _record(claim, load_file(path) if path.is_file() else None)

    @cached_property
    def records(self) -> list[Record]:
        """Every claim with its committed evidence, and with those of its conditions; measures nothing."""
        return attached([_record(claim, self.evidence.get(claim.id)) for claim in self.project.claims])

    def check_report(self, left_out: re.Pattern[str] = NOTHING) -> list[Problem]:
        """Whether the committed reports are, byte for byte, what the committed evidence gives.

        :param left_out: what is not compared
        """
        unknown = sorted(self.evidence.keys() - {claim.id for claim in self.project.claims})
        problems = [Problem(each, CLAIM_FELL, "has evidence but is in no catalogue", remedy=REMEDY) for each in unknown]
        for name, text in self.rendered(self.records).items():
            path = self.paths.reports / name
            found = path.read_bytes().decode(errors="replace") if path.is_file() else ""
            if left_out.sub("code", found) != left_out.sub("code", text):
                sentence = "is not what the committed evidence gives"
                problems.append(Problem(name, CLAIM_FELL, sentence, remedy="run `rlverify report`"))
        return problems

    def write_report(self) -> None:
        """Render the reports and replace the committed ones."""
        write_files(self.paths.reports, self.rendered(self.records))

    def rendered(self, records: Sequence[Record], full_audit: FullAudit | None = None) -> Mapping[str, str]:
        """The files of the report of some records."""
        return render_all(collect(self.project, self.paths.reports, records, full_audit))


def _record(claim: Claim, evidence: Evidence | None) -> Record:
    return Record(claim, evidence, tuple(misfits(evidence, claim)) if evidence is not None else ())


def replace_committed(
    committed: Committed,
    records: Sequence[Record],
    others: Sequence[Record],
    full_audit: FullAudit | None,
) -> None:
    """Replace the evidence of records and the reports of all claims.

    :param full_audit: replaces the committed one, unless that is of the same code or a claim could not be measured
    """
    project, paths = committed.project, committed.paths
    kept = [each if _can_be_committed(each) else committed.record(each.claim) for each in records]
    all_records = {record.claim.id: record for record in (*kept, *others)}
    all_are_new = not others and all(map(_can_be_committed, records))
    if full_audit is not None and (not all_are_new or load_full_audit(paths.reports).code == full_audit.code):
        full_audit = None
    measured = [each.evidence for each in records if each.evidence is not None and is_committable(each.evidence)]
    evidence = {f"evidence/{each.claim_id}.json": to_json(each) for each in measured}
    pages = committed.rendered([all_records[claim.id] for claim in project.claims], full_audit)
    more = {} if full_audit is None else {FULL_AUDIT: canonical_json(asdict(full_audit))}
    write_files(paths.reports, {**evidence, **pages, **more})
    for path in paths.evidence.glob("*.json"):
        record = all_records.get(path.stem)
        if _is_evidence(path) if record is None else record.evidence is None:
            path.unlink()
    for path in (paths.reports / PLOTS_FOLDER).glob("*.svg"):
        if path.stem not in project.figure_plots:
            path.unlink()


def _can_be_committed(record: Record) -> bool:
    return record.evidence is not None and is_committable(record.evidence)


def full_audit_of(project: Project, code: CurrentCode, seconds: Mapping[str, float]) -> FullAudit:
    """The note that all claims are measured today."""
    today = datetime.now(UTC).date().isoformat()
    revision = answer(project.root, "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*")
    return FullAudit(code.digest, today, code.libraries, machine(), revision, seconds)


def unsupported_date(project: Project, paths: ReportPaths) -> list[Problem]:
    """The date of the full audit, if it is before its revision, or after the commit that has it."""
    last, path = load_full_audit(paths.reports), str(paths.reports / FULL_AUDIT)
    is_committed = not answer(project.root, "diff", "--name-only", "HEAD", "--", path)
    revision = last.revision.removesuffix("-dirty")
    least = _day(project, revision, "--") if revision else ""
    most = (_day(project, "HEAD", "--", path) if is_committed else "") or datetime.now(UTC).date().isoformat()
    if not last.date or least <= last.date <= most:
        return []
    sentence = f"its date is {last.date}, and no commit supports it: it can be {least or 'any day'} to {most}"
    return [Problem(FULL_AUDIT, CLAIM_FELL, sentence, remedy=REMEDY_OF_FIGURES)]


def _day(project: Project, *arguments: str) -> str:
    """The day of the last commit that Git finds, in UTC; empty if it finds none."""
    found = answer(project.root, "log", "-1", "--format=%ct", *arguments)
    return datetime.fromtimestamp(int(found), UTC).date().isoformat() if found else ""


def _is_evidence(path: Path) -> bool:
    try:
        text = text_of(path)
    except EvidenceError:
        return False
    return '"claim_id"' in text and '"schema_version"' in text
