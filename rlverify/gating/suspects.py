"""Finds what fallen claims execute of the code that changed since the base, and names the files to look at first."""

from __future__ import annotations

import ast
import cProfile
import multiprocessing.process
import os
import re
import subprocess
import sys
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from rlverify.gating.git_base import Base
from rlverify.project.content import Project
from rlverify.project.fingerprint import (
    code_parts,
    definitions,
    is_within,
    module_closure,
    module_exists,
    module_name,
    module_path,
)
from rlverify.records.attempts import attempt
from rlverify.records.claims import Claim
from rlverify.records.process import pin_threads
from rlverify.running.executors import Executor
from rlverify.running.paired_runs import PairedTask, run_paired
from rlverify.running.runner import ProbeTask, run_task, tasks_of
from rlverify.verdicts.verdict import Record

STARTS_A_PROCESS: Final = (multiprocessing.process.BaseProcess.start.__code__, subprocess.Popen.__init__.__code__)


@dataclass(frozen=True)
class Traced:
    """What a run executed of the packages under test and of the content package.

    :param functions: ``package.module:Class.method`` of each function; of nested functions, the outermost
    :param unseen: whether another process was started, of which nothing is known
    """

    functions: frozenset[str] = frozenset()
    files: frozenset[Path] = frozenset()
    unseen: bool = False


def trace(task: ProbeTask | PairedTask) -> Traced:
    """Make a run again; its result is not used. To be called in a process of its own, as what it sets up stays."""
    pin_threads()
    attempt(lambda: task.project.probes if isinstance(task, ProbeTask) else task.project.experiments)
    codes: set[CodeType] = set()
    files: set[Path] = set()
    with _recording(codes, files):
        if isinstance(task, ProbeTask):
            run_task(task)
        else:
            run_paired(task)
    root = task.project.root.resolve()
    names = {_name(task.project, code) for code in codes} - {""}
    unseen = any(code in STARTS_A_PROCESS for code in codes)
    return Traced(frozenset(names), frozenset(path for path in files if path.is_relative_to(root)), unseen)


@contextmanager
def _recording(codes: set[CodeType], files: set[Path]) -> Iterator[None]:
    """Record this thread by a profiler, which is quick, and threads that start meanwhile by a function."""

    def on_event(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    def on_audit(event: str, arguments: tuple[Any, ...]) -> None:
        if is_on and event == "open" and isinstance(arguments[0], str):
            files.add(Path(arguments[0]).resolve())

    is_on = True
    sys.addaudithook(on_audit)  # which cannot be removed
    profiler = cProfile.Profile(subcalls=False, builtins=False)
    threading.setprofile(on_event)
    profiler.enable()
    try:
        yield
    finally:
        is_on = False
        profiler.disable()
        threading.setprofile(None)
        codes |= {each.code for each in profiler.getstats() if isinstance(each.code, CodeType)}


def _name(project: Project, code: CodeType) -> str:
    """``package.module:Class.method`` of the outermost function around a code object; empty for code elsewhere."""
    for package, place in project.code_places.items():
        if code.co_filename == str(place) or code.co_filename.startswith(f"{place}{os.sep}"):
            module = module_name(package, place, Path(code.co_filename))
            return f"{module}:{code.co_qualname.partition('.<locals>')[0]}"
    return ""


MOST_CLAIMS: Final = 20
"""How many fallen claims are run again at most; of the others nothing is said."""
FILE: Final = "file "


def changed_by_claim(
    project: Project, base: Base, fallen: Sequence[tuple[Claim, int]], executor: Executor
) -> dict[str, tuple[str, ...]]:
    """Make runs of fallen claims again, in all variants, and name what they execute and has changed since the base.

    :param fallen: claims, each with the seed to run; the first `MOST_CLAIMS` are run
    :returns: by claim id ``package.module:function``, ``package.module`` for code that an import executes, and
        ``file PATH`` for data
    """
    changed = sorted(_changed_parts(project, base))
    if not changed:
        return {}
    runs: dict[str, Sequence[ProbeTask | PairedTask]] = {
        claim.id: [PairedTask(project, claim.experiment, seed)] if claim.figure else tasks_of(project, claim, (seed,))
        for claim, seed in fallen[:MOST_CLAIMS]
    }
    tasks = list(dict.fromkeys(task for own in runs.values() for task in own))
    ended = dict(zip(tasks, executor.map(trace, tasks), strict=True))
    return {
        name: tuple(_executed(project, changed, [ended[task].result or Traced(unseen=True) for task in own]))
        for name, own in runs.items()
    }


def _executed(project: Project, changed: Sequence[str], traced: Sequence[Traced]) -> Iterator[str]:
    """Those of the changed parts that runs executed or read."""
    packages = (*project.settings.under_test, project.package)
    functions = {name for each in traced for name in each.functions}
    files = {path for each in traced for path in each.files}
    modules = module_closure({name.partition(":")[0] for name in functions}, packages)
    for name in changed:
        if name.startswith(FILE):
            found = (project.root / name.removeprefix(FILE)).resolve() in files
        else:
            found = name in (functions if ":" in name else modules) or any(each.unseen for each in traced)
        if found:
            yield name


def _changed_parts(project: Project, base: Base) -> Iterator[str]:
    """Names of all parts of the code, and of all data, that differ from the base."""
    places = {package: place.resolve() for package, place in project.code_places.items()}
    root = project.root.resolve()
    for path in base.changed:
        if path.suffix != ".py" and path.is_relative_to(root):
            yield FILE + path.relative_to(root).as_posix()
        for package, place in places.items():
            if path.suffix == ".py" and path.is_relative_to(place):
                module = module_name(package, place, path)
                was, now = (
                    code_parts(base.text(path) or ""),
                    code_parts(path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""),
                )
                differ = (name for name in was.keys() | now.keys() if was.get(name) != now.get(name))
                yield from (f"{module}:{name}" if name else module for name in differ)


FRAME = re.compile(r'^  File "(.+)", line \d+', re.MULTILINE)


def suspects(record: Record, under_test: Collection[Path]) -> tuple[str, ...]:
    """Files that may be the reason, the likeliest first: where a run crashed, and what changed."""
    named = [name for run in record.runs if run.traceback for name in reversed(FRAME.findall(run.traceback))]
    crashed = [name for name in named if any(Path(name).is_relative_to(place) for place in under_test)]
    both = [name for name in crashed if name in record.changed]
    return tuple(dict.fromkeys([*both, *record.changed, *crashed]))


def files_of(project: Project, parts: Iterable[str]) -> tuple[str, ...]:
    """The files in which some parts are, of the packages under test and of the data that a run read."""
    parts = list(parts)
    modules = {name: name.partition(":")[0] for name in parts}
    within = project.settings.under_test
    found = [name for name in modules if is_within(modules[name], within)]
    found.sort(key=lambda name: ":" not in name)
    places = [module_path(modules[name]) for name in found if module_exists(modules[name])]
    places += [project.root / name.removeprefix(FILE) for name in parts if name.startswith(FILE)]
    return tuple(dict.fromkeys(str(path.resolve()) for path in places))


def line_of(path: str, parts: Iterable[str]) -> int:
    """The line in which the first of the functions of a file begins that are among some parts; 1 if none is."""
    named = [name.partition(":") for name in parts if ":" in name]
    file = Path(path).resolve()
    functions = [name for module, _, name in named if module_exists(module) and module_path(module).resolve() == file]
    lines = []
    for name in functions:
        with suppress(SyntaxError, LookupError):  # the change broke the file, or removed the function
            lines.append(getattr(definitions(ast.parse(file.read_bytes()), name)[0], "lineno", 1))
    return min(lines, default=1)


def edit_of(before: str, now: str, line: int) -> tuple[str, ...]:
    """The first edit of a text that ends at or after a line, or else its first edit; as lines of a diff, unindented."""
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
