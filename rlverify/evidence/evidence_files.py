"""Files of evidence: canonical JSON, written and read again; a file that contradicts its own counts is refused.

Committed evidence holds only what repeats on any machine: no times, hosts, paths or raw floats.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from rlverify.evidence.files import SEAL, canonical_json, check_seal, first_problem, sealed, text_of
from rlverify.evidence.summarising import impossible_in_figure
from rlverify.records.claims import Verdict
from rlverify.records.errors import EvidenceError
from rlverify.records.measured import Evidence, VariantEvidence
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
_EVIDENCE: Final = TypeAdapter(Evidence)


def is_committable(evidence: Evidence) -> bool:
    """Whether every run ended; a crash or a stale fault is no evidence of anything and is never written."""
    ended = all(not each.errors and each.stale is None for each in evidence.variants)
    return ended and judge(evidence) not in (Verdict.ERROR, Verdict.STALE)


def to_json(evidence: Evidence) -> str:
    """Canonical JSON: sorted keys, two spaces, UTF-8, a final newline; verdict and grade are there for readers."""
    content = asdict(evidence)
    if evidence.figure is not None:
        del content["figure"]["errors"], content["seeds"], content["variants"], content["shows"]
        return sealed({**content, "schema_version": FIGURE_SCHEMA_VERSION, "verdict": judge(evidence)})
    del content["figure"]
    for variant in content["variants"]:
        del variant["errors"], variant["stale"], variant["hint"]
    computed = {"verdict": judge(evidence), "fix_grade": grade_fix(evidence)}
    return sealed({**content, **computed, "schema_version": SCHEMA_VERSION})


def from_json(text: str, path: Path) -> Evidence:
    """Read what `to_json` wrote: all that it writes must follow from the counts, or from the values.

    :param path: where it stands, for the error; its name is the id of the claim
    :raises EvidenceError: if it cannot be read, was edited, or holds what no measurement gives
    """
    content, evidence = _parsed(text, path)
    check_seal(content, path, f"run `rlverify audit{' --level full' if evidence.figure else ''} --update`")
    if evidence.claim_id != path.stem:
        raise EvidenceError(path, f"is about {evidence.claim_id}, not about {path.stem}")
    for impossible in _impossible_counts(evidence):
        raise EvidenceError(path, f"{impossible}; measure it again")
    follows = json.loads(to_json(evidence))
    for name in sorted((content.keys() | follows.keys()) - {SEAL}):
        if content.get(name) != follows.get(name):
            said = f"says {name} {content.get(name)}, but its counts give {follows.get(name)}"
            raise EvidenceError(path, f"{said}; measure it again")
    return evidence


def _parsed(text: str, path: Path) -> tuple[dict[str, Any], Evidence]:
    try:
        content = json.loads(text)
        of_figure = {"seeds": [*range(len(content["figure"]["values"]))], "variants": []} if "figure" in content else {}
        return content, _EVIDENCE.validate_python({**content, **of_figure})
    except ValidationError as error:
        raise EvidenceError(path, f"{first_problem(error)}; measure it again") from error
    except (ValueError, TypeError, KeyError) as error:
        raise EvidenceError(path, f"is no evidence ({type(error).__name__}: {error}); measure it again") from error


def _impossible_counts(evidence: Evidence) -> Iterator[str]:
    """What no measurement can have given."""
    if evidence.figure is not None:
        yield from impossible_in_figure(evidence.figure)
    elif not evidence.variants or not evidence.seeds:
        yield "holds no run"
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
    if variant.runs < 1 or not variant.symptoms:
        yield "observed nothing"
        return
    if len({each.symptom for each in variant.symptoms}) != len(variant.symptoms):
        yield "names a symptom twice"
    for each in variant.symptoms:
        if not 0 <= each.held_runs <= each.runs <= variant.runs:
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
