"""The command `repin`: fits the pins of faults to the code of today, and shows what has changed."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Annotated, Any

import typer

from rlverify.cli.console import complain, show
from rlverify.cli.options import Revision, project_of
from rlverify.evidence.files import write_files
from rlverify.gating.git_base import Base, find_base, known_base
from rlverify.project.fingerprint import definitions, member_digest, module_path, source_digest
from rlverify.project.planting import healthy_member
from rlverify.records.errors import FaultError
from rlverify.records.problems import AS_EXPECTED, CLAIM_FELL


def repin(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[FAULT]...", help="Only these faults. [default: all that are stale]")
    ] = None,
    base: Revision = None,
) -> None:
    """Set the pins of stale faults to the code of today, after showing what has changed in their targets.

    Read each difference: a fault must still plant its bug in the new code.
    """
    project = project_of(context)
    before = find_base(project, base) if base else known_base(project)
    faults = [project.fault(name) for name in names] if names else list(project.faults.values())
    stale: dict[str, str] = {}
    failed = 0
    for fault in faults:
        try:
            member = healthy_member(fault.owner, fault.member)
            pin = member_digest(member)
        except (FaultError, ImportError, AttributeError) as error:
            complain(f"{fault.name}: its target {fault.target} is gone ({error}); point it elsewhere")
            failed += 1
            continue
        if pin != fault.pins:
            show(f"{fault.name}: {fault.target} ({fault.pins} -> {pin})", *_difference(member, before, fault.pins), "")
            stale[fault.name] = pin
    written = set()
    for path in sorted({module_path(fault.defined_in) for fault in faults if fault.name in stale}):
        text, found = _with_pins(path.read_text(encoding="utf-8"), stale)
        write_files(path.parent, {path.name: text})
        written |= found
    followed = {(fault.target, fault.pins) for fault in faults if fault.name in written}
    for fault in faults:
        if fault.name in stale.keys() - written and (fault.target, fault.pins) not in followed:
            complain(
                f'{fault.name}: {fault.defined_in} has no pins="..." next to its name; set it to {stale[fault.name]}'
            )
            failed += 1
    show(f"{len(stale)} of {len(faults)} faults were stale; check that each still plants its bug")
    raise typer.Exit(CLAIM_FELL if failed else AS_EXPECTED)


def _difference(member: Callable[..., Any], base: Base | None, pinned: str) -> Iterator[str]:
    """What has changed in a target since the base, as lines of a diff; all of it where the base does not have it."""
    name, path = member.__qualname__, Path(str(sys.modules[member.__module__].__file__))
    now = _source(path.read_text(encoding="utf-8"), name)
    text = base.text(path) if base is not None else None
    try:
        was = _source(text or "", name)
    except (LookupError, SyntaxError):
        yield f"  the base does not have {name} in {path.name}; the whole of it:"
        yield from (f"  + {line}" for line in now)
        return
    if source_digest(text or "", name) != pinned:
        yield "  the base does not have what was pinned; name an older one with --base"
    yield from (f"  {line}" for line in list(unified_diff(was, now, lineterm=""))[2:])


def _source(text: str, name: str) -> list[str]:
    lines = text.splitlines()
    found = [node for node in definitions(ast.parse(text), name) if isinstance(node, ast.stmt)]
    return [line for node in found for line in lines[node.lineno - 1 : node.end_lineno]]


def _with_pins(text: str, pins: Mapping[str, str]) -> tuple[str, set[str]]:
    """A module of faults with other pins, by name of the fault; and the names of those that are in it."""
    lines, found = text.split("\n"), set[str]()
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    for call in calls:
        name = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
        value = next((each.value for each in call.keywords if each.arg == "pins"), None)
        if name in pins and isinstance(value, ast.Constant) and value.lineno == value.end_lineno:
            found.add(str(name))
            line, new = lines[value.lineno - 1].encode(), f'"{pins[str(name)]}"'.encode()
            lines[value.lineno - 1] = (line[: value.col_offset] + new + line[value.end_col_offset :]).decode()
    return "\n".join(lines), found
