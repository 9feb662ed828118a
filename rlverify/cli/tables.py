"""What the command line shows, built from records; nothing here prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from rlverify.cli.console import plain_table
from rlverify.records.claims import Claim, FixGrade, Verdict
from rlverify.records.measured import Observation, PairedRun, Run, Variant
from rlverify.reporting import phrasing
from rlverify.verdicts.statistics import MeasurementPlan
from rlverify.verdicts.verdict import Record

STYLES = {
    Verdict.CONFIRMED.value: "green",
    Verdict.NOT_REPRODUCED.value: "yellow",
    FixGrade.CURED.value: "green",
    "holds": "green",
    "violated": "red",
}
SHORT = 20
"""The most characters of a text that shares its line with others."""
HEADINGS: dict[Variant, str] = {"healthy": "healthy", "faulty": "faulty", "documented_fix": "fixed"}


def word(text: str) -> Text:
    """A verdict word; its colour says nothing that the word does not."""
    return Text(text, style=STYLES.get(text, ""))


def claims_table(claims: Sequence[Claim]) -> Table:
    """One line a claim."""
    table = plain_table("claim", "kind", "area", "expected", "title", wrapped=["title"])
    for claim in claims:
        table.add_row(claim.id, claim.kind, claim.area, claim.expected_verdict.value, Text(claim.title))
    return table


def claim_table(claim: Claim, conditions: Sequence[Claim] = ()) -> Table:
    """One line for each field of a claim that is not empty."""
    content = asdict(claim) | {"statement": phrasing.statement(claim)}
    if claim.figure is not None:
        content["figure"]["claimed"] = phrasing.origin_and_claimed(claim.figure)
    earlier = [f"{each.criterion}: {each.verdict.value}, until {each.until}; {each.why}" for each in claim.earlier]
    content |= {"earlier": earlier, "conditions": [f"{each.id}: {each.condition}" for each in conditions]}
    return _table_of((name.replace("_", " "), value) for name, value in _fields(content) if name not in ("id", "title"))


def _table_of(rows: Iterable[tuple[str, str]]) -> Table:
    """Names, and texts that wrap."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, Text(value))
    return table


def _fields(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and text of what is not empty, also inside of tables."""
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _fields(value)
        elif value not in (None, "", False) and value not in ((), []):
            texts = [*map(str, value)] if isinstance(value, (list, tuple)) else [str(value)]
            yield name, ("\n" if max(map(len, texts)) > SHORT else ", ").join(texts)


def runs_text(runs: Sequence[Run]) -> Text:
    """Each symptom, and below it a line for each variant of one seed: status, expected and observed value."""
    symptoms = dict.fromkeys(each.symptom for run in runs for each in run.observations)
    blocks = [_symptom_lines(symptom, runs) for symptom in symptoms]
    return Text("\n").join(line for block in blocks for line in block)


def _symptom_lines(symptom: str, runs: Sequence[Run]) -> list[Text]:
    found = {run.variant: next((each for each in run.observations if each.symptom == symptom), None) for run in runs}
    width = max(len(_value(each.before)) for each in found.values() if each is not None)
    return [Text(symptom), *(_variant_line(HEADINGS[variant], each, width) for variant, each in found.items())]


def _variant_line(heading: str, observation: Observation | None, width: int) -> Text:
    if observation is None:
        return Text(f"  {heading:<8} not observed")
    status = word("holds" if observation.holds else "violated")
    status.pad_right(len("violated") - len(status))
    values = f"  expected {_value(observation.before):<{width}}  observed {_value(observation.after)}"
    return Text.assemble(f"  {heading:<8} ", status, values)


def _value(text: str) -> str:
    return text or "(empty)"


def steps_text(steps: Sequence[tuple[str, str]]) -> Text:
    """What to look at next, a line each."""
    return Text("\n".join(f"{what:<9}{where}" for what, where in steps))


def audit_table(records: Sequence[Record]) -> Table:
    """One line a claim: measured next to expected."""
    table = plain_table("claim", "measured", "expected", "fix", "expected", "title", wrapped=["title"])
    for record in records:
        claim = record.claim
        grades = [grade.value if grade else "-" for grade in (record.fix_grade, claim.expected_fix_grade)]
        verdict = word(phrasing.outcome(record))
        table.add_row(claim.id, verdict, claim.expected_verdict.value, word(grades[0]), grades[1], Text(claim.title))
    return table


NO_EVIDENCE = "NO EVIDENCE"


def figures_table(records: Sequence[Record]) -> Table:
    """One line a figure: claimed next to measured."""
    table = plain_table("figure", "verdict", "claimed", "measured", wrapped=["claimed", "measured"])
    for record in records:
        claim, evidence = record.claim, record.evidence
        if claim.figure is None:
            continue
        found = evidence.figure if evidence is not None else None
        measured = (
            phrasing.measured_in_words(found, claim.figure.unit) if found is not None and not found.errors else "-"
        )
        table.add_row(claim.id, _verdict(record), phrasing.origin_and_claimed(claim.figure), measured)
    return table


def quantities_table(run: PairedRun, record: Record) -> Table:
    """Each quantity of one paired run, that of the claim with its committed value and what is claimed of it."""
    figure, found = record.claim.figure, record.evidence.figure if record.evidence is not None else None
    table = plain_table("quantity", "this run", "committed", "claimed", wrapped=["quantity"])
    for name, value in run.quantities:
        if figure is None or name != figure.quantity:
            table.add_row(name, f"{value:.6g}", "", "")
            continue
        is_committed = found is not None and not record.misfits and run.seed < len(found.values)
        committed = f"{found.values[run.seed]:.6g}" if found is not None and is_committed else "-"
        table.add_row(name, f"{value:.6g}", committed, phrasing.origin_and_claimed(figure))
    return table


def verdict_lines(record: Record, source: str = "") -> Text:
    """The verdict and the grade of the fix, each with what is expected; of a figure, what all its runs gave.

    :param source: of a figure, where its evidence comes from
    """
    claim, found = record.claim, record.evidence.figure if record.evidence is not None else None
    if claim.figure is not None and found is None:
        return Text(f"{source}: {NO_EVIDENCE}")
    measured = phrasing.measured_in_words(found, claim.figure.unit) if found is not None and claim.figure else ""
    lines = [f"{source}: {measured}\n"] * bool(measured)
    line = Text.assemble(*lines, "verdict: ", _verdict(record), f" (expected {claim.expected_verdict.value})")
    if record.fix_grade is not None and claim.expected_fix_grade is not None:
        grade = word(record.fix_grade.value)
        line = Text.assemble(line, "\nfix: ", grade, f" (expected {claim.expected_fix_grade.value})")
    return line


def plan_table(found: MeasurementPlan, claim: Claim, runs: Sequence[PairedRun]) -> Table:
    """What a pilot says about the measurement that the catalogue asks for."""
    assert claim.figure is not None
    figure, seconds = claim.figure, sum(run.seconds for run in runs) / len(runs)
    least = str(found.least_runs) if found.least_runs is not None else "more than can be made"
    sample = f"mean {found.mean:.3g}, sd {found.sd:.3g}"
    return _table_of(
        (
            (phrasing.origin(figure), phrasing.claimed_in_words(figure)),
            ("pilot", f"{len(runs)} seeds ({runs[0].seed}..{runs[-1].seed}): {sample}"),
            ("power", f"{found.power:.2f} in the {figure.runs} runs of the catalogue, if the statement is true"),
            ("least runs", f"{least} for a power of 0.8"),
            ("seconds", f"{seconds:.1f} a run, {seconds * figure.runs:.0f} in {figure.runs} runs on one core"),
        )
    )


def _verdict(record: Record) -> Text:
    return word(record.measured_verdict.value if record.measured_verdict else NO_EVIDENCE)
