"""Derives from an audit which claims fell, how, and what a reader needs to find out why."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from rlverify.evidence.files import shown_path
from rlverify.gating.git_base import Base
from rlverify.gating.problem_rules import reason
from rlverify.gating.replay import CRASHES, DIFFERS
from rlverify.gating.suspects import changed_by_claim, edit_of, files_of, line_of, suspects
from rlverify.project.content import Project
from rlverify.records.claims import Claim, Verdict
from rlverify.records.measured import Evidence, Observation, Run, SymptomEvidence, Variant, VariantEvidence
from rlverify.records.problems import FALLEN, Problem
from rlverify.reporting.outcome import FallenClaim, Outcome, SymptomChange
from rlverify.reporting.phrasing import claimed_in_words, interval, outcome
from rlverify.running.executors import Executor
from rlverify.verdicts.verdict import NOT_MEASURED, Record, healthy_outcome

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
    """Return what one run observed of a symptom: one that came out otherwise than all did before, if any did."""
    found = [each for run in runs if run.variant == variant for each in run.observations if each.symptom == now.symptom]
    held = was is None or _share(was) == 1.0
    return min(found, key=lambda each: each.holds is held, default=None)


WITHOUT_VALUES: Final = (Verdict.ERROR, Verdict.UNREACHED)
"""Verdicts of which the reason says all, as the values of the other variants do not matter."""
IN_WORDS: Final = {
    Verdict.REGRESSED: "its check fails with no fault planted",
    Verdict.NOT_REPRODUCED: "the planted fault has no effect",
}
SEVERITIES: Final = ("critical", "high", "medium", "low")


def outcome_of_audit(
    project: Project,
    result: Outcome,
    selection: str = "",
    base: Base | None = None,
    executor: Executor | None = None,
) -> Outcome:
    """What an audit found, with the fallen claims in the order in which they should be read.

    :param executor: makes runs of fallen claims again, to find what they execute of the code that changed since then
    """
    problems: dict[str, list[Problem]] = {}
    for problem in result.problems:
        if problem.fell:
            problems.setdefault(problem.subject, []).append(problem)
    records = [each for each in result.records if each.claim.id in problems]
    records.sort(key=lambda record: _urgency(record, problems[record.claim.id]))
    if base is not None and executor is not None:
        runs = [(each.claim, _seed(each, _worst(problems[each.claim.id]), result.committed)) for each in records]
        changed = changed_by_claim(project, base, runs, executor)
        records = [replace(each, changed=changed.get(each.claim.id, ())) for each in records]
    fallen = [_fallen(project, each, problems[each.claim.id], result, base) for each in records]
    seconds = {**seconds_of({record.claim.id: record.runs for record in result.records}), **result.seconds}
    return replace(result, fallen=tuple(fallen), seconds=seconds, selection=selection)


def seconds_of(runs: Mapping[str, Sequence[Run]]) -> dict[str, float]:
    """What measuring each claim took; claims that share a run share its time."""
    shares = Counter((run.seed, run.seconds) for own in runs.values() for run in own)
    return {name: sum(run.seconds / shares[run.seed, run.seconds] for run in own) for name, own in runs.items()}


def _urgency(record: Record, problems: Sequence[Problem]) -> tuple[object, ...]:
    """Ascending: by kind, verdicts before crashes, many symptoms, main claims, severe ones."""
    claim = record.claim
    severities = (n for n, word in enumerate(SEVERITIES) if claim.severity.lower().startswith(word))
    return (
        min(FALLEN.index(each.kind) for each in problems),
        claim.kind == "null",
        record.verdict in NOT_MEASURED,
        -_violated(record),
        bool(claim.part_of),
        next(severities, SEVERITIES.index("medium")),
    )


def _violated(record: Record) -> int:
    """How many symptoms of healthy code are violated."""
    assert record.evidence is not None  # a claim without evidence is out of date, which is no fall
    healthy = [each for each in record.evidence.variants if each.variant == "healthy"]
    return sum(each.held_runs < each.runs for variant in healthy for each in variant.symptoms)


def _fallen(
    project: Project, record: Record, problems: Sequence[Problem], result: Outcome, base: Base | None
) -> FallenClaim:
    """What a reader needs of one claim."""
    parts = record.changed
    record = replace(record, changed=files_of(project, parts))
    claim, worst = record.claim, _worst(problems)
    replayed = worst.sentence.startswith((DIFFERS, CRASHES))
    told = replayed or record.verdict in WITHOUT_VALUES or (claim.figure is not None and worst.kind == "values")
    changes = () if told else symptom_changes(record, result.committed.get(claim.id))
    declared_in, line = _declaration(project, claim)
    seed, first = _seed(record, worst, result.committed), claim.seeds[0]
    suspected = suspects(record, [project.code_places[package] for package in project.settings.under_test])
    suspect_line = line_of(suspected[0], parts) if suspected else 1
    return FallenClaim(
        claim,
        worst.kind,
        worst.sentence.partition(": ")[0] if replayed else _headline(record, problems),
        changes,
        worst.sentence.partition(": ")[2] if replayed else "" if changes else _reason(record, worst),
        tuple(shown_path(Path(each), project.root) for each in suspected),
        suspect_line,
        _edit(base, suspected[0], suspect_line) if suspected else (),
        tuple(shown_path(Path(each), project.root) for each in record.changed),
        tuple(parts),
        shown_path(declared_in, project.root),
        line,
        f"{project.settings.command} reproduce {claim.id}{f' --seed {seed}' if seed != first else ''}",
    )


def _worst(problems: Sequence[Problem]) -> Problem:
    return min(problems, key=lambda each: FALLEN.index(each.kind))


def _edit(base: Base | None, file: str, line: int) -> tuple[str, ...]:
    """What changed in a file since a commit, at a line or after it; nothing if the commit does not have the file."""
    before = base.text(Path(file)) if base is not None else None
    if before is None or not Path(file).is_file():
        return ()
    return edit_of(before, Path(file).read_text(encoding="utf-8", errors="replace"), line)


def _seed(record: Record, worst: Problem, evidence: Mapping[str, Evidence]) -> int:
    """The seed of the first run that is not as it was; the first seed where no run is known to be."""
    if record.claim.figure is not None:
        named = re.search(r"\bseed (\d+)", worst.sentence)
        return int(named[1]) if named else 0
    committed = evidence.get(record.claim.id)
    held = committed is None or healthy_outcome(committed) != "violated"
    runs = [run for run in record.runs if run.variant == "healthy"]
    other = {run.seed for run in runs if run.error or all(each.holds for each in run.observations) != held}
    first = record.claim.seeds[0]
    return min(other) if other and first not in other else first


def _headline(record: Record, problems: Sequence[Problem]) -> str:
    claim, verdict, kinds = record.claim, outcome(record), {each.kind for each in problems}
    if kinds == {"values"}:
        return f"{verdict}, with other values than committed"
    told = [] if kinds <= {"grade", "values"} else [f"{verdict} (expected {claim.expected_verdict.value})"]
    if "grade" in kinds:
        grades = [grade.value if grade else "no grade" for grade in (record.fix_grade, claim.expected_fix_grade)]
        told.append(f"fix {grades[0]} (expected {grades[1]})")
    words = f": {IN_WORDS[record.verdict]}" if record.verdict in IN_WORDS and len(told) == 1 else ""
    return ", ".join(told) + words


def _reason(record: Record, worst: Problem) -> str:
    if record.evidence is None or record.verdict not in NOT_MEASURED:
        return worst.sentence if worst.kind == "values" else ""
    return reason(record.evidence, record.verdict).removeprefix(", ")


def _declaration(project: Project, claim: Claim) -> tuple[Path, int]:
    """The file and the line in which the catalogue has the id of a claim."""
    path = project.catalogue_file(claim)
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    found = (number for number, text in enumerate(lines, 1) if text.replace(" ", "") == f'id="{claim.id}"')
    return path, next(found, 1)
