"""The command `freeze`: fixes how figures are judged, before they are measured."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from rlverify.cli.console import show
from rlverify.cli.options import project_of
from rlverify.evidence.files import write_files
from rlverify.project.criteria import HEAD, NAME, frozen_table
from rlverify.project.selecting import select_claims
from rlverify.records.errors import UsageError


def freeze(
    context: typer.Context,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Only these claims, or patterns.")] = None,
    why: Annotated[str, typer.Option(metavar="TEXT", help="The reason for these criteria.")] = "",
    after_result: Annotated[
        bool, typer.Option("--after-result", help="Admit that a result was known; reports show it.")
    ] = False,
) -> None:
    """Freeze the criteria of figures: experiment, quantity, interval and runs.

    Commit the file before you measure. The gate fails where a criterion changed after it was frozen.
    """
    if not why.strip():
        raise UsageError("--why is missing; say why these criteria are right, or why they were changed")
    project = project_of(context)
    criteria = project.criteria or {}
    claims = [claim for claim in select_claims(project.claims, ids or (), ()) if claim.figure is not None]
    digests = {claim.id: project.settings_digest(claim) for claim in claims}
    new = {
        claim_id: digest
        for claim_id, digest in digests.items()
        if claim_id not in criteria or criteria[claim_id][-1].digest != digest
    }
    if not new:
        show(f"nothing to freeze: {len(digests)} criteria are as they were frozen")
        return
    path = project.folder / NAME
    before = path.read_text(encoding="utf-8") if path.is_file() else HEAD
    today = datetime.now(UTC).date()
    table = frozen_table(today, why.strip(), new, after_result=after_result)
    write_files(project.folder, {NAME: f"{before.rstrip()}\n\n{table}"})
    show(f"froze {len(new)} of {len(digests)} criteria in {path.name}; commit it before you measure")
