"""Files of evidence: canonical JSON, written, read again, and compared with fresh evidence and with the claim.

Committed evidence holds only what repeats on any machine: no times, hosts, paths or raw floats.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from rlverify.evidence.files import first_problem, json_of, sealed, text_of
from rlverify.evidence.summarising import compare_figures, criterion_digest, measured_figure, span_in_words
from rlverify.records.claims import Claim, Verdict
from rlverify.records.errors import EvidenceError
from rlverify.records.measured import Evidence, SymptomEvidence, VariantEvidence
from rlverify.verdicts.verdict import grade_fix, judge

FULL_AUDIT: Final = "full_audit.json"


@dataclass(frozen=True)
class FullAudit:
    """The last time that all claims were measured together.

    :param code: digest of all code, as `CurrentCode` gives it
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


def load_full_audit(reports: Path) -> FullAudit:
    """What the file in a folder of reports says; nothing where there is none, or it is broken."""
    path = reports / FULL_AUDIT
    try:
        return _FILE.validate_python(json_of(text_of(path), path)) if path.is_file() else FullAudit()
    except EvidenceError:
        raise
    except ValueError:  # no JSON, or other fields
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
    try:
        content = json_of(text, path)
        of_figure = {"seeds": [*range(len(content["figure"]["values"]))], "variants": []} if "figure" in content else {}
        evidence = _EVIDENCE.validate_python({**content, **of_figure})
        if (said := evidence.figure) is not None:
            figure = replace(measured_figure(said.values, said.claimed), criterion=said.criterion)
            evidence = replace(evidence, figure=figure)
        follows = json.loads(to_json(evidence))
    except EvidenceError:
        raise
    except ValidationError as error:
        raise EvidenceError(path, f"{first_problem(error)}; measure it again") from error
    except (ValueError, TypeError, KeyError) as error:
        raise EvidenceError(path, f"is no evidence ({type(error).__name__}: {error}); measure it again") from error
    if content != follows:
        command = f"rlverify audit{' --level full' if evidence.figure else ''} --update"
        reason = "was edited after it was measured: its digest or its results do not follow from its content"
        raise EvidenceError(path, f"{reason}; run `{command}`")
    if evidence.claim_id != path.stem:
        raise EvidenceError(path, f"is about {evidence.claim_id}, not about {path.stem}")
    return evidence


def load_folder(folder: Path) -> dict[str, Evidence]:
    """All evidence of a folder by claim id; a folder that does not exist holds none."""
    found: dict[str, Evidence] = {}
    for place in (folder.parent, folder):
        if place.exists() and not place.is_dir():
            raise EvidenceError(place, "is no folder, so no evidence can be read from it")
    for path in sorted(folder.glob("*.json")):
        found[path.stem] = load_file(path)
    return found


def load_file(path: Path) -> Evidence:
    """The evidence of one file."""
    return from_json(text_of(path), path)


def listed(seeds: Sequence[int]) -> str:
    """Seeds, separated by commas."""
    return ", ".join(str(seed) for seed in seeds)


def compare(committed: Evidence, fresh: Evidence, tolerance: float = 0.0, *, repeats: bool = False) -> list[str]:
    """Where fresh evidence differs from what is committed, as sentences; empty where they agree."""
    differences = _compare_outcomes(committed, fresh)
    if committed.figure is not None and fresh.figure is not None:
        return differences + compare_figures(committed.figure, fresh.figure, tolerance, repeats=repeats)
    if committed.seeds != fresh.seeds:
        differences.append(f"seeds {listed(fresh.seeds)} instead of {listed(committed.seeds)}")
    for variant in fresh.variants:
        before = committed.variant(variant.variant)
        differences += _compare_symptoms(before, variant) if before is not None else [f"{variant.variant} is new"]
    missing = {each.variant for each in committed.variants} - {each.variant for each in fresh.variants}
    differences += [f"{name} is no longer measured" for name in sorted(missing)]
    return differences


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
            differences.append(f"{fresh.variant}: {name!r} observed {_told(now[name])}, committed {_told(was[name])}")
    if (committed.reached, committed.held_runs, committed.runs) != (fresh.reached, fresh.held_runs, fresh.runs):
        differences.append(f"{fresh.variant}: held in {fresh.held_runs} of {fresh.runs} runs, reached {fresh.reached}")
    return sorted(differences)


def _told(symptom: SymptomEvidence) -> str:
    """What was observed and expected; a text is left out where it differs between runs or machines."""
    observed = "" if symptom.after is None else f"{symptom.after} "
    expected = "" if symptom.before is None else f"expected {symptom.before}, "
    return f"{observed}({expected}holds {symptom.held_runs}/{symptom.runs})"


def misfits(evidence: Evidence, claim: Claim) -> list[str]:
    """Why committed evidence is of another version of the claim, as sentences; empty where it fits."""
    if evidence.figure is not None or claim.figure is not None:
        return _figure_misfits(evidence, claim)
    found = []
    if evidence.seeds != claim.seeds:
        found.append(f"measured with seeds {listed(evidence.seeds)}, the claim asks for {listed(claim.seeds)}")
    measured = tuple(each.variant for each in evidence.variants)
    if measured != claim.variants:
        found.append(f"measured in {', '.join(measured)}, the claim asks for {', '.join(claim.variants)}")
    if evidence.shows != claim.shows:
        found.append("measured for other symptoms than `shows` names")
    return found


def _figure_misfits(evidence: Evidence, claim: Claim) -> list[str]:
    """Where committed evidence of a figure differs from what the claim asks for, whatever its code."""
    measured, asked = evidence.figure, claim.figure
    if measured is None or asked is None:
        how, what = ("by a probe", "figure") if measured is None else ("as a figure", claim.kind)
        return [f"measured {how}, the claim is now a {what}"]
    found = []
    if measured.runs != asked.runs:
        found.append(f"measured in {measured.runs} runs, the claim asks for {asked.runs}")
    if measured.claimed != asked.claimed:
        found.append(
            f"measured against {span_in_words(*measured.claimed)}, the claim says {span_in_words(*asked.claimed)}"
        )
    if not found and measured.criterion != criterion_digest(claim):
        found.append("judged by another criterion: the claim now names another experiment, quantity or tolerance")
    return found
