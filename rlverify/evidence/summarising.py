"""Summarises the runs of a claim as counts: the evidence that verdicts are computed from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from rlverify.records.claims import Claim
from rlverify.records.measured import Evidence, SymptomEvidence, VariantEvidence
from rlverify.records.runs import Observation, PairedRun, Run, Variant


def summarise(claim: Claim, runs: Sequence[Run]) -> Evidence:
    """The evidence that the runs of one claim amount to."""
    by_variant: dict[Variant, list[Run]] = {}
    for run in runs:
        by_variant.setdefault(run.variant, []).append(run)
    seeds = tuple(dict.fromkeys(run.seed for run in runs))
    variants = tuple(_summarise_variant(variant, found) for variant, found in by_variant.items())
    return Evidence(claim.id, seeds, variants, claim.shows)


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
        hint=next((run.hint for run in ended if run.hint is not None), None),
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


def raw_lines(claim: Claim, runs: Sequence[Run]) -> str:
    """Everything that the runs of a claim returned, one JSON object a line."""
    return "".join(raw_line(run, claim=claim.id) for run in runs)


def raw_line(run: Run | PairedRun, **more: str) -> str:
    """Everything that a run returned, as a JSON object, and more fields."""
    return json.dumps({**more, **asdict(run)}, sort_keys=True) + "\n"
