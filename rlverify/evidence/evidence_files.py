"""Files of evidence: canonical JSON, written and read again; a file that contradicts its own counts is refused.

Committed evidence holds only what repeats on any machine: no times, hosts, paths or raw floats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from rlverify.evidence.files import canonical_json, check_seal, sealed, text_of, why_unreadable
from rlverify.evidence.summarising import FigureFile, as_figure_object, figure_of, impossible_in_figure
from rlverify.records.claims import FixGrade, Verdict
from rlverify.records.errors import EvidenceError
from rlverify.records.measured import Evidence, FigureEvidence, SymptomEvidence, Variant, VariantEvidence
from rlverify.verdicts.verdict import grade_fix, judge

FULL_AUDIT: Final = "full_audit.json"


@dataclass(frozen=True)
class FullAudit:
    """The last time that all claims were measured together.

    :param code: digest of all code, as `CurrentCode` gives it
    :param date: the day in UTC, as in ``2026-11-25``
    :param libraries: versions of the libraries of the settings, by name
    :param machine: as `rlverify.project.code.machine` gives it
    :param revision: of the code, as Git describes it; empty without Git
    :param seconds: that a run of each experiment took, by its name
    """

    code: str = ""
    date: str = ""
    libraries: Mapping[str, str] = field(default_factory=dict)
    machine: str = ""
    revision: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)


_FILE: Final = TypeAdapter(FullAudit)


def full_audit_json(audit: FullAudit) -> str:
    """The text of the file."""
    return canonical_json(asdict(audit))


def load_full_audit(reports: Path) -> FullAudit:
    """What the file in a folder of reports says; nothing where there is none, or it is broken."""
    path = reports / FULL_AUDIT
    return parsed_full_audit(text_of(path)) if path.is_file() else FullAudit()


def parsed_full_audit(text: str) -> FullAudit:
    """What a text of the file says; nothing if it is broken."""
    try:
        return _FILE.validate_json(text)
    except ValidationError:
        return FullAudit()


SCHEMA_VERSION = 2
FIGURE_SCHEMA_VERSION = 3

Count = Annotated[int, Field(strict=True, ge=0)]


class _Symptom(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    symptom: str
    held_runs: Count
    runs: Annotated[int, Field(strict=True, gt=0)]
    before: str | None
    after: str | None


class _Variant(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    variant: Variant
    runs: Annotated[int, Field(strict=True, gt=0)]
    held_runs: Count
    reached: bool | None
    symptoms: Annotated[tuple[_Symptom, ...], Field(min_length=1)]


class _Peek(BaseModel):
    """What tells the two kinds of files apart."""

    figure: object = None


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[2]
    digest: str
    claim_id: str
    seeds: Annotated[tuple[Count, ...], Field(min_length=1)]
    shows: tuple[str, ...] = ()
    variants: Annotated[tuple[_Variant, ...], Field(min_length=1)]
    verdict: Verdict
    fix_grade: FixGrade | None


def is_committable(evidence: Evidence) -> bool:
    """Whether every run ended; a crash or a stale fault is no evidence of anything and is never written."""
    ended = all(not each.errors and each.stale is None for each in evidence.variants)
    return ended and judge(evidence) not in (Verdict.ERROR, Verdict.STALE)


def to_json(evidence: Evidence) -> str:
    """Canonical JSON: sorted keys, two spaces, UTF-8, a final newline; verdict and grade are there for readers."""
    if evidence.figure is not None:
        return sealed(_content_of_figure(evidence, evidence.figure))
    content = asdict(evidence)
    del content["figure"]
    for variant in content["variants"]:
        del variant["errors"], variant["stale"], variant["hint"]
    content |= {"schema_version": SCHEMA_VERSION, "verdict": judge(evidence), "fix_grade": grade_fix(evidence)}
    return sealed(content)


def _content_of_figure(evidence: Evidence, figure: FigureEvidence) -> dict[str, Any]:
    return {
        "schema_version": FIGURE_SCHEMA_VERSION,
        "claim_id": evidence.claim_id,
        "figure": as_figure_object(figure),
        "verdict": judge(evidence),
    }


def from_json(text: str, path: Path) -> Evidence:
    """Read what `to_json` wrote.

    :param path: where it stands, for the error; its name is the id of the claim
    :raises EvidenceError: if a field is missing, unknown or mistyped, or the verdict does not follow from the counts
    """
    content = _parse(text, path)
    level = " --level full" if isinstance(content, FigureFile) else ""
    check_seal(text, path, f"run `rlverify audit{level} --update`")
    evidence = figure_of(content) if isinstance(content, FigureFile) else _evidence_of(content)
    _check(evidence, content, path)
    return evidence


def _parse(text: str, path: Path) -> _File | FigureFile:
    try:
        kind = _Peek.model_validate_json(text)
        return (_File if kind.figure is None else FigureFile).model_validate_json(text)
    except ValidationError as error:
        raise EvidenceError(path, why_unreadable(error, text, "measure it again")) from error


def _evidence_of(content: _File) -> Evidence:
    variants = tuple(
        VariantEvidence(
            each.variant,
            each.runs,
            each.held_runs,
            each.reached,
            tuple(SymptomEvidence(**s.model_dump()) for s in each.symptoms),
        )
        for each in content.variants
    )
    return Evidence(content.claim_id, content.seeds, variants, content.shows)


def _check(evidence: Evidence, content: _File | FigureFile, path: Path) -> None:
    if evidence.claim_id != path.stem:
        raise EvidenceError(path, f"is about {evidence.claim_id}, not about {path.stem}")
    for impossible in _impossible_counts(evidence):
        raise EvidenceError(path, f"{impossible}; measure it again")
    verdict, grade = judge(evidence), grade_fix(evidence)
    said = content.fix_grade if isinstance(content, _File) else None
    if (content.verdict, said) != (verdict, grade):
        told = f"{content.verdict.value}, fix {said and said.value}"
        follows = f"{verdict.value}, fix {grade and grade.value}"
        raise EvidenceError(path, f"says {told}, but its counts give {follows}; measure it again")


def _impossible_counts(evidence: Evidence) -> Iterator[str]:
    """What no measurement can have given."""
    if evidence.figure is not None:
        yield from impossible_in_figure(evidence.figure)
    if len(set(evidence.seeds)) != len(evidence.seeds):
        yield f"names a seed twice ({listed(evidence.seeds)})"
    names = [each.variant for each in evidence.variants]
    if len(set(names)) != len(names):
        yield f"holds a variant twice ({', '.join(names)})"
    for variant in evidence.variants:
        yield from (f"{variant.variant}: {each}" for each in _impossible_in(variant, len(evidence.seeds)))


def _impossible_in(variant: VariantEvidence, seeds: int) -> Iterator[str]:
    if (variant.reached is None) != (variant.variant == "healthy"):
        yield f"reached is {variant.reached}, but it is known only where a fault is planted"
    if variant.runs != seeds:
        yield f"{variant.runs} runs of {seeds} seeds"
    if len({each.symptom for each in variant.symptoms}) != len(variant.symptoms):
        yield "names a symptom twice"
    for each in variant.symptoms:
        if not each.held_runs <= each.runs <= variant.runs:
            yield f"{each.symptom!r} held in {each.held_runs} of {each.runs} runs, out of {variant.runs} in all"
    violated = [each.runs - each.held_runs for each in variant.symptoms]
    if not max(violated) <= variant.runs - variant.held_runs <= sum(violated):
        yield f"held in {variant.held_runs} of {variant.runs} runs, which its symptoms do not add up to"


def load_folder(folder: Path) -> dict[str, Evidence]:
    """All evidence of a folder by claim id; a folder that does not exist holds none.

    :raises EvidenceError: on the first broken file
    """
    found: dict[str, Evidence] = {}
    for place in (folder.parent, folder):
        if place.exists() and not place.is_dir():
            raise EvidenceError(place, "is no folder, so no evidence can be read from it")
    for path in sorted(folder.glob("*.json")):
        found[path.stem] = load_file(path)
    return found


def load_file(path: Path) -> Evidence:
    """The evidence of one file.

    :raises EvidenceError: if it is broken
    """
    return from_json(text_of(path), path)


def listed(seeds: Sequence[int]) -> str:
    """Seeds, separated by commas."""
    return ", ".join(str(seed) for seed in seeds)
