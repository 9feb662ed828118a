"""The command `scan`: what trusts its input, in Python source and in checkpoint files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from rlverify.cli.console import mention
from rlverify.cli.run_options import STDOUT, check_outputs, write_texts
from rlverify.records.problems import AS_EXPECTED, CLAIM_FELL, few
from rlverify.scan.finding_formats import FINDING_FORMATS
from rlverify.scan.scanning import scan as scan_paths


def scan(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files and folders.")],
    text_format: Annotated[Literal["text", "json", "sarif"], typer.Option("--format", help="How to report.")] = "text",
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the report goes. [default: stdout]")
    ] = None,
) -> None:
    """Report calls that trust their input, and checkpoint files that would execute something; loads nothing.

    The exit code is 0 if nothing was found, 1 if something was, 2 if a path or an option cannot be used.
    """
    files = check_outputs({"output": output})
    left_out: list[Path] = []
    findings = scan_paths(paths, left_out.append)
    if left_out:
        mention(f"note: left out {few(map(str, left_out))}; name a folder to scan it")
    write_texts(files or {"output": STDOUT}, {"output": FINDING_FORMATS[text_format](findings)})
    raise typer.Exit(CLAIM_FELL if findings else AS_EXPECTED)
