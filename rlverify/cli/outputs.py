"""The files that a run writes for other programs: where they go, and that they can be written."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from rlverify.cli.console import write
from rlverify.evidence.files import check_writable, write_files
from rlverify.records.errors import EvidenceError
from rlverify.reporting.formats import RUN_FORMATS
from rlverify.reporting.outcome import Outcome

STDOUT = Path("-")
APPENDED = "summary"

JUnitFile = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write this run as JUnit's XML.")]
SarifFile = Annotated[
    Path | None, typer.Option("--sarif", metavar="FILE", help="Write the claims that fell as SARIF 2.1.0.")
]
SummaryFile = Annotated[
    Path | None,
    typer.Option("--summary", metavar="FILE", help="Append this run as Markdown."),
]
JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write this run as JSON; - prints it, and nothing else.")
]


def check_outputs(files: Mapping[str, Path | None]) -> dict[str, Path]:
    """The files that were asked for, by the name of their format, after making sure that each can be written.

    :raises typer.BadParameter: naming the first that cannot
    """
    chosen = {name: path if path == STDOUT else path.absolute() for name, path in files.items() if path is not None}
    for name, path in chosen.items():
        if twice := [each for each, other in chosen.items() if other == path != STDOUT and each != name]:
            raise typer.BadParameter(f"--{name} and --{twice[0]} name the same file {path}; name another one")
        if path == STDOUT and name == "json":
            continue
        if path == STDOUT or path.is_dir() or path.name.startswith("--"):
            raise typer.BadParameter(f"--{name} {files[name]} is not a file; name one")
        if _is_written_in_place(path):
            if not os.access(path if path.exists() else path.resolve().parent, os.W_OK):
                raise typer.BadParameter(f"--{name} {path} cannot be written; name another file")
            continue
        try:
            check_writable(path.parent)
        except EvidenceError as error:
            why = getattr(error.__cause__, "strerror", error)
            raise typer.BadParameter(f"--{name} {path} cannot be written: {why}; name another file") from error
    return chosen


def hand_over(path: Path, text: str, *, appended: bool = False) -> None:
    """Write a text to a file, which is replaced as a whole; into devices, pipes and what links point to.

    :param appended: after what the file holds
    :raises EvidenceError: if it cannot be written
    :raises OSError: likewise, if it is no plain file
    """
    if _is_stdout(path):
        write(text)
    elif _is_written_in_place(path):
        with suppress(BrokenPipeError), path.open("a" if appended else "w", encoding="utf-8") as file:
            file.write(text)
    else:
        before = path.read_text(encoding="utf-8") if appended and path.is_file() else ""
        write_files(path.parent, {path.name: before + text})


def _is_written_in_place(path: Path) -> bool:
    return path.is_symlink() or (path.exists() and not path.is_file())


def _is_stdout(path: Path) -> bool:
    """Whether this is what is printed to, by another name, as ``/dev/stdout`` is."""
    if not path.is_symlink() or not sys.stdout:
        return False
    try:
        return os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):  # a link to nothing, or a stream without a descriptor
        return False


def places(files: Mapping[str, Path]) -> str:
    """Where all fallen claims are, or the options that would write them."""
    named = [str(files[name]) for name in ("junit", "json") if name in files]
    return " and ".join(named) or "--junit FILE or --json FILE"


def write_outputs(files: Mapping[str, Path], outcome: Outcome) -> None:
    """Write every file.

    :raises EvidenceError: if one cannot be written any more
    """
    write_texts(files, {name: RUN_FORMATS[name](outcome) for name in files})


def write_texts(files: Mapping[str, Path], texts: Mapping[str, str]) -> None:
    """Write the text of each format to its file.

    :raises EvidenceError: if one cannot be written any more
    """
    for name, path in files.items():
        if path == STDOUT:
            write(texts[name])
        else:
            hand_over(path, texts[name], appended=name == APPENDED)
