"""Finds the symptoms of a fallen claim that show why it fell, with their expected and observed values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlverify.records.claims import Verdict
from rlverify.records.measured import Evidence, SymptomEvidence, VariantEvidence
from rlverify.records.runs import Observation, Run, Variant
from rlverify.reporting.figure_phrasing import claimed_in_words
from rlverify.reporting.outcome import SymptomChange
from rlverify.reporting.phrasing import interval
from rlverify.reporting.record import Record

LABELS: dict[Variant, str] = {"healthy": "", "faulty": "with the fault, ", "documented_fix": "with the fix, "}


def symptom_changes(record: Record, committed: Evidence | None) -> tuple[SymptomChange, ...]:
    """The symptoms that differ from what is committed, or else those that healthy code violates.

    Those come first that hold no longer, or no longer do not. What is expected is what is committed; where evidence
    keeps no text, it is what the probe expected of the healthy code.
    """
    evidence, figure = record.evidence, record.claim.figure
    if evidence is None:
        return ()
    if figure is not None:
        quantity = (SymptomChange(figure.quantity, claimed_in_words(figure), interval(record)),)
        return quantity if evidence.figure is not None and evidence.figure.runs else ()
    variants = evidence.variants
    if record.verdict is Verdict.REGRESSED:
        variants = tuple(each for each in variants if each.variant == "healthy")
    pairs = [pair for each in variants for pair in _differing(each, committed)]
    pairs.sort(key=lambda pair: _share(pair[1]) == _share(pair[2]))
    found = [_change(variant, was, now, record.runs) for variant, was, now in pairs]
    healthy = evidence.variant("healthy")
    if not found and healthy is not None:
        broken = [each for each in healthy.symptoms if each.held_runs < each.runs]
        found = [_change("healthy", None, each, record.runs) for each in broken]
    return tuple(found)


def _differing(
    variant: VariantEvidence, committed: Evidence | None
) -> Iterator[tuple[Variant, SymptomEvidence, SymptomEvidence]]:
    """(variant, committed, observed) of every symptom that both have and that differs."""
    before = committed.variant(variant.variant) if committed is not None else None
    known = {each.symptom: each for each in before.symptoms} if before is not None else {}
    for now in variant.symptoms:
        was = known.get(now.symptom)
        if was is not None and (_share(was), was.after) != (_share(now), now.after):
            yield variant.variant, was, now


def _share(symptom: SymptomEvidence) -> float:
    return symptom.held_runs / symptom.runs


def _change(variant: Variant, was: SymptomEvidence | None, now: SymptomEvidence, runs: Sequence[Run]) -> SymptomChange:
    told = _telling(variant, was, now, runs)
    expected = was.after if was is not None else now.before
    if expected is None and told is not None and variant == "healthy":
        expected = told.before
    observed = now.after if now.after is not None or told is None else told.after
    held = "holds" if was is None or _share(was) == 1.0 else "violated"
    if expected is None or observed is None or expected == observed:
        word = "holds" if (_share(now) == 1.0 if told is None else told.holds) else "violated"
        texts = (held, word if observed is None else f"{observed or '(empty)'} ({word})")
    else:
        texts = (expected or "(empty)", observed or "(empty)")
    return SymptomChange(f"{LABELS[variant]}{now.symptom}", *texts)


def _telling(
    variant: Variant, was: SymptomEvidence | None, now: SymptomEvidence, runs: Sequence[Run]
) -> Observation | None:
    """What a run of this variant observed: one that came out otherwise than all did before, if there is one."""
    found = [each for run in runs if run.variant == variant for each in run.observations if each.symptom == now.symptom]
    held = was is None or _share(was) == 1.0
    return min(found, key=lambda each: each.holds is held, default=None)
