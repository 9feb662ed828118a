"""Makes one run again and records which functions it executes, which modules they are in, and which files it reads."""

from __future__ import annotations

import cProfile
import multiprocessing.process
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from rlverify.project.content import Project
from rlverify.project.fingerprint import module_name
from rlverify.records.attempts import attempt
from rlverify.records.threads import pin_threads
from rlverify.running.paired_runs import PairedTask, run_paired
from rlverify.running.runner import ProbeTask, run_task

STARTS_A_PROCESS: Final = (multiprocessing.process.BaseProcess.start.__code__, subprocess.Popen.__init__.__code__)


@dataclass(frozen=True)
class Traced:
    """What a run executed of the packages under test and of the content package.

    :param functions: ``package.module:Class.method`` of each function; of nested functions, the outermost
    :param files: every file of the project that was opened
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
        if event == "open" and isinstance(arguments[0], str):
            files.add(Path(arguments[0]).resolve())

    sys.addaudithook(on_audit)  # which cannot be removed; it ends with the process
    profiler = cProfile.Profile(subcalls=False, builtins=False)
    threading.setprofile(on_event)
    profiler.enable()
    try:
        yield
    finally:
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
