"""Names the files that may have made a claim fall."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from difflib import SequenceMatcher
from pathlib import Path

from rlverify.gating.changed_code import FILE
from rlverify.project.content import Project
from rlverify.project.fingerprint import first_lines, is_within, module_exists, module_path
from rlverify.reporting.record import Record

FRAME = re.compile(r'^  File "(.+)", line \d+', re.MULTILINE)


def suspects(record: Record, under_test: Collection[Path]) -> tuple[str, ...]:
    """Files that may be the reason, the likeliest first: where a run crashed, and what changed.

    A file that changed and in which a run crashed comes before all others.

    :param under_test: the folders, or files, of the packages under test
    """
    crashed = [name for run in record.runs if run.traceback for name in _places(run.traceback, under_test)]
    both = [name for name in crashed if name in record.changed]
    return tuple(dict.fromkeys([*both, *record.changed, *crashed]))


def _places(traceback: str, under_test: Collection[Path]) -> list[str]:
    """The files of a traceback that are under test, the deepest first."""
    found = reversed(FRAME.findall(traceback))
    return [name for name in found if any(Path(name).is_relative_to(place) for place in under_test)]


def files_of(project: Project, parts: Iterable[str]) -> tuple[str, ...]:
    """The files in which some parts are, of the packages under test and of the data that a run read.

    Functions come before other code, and code before data.

    :param parts: as `changed_by_claim` gives them
    """
    parts = list(parts)
    modules = {name: name.partition(":")[0] for name in parts}
    within = project.settings.under_test
    found = [name for name in modules if is_within(modules[name], within)]
    found.sort(key=lambda name: ":" not in name)
    places = [module_path(modules[name]) for name in found if module_exists(modules[name])]
    places += [project.root / name.removeprefix(FILE) for name in parts if name.startswith(FILE)]
    return tuple(dict.fromkeys(str(path.resolve()) for path in places))


def line_of(path: str, parts: Iterable[str]) -> int:
    """The line of a file in which the first of those of its functions begins that are among some parts; 1 if none is.

    :param parts: as `changed_by_claim` gives them
    """
    named = [name.partition(":") for name in parts if ":" in name]
    file = Path(path).resolve()
    functions = {name for module, _, name in named if module_exists(module) and module_path(module).resolve() == file}
    try:
        lines = first_lines(file) if functions else {}
    except SyntaxError:
        return 1
    return min((line for name, line in lines.items() if name in functions), default=1)


def edit_of(before: str, now: str, line: int) -> tuple[str, ...]:
    """The first edit of a text that ends at or after a line, or else its first edit; as lines of a diff, unindented.

    Edits of blank lines and comments are passed over.

    :param line: of the text ``now``, from 1
    """
    old, new = before.splitlines(), now.splitlines()
    edits = [
        (end_of_new, (*_with_sign("-", old[start:end]), *_with_sign("+", new[start_of_new:end_of_new])))
        for kind, start, end, start_of_new, end_of_new in SequenceMatcher(None, old, new).get_opcodes()
        if kind != "equal"
    ]
    quotable = [(last, lines) for last, lines in edits if lines]
    return next((lines for last, lines in quotable if last >= line), quotable[0][1] if quotable else ())


def _with_sign(sign: str, lines: Iterable[str]) -> list[str]:
    stripped = (line.strip() for line in lines)
    return [f"{sign} {line}" for line in stripped if line and not line.startswith("#")]
