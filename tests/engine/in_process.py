"""Runs the command line in this process, as if it were a new one for the tiny projects.

A process of its own costs a second a command, and hides from mutation testing which functions a test executes. Tests of
how a process starts, ends or is killed use the fixture ``rlverify_process`` instead.
"""

from __future__ import annotations

import importlib
import io
import linecache
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

from rlverify.cli.app import run
from rlverify.project.registry import EXPERIMENTS, FAULTS, FIGURE_PLOTS, PAGES, PROBES, Registry

REGISTRIES: tuple[Registry[Any], ...] = (FAULTS, PROBES, EXPERIMENTS, FIGURE_PLOTS, PAGES)
HERE = Path(__file__).parent
EDITED = f"{HERE / 'projects'}{os.sep}"
"""The folder of the tiny projects, which is in one of the others."""
KEPT = tuple(f"{folder}{os.sep}" for folder in (HERE.parents[1], sys.prefix, sys.base_prefix))
"""Folders with modules that no test edits."""
MEASURING = ("audit", "gate")
"""Commands that measure in processes of their own, each of which costs a second, unless they are told otherwise."""


def rlverify_here(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Exit code and output of a command, as `subprocess.run` gives them.

    What it measures is measured here, unless ``--executor`` or ``--jobs`` is given.
    """
    words = measured_here(arguments)
    output, errors = io.StringIO(), io.StringIO()
    folder = Path.cwd()
    with fresh_projects(), redirect_stdout(output), redirect_stderr(errors):
        os.chdir(cwd or folder)
        try:
            code = run(words)
        finally:
            os.chdir(folder)
    return subprocess.CompletedProcess(arguments, code, output.getvalue(), errors.getvalue())


def measured_here(arguments: Iterable[str | Path]) -> list[str]:
    """The words of a command, which measures in this process unless they say where it does."""
    words = [str(each) for each in arguments]
    if {"--executor", "--jobs", "--help"} & {*words}:
        return words
    if {"pilot", "--all"} & {*words}:
        return [*words, "--jobs", "1"]
    return [*words, "--executor", "inline"] if {*MEASURING} & {*words} else words


@contextmanager
def fresh_projects() -> Iterator[None]:
    """Forget what projects imported and registered, before and after, and restore the search path."""
    path, writes, registered = list(sys.path), sys.dont_write_bytecode, [dict(vars(each)) for each in REGISTRIES]
    sys.dont_write_bytecode = True  # a file edited twice within a second would be read from the older bytecode
    forgotten = _forget()
    for registry in REGISTRIES:
        Registry.__init__(registry, registry.kind)
    try:
        yield
    finally:
        _forget()
        for registry, entries in zip(REGISTRIES, registered, strict=True):
            vars(registry).update(entries)
        sys.modules.update(forgotten)
        sys.path[:], sys.dont_write_bytecode = path, writes


def _forget() -> dict[str, ModuleType]:
    """Remove, and return, the modules of all packages that a test may edit."""
    importlib.invalidate_caches()
    linecache.clearcache()
    edited = {name.partition(".")[0] for name, module in sys.modules.items() if _may_be_edited(module)}
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in edited}


def _may_be_edited(module: ModuleType) -> bool:
    """Compares text: there are thousands of modules, and making a `Path` of each took most of the time of a test."""
    file = vars(module).get("__file__")
    return file is not None and (file.startswith(EDITED) or not file.startswith(KEPT))
