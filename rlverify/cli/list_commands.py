"""The commands that show claims and measure nothing: `list` and `show`."""

from __future__ import annotations

from dataclasses import asdict

import typer
from rich.text import Text

from rlverify.cli import options, tables
from rlverify.cli.console import show


def list_claims(
    context: typer.Context,
    patterns: options.Patterns = None,
    areas: options.Areas = None,
    as_json: options.AsJson = False,
) -> None:
    """List claims: all of them, or those that are named."""
    claims = options.selected(options.project_of(context), patterns, areas)
    show({"claims": [asdict(claim) for claim in claims]} if as_json else tables.claims_table(claims))


def show_claim(context: typer.Context, claim_id: options.ClaimId, as_json: options.AsJson = False) -> None:
    """Show one claim: what is said, where, and how it is tested."""
    claim = options.project_of(context).claim(claim_id)
    if as_json:
        show(asdict(claim))
    else:
        conditions = [each for each in options.project_of(context).claims if each.condition_of == claim.id]
        show(Text(f"{claim.id}: {claim.title}\n"), tables.claim_table(claim, conditions))
