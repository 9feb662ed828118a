"""What the command line shows of figures, built from records; nothing here prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from rlverify.cli.tables import plain_table, word
from rlverify.records.claims import Claim
from rlverify.records.runs import PairedRun
from rlverify.reporting.figure_phrasing import claimed_in_words, measured_in_words, origin, origin_and_claimed
from rlverify.reporting.record import Record
from rlverify.verdicts.power import MeasurementPlan

NO_EVIDENCE = "NO EVIDENCE"


def figures_table(records: Sequence[Record]) -> Table:
    """One line a figure: claimed next to measured."""
    table = plain_table("figure", "verdict", "claimed", "measured", wrapped=["claimed", "measured"])
    for record in records:
        claim, evidence = record.claim, record.evidence
        if claim.figure is None:
            continue
        found = evidence.figure if evidence is not None else None
        measured = measured_in_words(found, claim.figure.unit) if found is not None and not found.errors else "-"
        table.add_row(claim.id, _verdict(record), origin_and_claimed(claim.figure), measured)
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
        table.add_row(name, f"{value:.6g}", committed, origin_and_claimed(figure))
    return table


def verdict_lines(record: Record, source: str) -> Text:
    """What is known of a figure in all its runs.

    :param source: where that comes from, as the start of a line
    """
    claim, evidence = record.claim, record.evidence
    if evidence is None or evidence.figure is None or claim.figure is None:
        return Text(f"{source}: {NO_EVIDENCE}")
    said = measured_in_words(evidence.figure, claim.figure.unit)
    expected = f" (expected {claim.expected_verdict.value})"
    return Text.assemble(f"{source}: {said}\nverdict: ", _verdict(record), expected)


def plan_table(found: MeasurementPlan, claim: Claim, runs: Sequence[PairedRun]) -> Table:
    """What a pilot says about the measurement that the catalogue asks for."""
    assert claim.figure is not None
    figure = claim.figure
    table = Table(box=None, show_header=False, pad_edge=False)
    seeds = [run.seed for run in runs]
    seconds = sum(run.seconds for run in runs) / len(runs)
    least = str(found.least_runs) if found.least_runs is not None else "more than can be made"
    for name, value in (
        (origin(figure), claimed_in_words(figure)),
        ("pilot", f"{len(runs)} seeds ({seeds[0]}..{seeds[-1]}): mean {found.mean:.3g}, sd {found.sd:.3g}"),
        ("power", f"{found.power:.2f} in the {figure.runs} runs of the catalogue, if the statement is true"),
        ("least runs", f"{least} for a power of 0.8"),
        ("seconds", f"{seconds:.1f} a run, {seconds * figure.runs:.0f} in {figure.runs} runs on one core"),
    ):
        table.add_row(name, Text(value))
    return table


def _verdict(record: Record) -> Text:
    return word(record.measured_verdict.value if record.measured_verdict else NO_EVIDENCE)
