"""The command line: every command has its file, which is imported when it runs; only this package prints and exits.

Exit codes: 0 as expected; 1 a claim fell, or something committed is out of date; 2 the harness failed and no claim fell
(a claim could not be measured, the catalogue is broken, a folder cannot be written); 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module, metadata
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from rlverify.cli.console import complain, show
from rlverify.records.attempts import Crash, attempt
from rlverify.records.errors import BrokenCodeError, HarnessError
from rlverify.records.problems import AS_EXPECTED, CLAIM_FELL, HARNESS_FAILED, INTERRUPTED

PLACES: Final = {
    "list": "report_commands:list_claims",
    "show": "report_commands:show_claim",
    "reproduce": "reproduce_command:reproduce",
    "pilot": "reproduce_command:pilot",
    "audit": "gate_commands:audit_command",
    "gate": "gate_commands:gate",
    "init": "start_commands:init",
    "new": "start_commands:new",
    "matrix": "fault_commands:matrix",
    "repin": "fault_commands:repin",
    "report": "report_commands:report",
    "scan": "scan_command:scan",
    "check": "check_command:check",
}
"""The function of each command."""


class _Commands(Mapping[str, Any]):
    """Imports a command when it is asked for, so that `check` and `scan` load nothing of the audit."""

    def __getitem__(self, name: str) -> Any:
        module, _, function = PLACES[name].partition(":")
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(name)(getattr(import_module(f"rlverify.cli.{module}"), function))
        return typer.main.get_command(alone)

    def __iter__(self) -> Iterator[str]:
        return iter(PLACES)

    def __len__(self) -> int:
        return len(PLACES)


class _Group(TyperGroup):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands: Any = _Commands()


app = typer.Typer(
    cls=_Group,
    help="Re-inject every known bug, and see whether its check catches it.",
    epilog=(__doc__ or "").partition("\n\n")[2],
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        show(f"rlverify {metadata.version('rlverify')}")
        raise typer.Exit


@app.callback()
def choose_project(
    context: typer.Context,
    project: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A folder of the project. [default: the current folder]")
    ] = None,
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    context.obj = project or Path.cwd()


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; every error becomes one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    outcome = attempt(lambda: _invoke(arguments))
    if isinstance(outcome, Crash):
        complain(f"the harness failed: {outcome.line}")
        return HARNESS_FAILED
    return outcome


def _invoke(arguments: Sequence[str] | None) -> int:
    code: object = INTERRUPTED
    try:
        app(arguments, prog_name="rlverify")
    except SystemExit as exit_:
        code = exit_.code
        if isinstance(exit_.__context__, BrokenPipeError):  # of which typer makes 1, as if a claim had fallen
            code = AS_EXPECTED if "--help" in (arguments or sys.argv) else HARNESS_FAILED
    except (HarnessError, OSError) as error:
        complain(str(error))
        return CLAIM_FELL if isinstance(error, BrokenCodeError) else HARNESS_FAILED
    except KeyboardInterrupt:
        pass
    if code == INTERRUPTED:
        complain("interrupted before the end; run it again")
    return code if isinstance(code, int) else HARNESS_FAILED
