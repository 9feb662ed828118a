"""The command `freeze`: fixes how figures are judged, before they are measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from rlverify.cli.console import show
from rlverify.cli.options import project_of
from rlverify.evidence.files import write_files
from rlverify.project.criteria import HEAD, NAME, FrozenCriterion, frozen_table
from rlverify.project.selecting import is_pattern, select_claims
from rlverify.records.claims import Claim
from rlverify.records.errors import UsageError


def freeze(
    context: typer.Context,
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="Only these claims, or patterns, each with its conditions."),
    ] = None,
    why: Annotated[str, typer.Option(metavar="TEXT", help="The reason for these criteria.")] = "",
    after_result: Annotated[
        bool,
        typer.Option(
            "--after-result", help="Admit that a result of the claims that are named was known; reports show it."
        ),
    ] = False,
) -> None:
    """Freeze the criteria of figures: experiment, quantity, interval and runs.

    Commit the file before you measure. The gate fails where a criterion changed after it was frozen.
    """
    if not why.strip():
        raise UsageError("--why is missing; say why these criteria are right, or why they were changed")
    project = project_of(context)
    criteria = project.criteria or {}
    named = select_claims(project.claims, ids or (), ())
    claims = _figures(project.claims, named, ids or ())
    admitted = {claim.id for claim in named} if after_result and ids else set()
    digests = {claim.id: project.settings_digest(claim) for claim in claims}
    new = {
        claim_id: digest
        for claim_id, digest in digests.items()
        if _is_new(criteria, claim_id, digest, admitted=claim_id in admitted)
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


def _figures(claims: Sequence[Claim], named: Sequence[Claim], ids: Sequence[str]) -> list[Claim]:
    """The figures among the claims that are named and their conditions.

    :raises UsageError: if an id names a claim that has neither
    """
    chosen = {claim.id for claim in named}
    found = [each for each in claims if each.figure is not None and chosen & {each.id, each.condition_of}]
    measured = {name for each in found for name in (each.id.casefold(), each.condition_of.casefold())}
    for name in ids:
        if not found or not (is_pattern(name) or name.casefold() in measured):
            raise UsageError(f"{name!r} has no figure and no condition, so there is no criterion to freeze")
    return found


def _is_new(criteria: Mapping[str, Sequence[FrozenCriterion]], claim_id: str, digest: str, *, admitted: bool) -> bool:
    """Whether a criterion is not the latest frozen one, or that one does not admit yet that a result was known."""
    if claim_id not in criteria:
        return True
    latest = criteria[claim_id][-1]
    return latest.digest != digest or (admitted and not latest.after_result)
