"""The command `check`: the rules for any algorithm, without a project."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from rlverify.checks.engine.session import TierName
from rlverify.cli.checking import Asked, check_parts, chosen_rules, rules_table, run_checks
from rlverify.cli.console import show
from rlverify.cli.run_options import STDOUT, JUnitFile, RayAddress, SummaryFile, check_outputs, executor_of, write_texts
from rlverify.records.errors import UsageError
from rlverify.reporting.check_formats import CHECK_FORMATS
from rlverify.running.executors import Executor, ExecutorName


def check(
    context: typer.Context,
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGET]...", help="package.module:factory or path/to/file.py:factory; a subject or model as well."
        ),
    ] = None,
    checks: Annotated[
        list[str] | None, typer.Option("--check", metavar="NAME", help="Only this check; repeatable.")
    ] = None,
    families: Annotated[
        list[str] | None, typer.Option("--family", metavar="NAME", help="Only checks of a family; repeatable.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List all checks, and run none.")] = False,
    limit: Annotated[
        float | None,
        typer.Option(min=1.0, metavar="SECONDS", help="Seconds for each process of a check. [default: 60]"),
    ] = None,
    tier: Annotated[
        TierName | None,
        typer.Option(
            help="smoke: no check starts after seven seconds, none is proven; full: more proofs. [default: default]"
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Count failures that the library's own class has as well.")
    ] = False,
    all_causes: Annotated[
        bool, typer.Option("--all-causes", help="Print every cause of a failure, with whose it is.")
    ] = False,
    as_is: Annotated[
        bool, typer.Option("--as-is", help="Keep settings that only cost time, such as the length of a rollout.")
    ] = False,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write the records as JSON; - prints it, and nothing else."),
    ] = None,
    junit: JUnitFile = None,
    sarif: Annotated[
        Path | None,
        typer.Option("--sarif", metavar="FILE", help="Write the checks that are not as expected as SARIF 2.1.0."),
    ] = None,
    summary: SummaryFile = None,
    where: Annotated[
        ExecutorName,
        typer.Option("--executor", help="Where targets are checked: one after the other here, in workers, or on Ray."),
    ] = "inline",
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Targets at the same time; above 1, in worker processes. [default: 1]")
    ] = None,
    ray_address: RayAddress = None,
) -> None:
    """Check any algorithm for known kinds of bugs: 0 all as expected, 1 a check failed, 2 one could not be run.

    A target is a function without arguments that makes a model. No settings are needed.
    """
    files = check_outputs({"junit": junit, "sarif": sarif, "summary": summary, "json": json_file})
    if listed:
        show(rules_table([*chosen_rules(checks or (), families or ())[0]]))
        raise typer.Exit
    if not targets:
        raise UsageError("name what to check, such as package.module:factory; `rlverify check --list` lists all checks")
    asked = Asked((*targets,), Path(context.obj), (*(checks or ()),), (*(families or ()),), limit, tier, strict, as_is)
    if where == "inline" and (jobs or 1) > 1:
        where = "processes"
    with executor_of(where, jobs, ray_address) as executor:
        raise typer.Exit(run_and_report(asked, files, executor, all_causes=all_causes))


def run_and_report(asked: Asked, files: Mapping[str, Path], executor: Executor, *, all_causes: bool = False) -> int:
    """Run the checks, write the files and print the tables unless JSON is printed."""
    run = run_checks(asked, executor)
    write_texts(files, {name: CHECK_FORMATS[name](run, asked.folder) for name in files})
    if STDOUT not in files.values():
        show(*check_parts(run, all_causes=all_causes))
    return run.exit_code
