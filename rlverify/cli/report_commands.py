"""The commands that measure nothing: `list` and `show` claims, and `report`, which renders what was measured."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.text import Text

from rlverify.cli import tables
from rlverify.cli.console import complain, show
from rlverify.cli.options import (
    Areas,
    AsJson,
    ClaimId,
    Patterns,
    Reports,
    chosen_ids,
    project_of,
    report_paths,
    selected,
)
from rlverify.cli.run_options import STDOUT, check_outputs, write_texts
from rlverify.gating.committed_evidence import Committed
from rlverify.gating.fallen import outcome_of_audit
from rlverify.gating.problem_rules import REMEDY, notes_of, problems_of_all
from rlverify.kill_matrix.committed import committed_problems, write_report
from rlverify.kill_matrix.plan import MatrixPlan
from rlverify.project.content import Project
from rlverify.project.settings import ReportPaths
from rlverify.records.errors import UsageError
from rlverify.records.problems import exit_code_of, outcome_of, with_advice
from rlverify.reporting.formats import FORMATS
from rlverify.reporting.html_report import render_html
from rlverify.reporting.outcome import Outcome
from rlverify.reporting.report_data import collect


def list_claims(
    context: typer.Context,
    patterns: Patterns = None,
    areas: Areas = None,
    as_json: AsJson = False,
) -> None:
    """List claims: all of them, or those that are named."""
    claims = selected(project_of(context), patterns, areas)
    show({"claims": [asdict(claim) for claim in claims]} if as_json else tables.claims_table(claims))


def show_claim(context: typer.Context, claim_id: ClaimId, as_json: AsJson = False) -> None:
    """Show one claim: what is said, where, and how it is tested."""
    claim = project_of(context).claim(claim_id)
    if as_json:
        show(asdict(claim))
    else:
        conditions = [each for each in project_of(context).claims if each.condition_of == claim.id]
        show(Text(f"{claim.id}: {claim.title}\n"), tables.claim_table(claim, conditions))


Check = Annotated[bool, typer.Option("--check", help="Write nothing; compare with the committed reports.")]
FormatOption = Annotated[
    Literal["json", "junit", "step-summary", "html"] | None,
    typer.Option(
        "--format",
        help="One text for a program, or one HTML page, and no Markdown: to stdout, or --output.",
    ),
]
Output = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Where that text goes; - is stdout, which is the default.")
]


def report(
    context: typer.Context,
    patterns: Patterns = None,
    areas: Areas = None,
    check: Check = False,
    text_format: FormatOption = None,
    output: Output = None,
    reports: Reports = None,
    as_json: AsJson = False,
) -> None:
    """Render the reports from the committed evidence; measures nothing."""
    text = text_format or ("json" if as_json and not check else None)
    if (output or patterns or areas or text_format) and (text is None or check):
        names = ", ".join((*FORMATS, "html"))
        raise UsageError(f"the pages are about all claims; for one file or for some claims, name a --format ({names})")
    files = check_outputs({"json" if output == STDOUT else "output": output})
    project = project_of(context)
    chosen = chosen_ids(project, patterns, areas)
    paths, matrix_plan = report_paths(project, reports), MatrixPlan(project)
    project.check()
    committed = Committed(project, paths)
    if not committed.evidence:
        raise UsageError(f"there is no evidence in {paths.evidence}; {REMEDY}, or name another folder with --reports")
    if text == "html" and chosen is not None:
        shown_in = {project.claim(each).condition_of for each in chosen}
        chosen |= shown_in - {""}
    records = [each for each in committed.records if chosen is None or each.claim.id in chosen]
    problems = problems_of_all(records)
    if check:
        problems = problems or committed.check_report()
    elif text is None:
        committed.write_report()
        write_report(matrix_plan, paths)
        show(Text(f"wrote the pages in {paths.reports}"))
    if chosen is None:  # the matrix is about all claims
        problems = [*problems, *committed_problems(matrix_plan, paths)]
    if text is not None:
        measured = Outcome((*records,), (*problems,))
        rendered = _rendered(text, project, paths, measured, is_all=chosen is None)
        write_texts(files or {"json": STDOUT}, dict.fromkeys(("json", "output"), rendered))
    notes = notes_of(records)
    if check and as_json:
        show({**outcome_of(problems), "notes": notes})
    else:
        for line in (*map(str, with_advice(problems)), *notes):
            complain(line)
    raise typer.Exit(exit_code_of(problems))


def _rendered(name: str, project: Project, paths: ReportPaths, measured: Outcome, *, is_all: bool) -> str:
    """The pages of a project are about all claims, so chosen ones have the pages that every project has."""
    if name in FORMATS:
        return FORMATS[name](outcome_of_audit(project, measured))
    data = collect(project, paths.reports, measured.records)
    return render_html(data if is_all else replace(data, pages=(), templates=None))
