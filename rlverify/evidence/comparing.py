"""Compares fresh evidence with what is committed."""

from __future__ import annotations

from rlverify.evidence.evidence_files import listed
from rlverify.evidence.figure_evidence import compare_figures
from rlverify.records.measured import Evidence, SymptomEvidence, VariantEvidence
from rlverify.verdicts.verdict import grade_fix, judge


def compare(committed: Evidence, fresh: Evidence, tolerance: float = 0.0, *, repeats: bool = False) -> list[str]:
    """Where fresh evidence differs from what is committed, as sentences; empty where they agree.

    :param tolerance: of a figure, as in `rlverify.records.claims.Figure`, and so is `repeats`
    """
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
