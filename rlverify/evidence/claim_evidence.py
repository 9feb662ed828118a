"""Evidence: from runs to counts, from counts to canonical JSON and back.

What is committed holds only what repeats on any machine: no times, hosts, paths or raw floats. The raw runs go, as JSON
lines, to a working folder outside version control.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlverify.evidence.figure_evidence import (
    FigureFile,
    as_figure_object,
    compare_figures,
    figure_misfits,
    figure_of,
    impossible_in_figure,
)
from rlverify.evidence.files import canonical_json
from rlverify.records.claims import Claim, FixGrade, Verdict
from rlverify.records.errors import EvidenceError
from rlverify.records.measured import Evidence, FigureEvidence, SymptomEvidence, VariantEvidence
from rlverify.records.runs import Observation, Run, Variant
from rlverify.verdicts.verdict import grade_fix, judge

SCHEMA_VERSION = 1

Count = Annotated[int, Field(strict=True, ge=0)]


def summarise(claim: Claim, runs: Sequence[Run], experiment: str, modules: tuple[tuple[str, str], ...]) -> Evidence:
    """The evidence that the runs of one claim amount to.

    :param experiment: digest of the experiment
    :param modules: (dotted name, digest) of each module under test
    """
    by_variant: dict[Variant, list[Run]] = {}
    for run in runs:
        by_variant.setdefault(run.variant, []).append(run)
    seeds = tuple(dict.fromkeys(run.seed for run in runs))
    variants = tuple(_summarise_variant(variant, found) for variant, found in by_variant.items())
    return Evidence(claim.id, experiment, modules, seeds, variants, claim.shows)


def _summarise_variant(variant: Variant, runs: Sequence[Run]) -> VariantEvidence:
    ended = [run for run in runs if run.error is None]
    planted = [run.executions for run in ended if run.executions is not None]
    observed: dict[str, list[Observation]] = {}
    for run in ended:
        for observation in run.observations:
            observed.setdefault(observation.symptom, []).append(observation)
    return VariantEvidence(
        variant,
        runs=len(ended),
        held_runs=sum(all(observation.holds for observation in run.observations) for run in ended),
        reached=all(count > 0 for count in planted) if planted else None,
        symptoms=tuple(_summarise_symptom(symptom, found) for symptom, found in observed.items()),
        errors=tuple(f"seed {run.seed}: {run.error}" for run in runs if run.error is not None and not run.stale),
        stale=next((run.error for run in runs if run.stale), None),
    )


def _summarise_symptom(symptom: str, found: Sequence[Observation]) -> SymptomEvidence:
    repeats = all(each.repeats for each in found)
    before, after = {each.before for each in found}, {each.roughly or each.after for each in found}
    return SymptomEvidence(
        symptom,
        held_runs=sum(each.holds for each in found),
        runs=len(found),
        before=before.pop() if repeats and len(before) == 1 else None,
        after=after.pop() if repeats and len(after) == 1 else None,
    )


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

    schema_version: Literal[1]
    claim_id: str
    experiment_digest: str
    module_digests: dict[str, str]
    seeds: Annotated[tuple[Count, ...], Field(min_length=1)]
    shows: tuple[str, ...] = ()
    variants: Annotated[tuple[_Variant, ...], Field(min_length=1)]
    verdict: Verdict
    fix_grade: FixGrade | None


def is_committable(evidence: Evidence) -> bool:
    """Whether every run ended; a crash or a stale fault is no evidence of anything and is never written."""
    return judge(evidence) not in (Verdict.ERROR, Verdict.STALE)


def to_json(evidence: Evidence) -> str:
    """Canonical JSON: sorted keys, two spaces, UTF-8, a final newline; verdict and grade are there for readers."""
    if evidence.figure is not None:
        return canonical_json(_content_of_figure(evidence, evidence.figure))
    content = asdict(evidence)
    del content["figure"]
    for variant in content["variants"]:
        del variant["errors"], variant["stale"]
    content["module_digests"] = dict(evidence.module_digests)
    content |= {"schema_version": SCHEMA_VERSION, "verdict": judge(evidence), "fix_grade": grade_fix(evidence)}
    return canonical_json(content)


def _content_of_figure(evidence: Evidence, figure: FigureEvidence) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "claim_id": evidence.claim_id,
        "experiment_digest": evidence.experiment_digest,
        "module_digests": dict(evidence.module_digests),
        "figure": as_figure_object(figure),
        "verdict": judge(evidence),
    }


def from_json(text: str, path: Path) -> Evidence:
    """Read what `to_json` wrote.

    :param path: where it stands, for the error; its name is the id of the claim
    :raises EvidenceError: if a field is missing, unknown or mistyped, or the verdict does not follow from the counts
    """
    content = _parse(text, path)
    evidence = figure_of(content) if isinstance(content, FigureFile) else _evidence_of(content)
    _check(evidence, content, path)
    return evidence


def _parse(text: str, path: Path) -> _File | FigureFile:
    try:
        kind = _Peek.model_validate_json(text)
        return (_File if kind.figure is None else FigureFile).model_validate_json(text)
    except ValidationError as error:
        first: Mapping[str, Any] = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise EvidenceError(path, f"{field + ': ' if field else ''}{first['msg']}; measure it again") from error


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
    modules = tuple(sorted(content.module_digests.items()))
    return Evidence(content.claim_id, content.experiment_digest, modules, content.seeds, variants, content.shows)


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
        yield f"names a seed twice ({_listed(evidence.seeds)})"
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
    try:
        return from_json(path.read_text(encoding="utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        raise EvidenceError(path, f"cannot be read: {error}") from error


def raw_lines(claim: Claim, runs: Sequence[Run]) -> str:
    """Everything that the runs of a claim told, one JSON object a line."""
    return "".join(json.dumps({"claim": claim.id, **asdict(run)}, sort_keys=True) + "\n" for run in runs)


def compare(committed: Evidence, fresh: Evidence, tolerance: float = 0.0) -> list[str]:
    """Where fresh evidence differs from what is committed, as sentences; empty where they agree.

    :param tolerance: of a figure, as in `rlverify.records.claims.Figure`
    """
    differences = _compare_outcomes(committed, fresh)
    if committed.figure is not None and fresh.figure is not None:
        differences += compare_figures(committed.figure, fresh.figure, tolerance)
        return differences + _compare_digests(committed, fresh.experiment_digest, fresh.module_digests)
    if committed.seeds != fresh.seeds:
        differences.append(f"seeds {_listed(fresh.seeds)} instead of {_listed(committed.seeds)}")
    for variant in fresh.variants:
        before = committed.variant(variant.variant)
        differences += _compare_symptoms(before, variant) if before is not None else [f"{variant.variant} is new"]
    missing = {each.variant for each in committed.variants} - {each.variant for each in fresh.variants}
    differences += [f"{name} is no longer measured" for name in sorted(missing)]
    return differences + _compare_digests(committed, fresh.experiment_digest, fresh.module_digests)


def misfits(evidence: Evidence, claim: Claim, experiment: str, modules: tuple[tuple[str, str], ...]) -> list[str]:
    """Why committed evidence is stale: it is of another version of the claim or of its code; empty where it fits.

    :param experiment: digest of the experiment as it is now
    :param modules: (dotted name, digest) of each module under test as it is now
    """
    if evidence.figure is not None or claim.figure is not None:
        return figure_misfits(evidence, claim) + _compare_digests(evidence, experiment, modules)
    found = []
    if evidence.seeds != claim.seeds:
        found.append(f"measured with seeds {_listed(evidence.seeds)}, the claim asks for {_listed(claim.seeds)}")
    measured = tuple(each.variant for each in evidence.variants)
    if measured != claim.variants:
        found.append(f"measured in {', '.join(measured)}, the claim asks for {', '.join(claim.variants)}")
    return found + _compare_digests(evidence, experiment, modules)


def _compare_digests(committed: Evidence, experiment: str, modules: tuple[tuple[str, str], ...]) -> list[str]:
    was, now = dict(committed.module_digests), dict(modules)
    changed = [name for name in now if was.get(name) != now[name]] + sorted(was.keys() - now.keys())
    other = committed.experiment_digest != experiment
    return ["the experiment (claim, probe or fault) has changed since"] * other + (
        [f"{', '.join(changed)} changed since"] if changed else []
    )


def _compare_outcomes(committed: Evidence, fresh: Evidence) -> list[str]:
    differences = []
    if judge(committed) != judge(fresh):
        differences.append(f"{judge(fresh).value} instead of {judge(committed).value}")
    if grade_fix(committed) != grade_fix(fresh):
        now, then = (grade.value if grade else "no grade" for grade in (grade_fix(fresh), grade_fix(committed)))
        differences.append(f"fix {now} instead of {then}")
    return differences


def _compare_symptoms(committed: VariantEvidence, fresh: VariantEvidence) -> list[str]:
    was, now = ({each.symptom: each for each in side.symptoms} for side in (committed, fresh))
    differences = [f"{fresh.variant}: {name!r} is new" for name in now if name not in was]
    differences += [f"{fresh.variant}: {name!r} is no longer observed" for name in was if name not in now]
    for name in was.keys() & now.keys():
        if was[name] != now[name]:
            differences.append(f"{fresh.variant}: {name!r} {_told(now[name])} instead of {_told(was[name])}")
    if (committed.reached, committed.held_runs, committed.runs) != (fresh.reached, fresh.held_runs, fresh.runs):
        differences.append(f"{fresh.variant}: held in {fresh.held_runs} of {fresh.runs} runs, reached {fresh.reached}")
    return sorted(differences)


def _told(symptom: SymptomEvidence) -> str:
    return f"{symptom.before} -> {symptom.after} (holds {symptom.held_runs}/{symptom.runs})"


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(str(seed) for seed in seeds)
