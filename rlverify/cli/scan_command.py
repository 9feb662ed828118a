"""The command `scan`: what trusts its input, in Python source and in checkpoint files; as text, JSON or SARIF."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from rlverify.cli.console import mention
from rlverify.cli.run_options import STDOUT, check_outputs, write_texts
from rlverify.evidence.files import canonical_json
from rlverify.records.problems import AS_EXPECTED, CLAIM_FELL, SCHEMA_VERSION, few
from rlverify.reporting.sarif import sarif_document, sarif_result, sarif_rule
from rlverify.scan.findings import RULES, ScanFinding, ScanRule
from rlverify.scan.scanning import scan as scan_paths

_NOT_SCANNED: Final = frozenset({"unreadable-file", "scan-limit"})


def text_of(findings: Sequence[ScanFinding]) -> str:
    """Return one line for each finding, one for each remedy, and one that counts the findings."""
    lines = [_printable(f"{each.place}: {each.severity}: {each.message} [{each.rule}]") for each in findings]
    remedies = dict.fromkeys(f"[{each.rule}] {each.remedy}" for each in findings)
    files = len({each.path for each in findings})
    count = f"{_number(len(findings), 'finding')} in {_number(files, 'file')}" if findings else "nothing found"
    return "\n".join([*lines, *remedies, count]) + "\n"


def _printable(text: str) -> str:
    """Escape what names of files may hold to move a terminal's cursor or to begin a line."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def json_of(findings: Sequence[ScanFinding]) -> str:
    """Return one object with the list ``findings``; a field that a finding does not have is null or empty."""
    return canonical_json({"schema_version": SCHEMA_VERSION, "findings": [asdict(each) for each in findings]})


def sarif_of(findings: Sequence[ScanFinding]) -> str:
    """Return the whole file: one rule for each kind of finding, one result for each finding.

    Paths are relative to the current folder, which readers take for that of the repository.
    """
    return sarif_document(
        [_rule(RULES[name]) for name in sorted({each.rule for each in findings})],
        _results(findings),
        exit_code=CLAIM_FELL if findings else AS_EXPECTED,
        root="The folder that was scanned from.",
    )


def _rule(rule: ScanRule) -> dict[str, Any]:
    level = "warning" if rule.identifier in _NOT_SCANNED else "error"
    return sarif_rule(rule.identifier, rule.title, rule.explanation, f"To fix it: {rule.remedy}.", level)


def _results(findings: Sequence[ScanFinding]) -> Iterator[dict[str, Any]]:
    """Equal findings of a file are numbered, so that each has a fingerprint of its own."""
    seen: Counter[tuple[str, ...]] = Counter()
    for each in findings:
        key = (each.path, each.rule, each.field, each.message)
        text = "\0".join((*key, str(seen[key])))
        fingerprint = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        seen[key] += 1
        where = f"{each.field}: " if each.field else ""
        message = f"{where}{each.message}\n{each.remedy}"
        line = each.line or 1
        yield sarif_result(
            each.rule, each.severity, message, each.path, line, fingerprint, scheme="finding/v1", field=each.field
        )


FINDING_FORMATS: Final[Mapping[str, Callable[[Sequence[ScanFinding]], str]]] = {
    "text": text_of,
    "json": json_of,
    "sarif": sarif_of,
}


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
        mention(_printable(f"note: left out {few(map(str, left_out))}; name a folder to scan it"))
    write_texts(files or {"output": STDOUT}, {"output": FINDING_FORMATS[text_format](findings)})
    raise typer.Exit(CLAIM_FELL if findings else AS_EXPECTED)
