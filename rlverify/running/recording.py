"""Records which functions a run executes and which files of the project it reads.

The run is made in a forked child of the process that has imported everything, so that no run depends on what an earlier
one has left in a cache. Where a run starts a further process, which is not followed, the record says so.
"""

from __future__ import annotations

import cProfile
import gc
import importlib
import multiprocessing.process
import os
import pickle
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, Generic, TypeVar

import rlverify
from rlverify.project.content import Project
from rlverify.project.fingerprint import COMPILERS, is_within, module_name
from rlverify.records.code_records import Executed
from rlverify.records.errors import HarnessError
from rlverify.running.pool import pin_threads, run_each

Result = TypeVar("Result")

STARTS_A_PROCESS: Final = (multiprocessing.process.BaseProcess.start.__code__, subprocess.Popen.__init__.__code__)
NOT_DATA: Final = (".git", ".venv", "site-packages", ".rlverify", "__pycache__", ".pytest_cache", ".hypothesis")
"""Folders of a project of which no measurement depends."""

READS_SOURCE: Final = frozenset({"linecache", "importlib._bootstrap_external", "rlverify.project.fingerprint"})
"""Modules that read source code for tracebacks, imports and the pins of faults."""


class Recorder:
    """What is executed and read while `recording` is active in this process, in any thread.

    :param project: its packages under test and its content package are recorded
    """

    def __init__(self, project: Project) -> None:
        self._root = project.root.resolve()
        self._places = {package: str(place) for package, place in project.code_places.items()}
        self._codes: dict[int, CodeType] = {}
        self._files: set[str] = set()
        self._active = False

    def executed(self) -> Executed:
        """What has been recorded so far."""
        names = {_name(code, self._places) for code in self._codes.values()}
        unseen = any(code in STARTS_A_PROCESS for code in self._codes.values())
        return Executed(tuple(sorted(names - {""})), tuple(sorted({*self._files, *self._imported()})), unseen)

    def _imported(self) -> Iterator[str]:
        """The modules of the project, relative to its folder, that are in none of these packages."""
        places = [*map(Path, self._places.values()), Path(rlverify.__file__).parent]
        for module in list(sys.modules.values()):
            file = vars(module).get("__file__")
            if isinstance(file, str) and file.endswith(".py") and file.startswith(f"{self._root}{os.sep}"):
                inside = Path(file).relative_to(self._root)
                if not set(inside.parts) & set(NOT_DATA) and not any(map(Path(file).is_relative_to, places)):
                    yield inside.as_posix()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record inside the block; this thread with compiled code, as a Python function for each event is slow."""
        sys.addaudithook(self._on_audit)  # which cannot be removed; it ends with the process
        self._active = True
        profiler = cProfile.Profile(subcalls=False, builtins=False)
        threading.setprofile(self._on_event)
        profiler.enable()
        try:
            yield
        finally:
            profiler.disable()
            threading.setprofile(None)
            self._active = False
            self._codes |= {id(each.code): each.code for each in profiler.getstats() if isinstance(each.code, CodeType)}

    def _on_event(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            self._codes[id(frame.f_code)] = frame.f_code  # by identity: a code object computes its hash every time

    def _on_audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and self._active and isinstance(arguments[0], str) and _reads(arguments[1]):
            path = Path(arguments[0]).resolve()
            if path.is_relative_to(self._root) and not _is_read_as_source(path):
                inside = path.relative_to(self._root)
                if not set(inside.parts) & set(NOT_DATA):
                    self._files.add(inside.as_posix())


def _reads(mode: object) -> bool:
    return isinstance(mode, str) and "r" in mode and "+" not in mode


def _is_read_as_source(path: Path) -> bool:
    """Whether source code is read for a traceback, an import or a pin, which is no part of what is measured."""
    if path.suffix != ".py":
        return False
    frame: FrameType | None = sys._getframe(2)
    modules = set()
    while frame is not None:
        modules.add(str(frame.f_globals.get("__name__")))
        frame = frame.f_back
    if any(is_within(name, COMPILERS) for name in modules):
        return True  # all code of a module that imports a compiler counts; whether it is read depends on a cache
    return bool(modules & READS_SOURCE) and "inspect" not in modules


def _name(code: CodeType, places: Mapping[str, str]) -> str:
    """``package.module:Class.method`` of the outermost function around a code object; empty for code elsewhere."""
    for package, place in places.items():
        if code.co_filename == place or code.co_filename.startswith(place + os.sep):
            module = module_name(package, Path(place), Path(code.co_filename))
            return f"{module}:{code.co_qualname.partition('.<locals>')[0]}"
    return ""


class _Answer(Generic[Result]):
    """What a child sends to its parent."""

    def __init__(self, result: Result, executed: Executed, imported: list[str]) -> None:
        self.result, self.executed, self.imported = result, executed, imported


def prepare_recording(project: Project) -> None:
    """Import everything, so that no run executes what only an import executes."""
    pin_threads()  # before the first import of what reads the environment
    _import_all(project)
    pin_threads()


def run_recorded(action: Callable[[], Result], project: Project) -> tuple[Result, Executed]:
    """Call an action in a forked child, and return its result with what it executed.

    If the child dies, this process dies in the same way, so that the pool reports which task it was.
    """
    gc.freeze()  # no collection in a child walks, and so copies, what it shares with this process
    answer: _Answer[Result] = _forked(lambda: _recorded(action, project))
    for name in answer.imported:
        if not is_within(name, (*project.settings.under_test, project.package)) and name not in sys.modules:
            with suppress(ImportError), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(name)  # so that the next child need not
    return answer.result, answer.executed


def _recorded(action: Callable[[], Result], project: Project) -> _Answer[Result]:
    recorder, before = Recorder(project), set(sys.modules)
    with recorder.recording():
        result = action()
    return _Answer(result, recorder.executed(), sorted(sys.modules.keys() - before))


def _forked(action: Callable[[], _Answer[Result]]) -> _Answer[Result]:
    answers, alive = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(answers[0])
        os.close(alive[1])
        threading.Thread(target=_end_with_parent, args=(alive[0],), daemon=True).start()
        with os.fdopen(answers[1], "wb") as stream:
            pickle.dump(action(), stream)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    os.close(answers[1])
    os.close(alive[0])
    with os.fdopen(answers[0], "rb") as stream:
        text = stream.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(alive[1])
    if not text or code != 0:
        _die_as(code)
    answer: _Answer[Result] = pickle.loads(text)  # noqa: S301 - written by the child of this process
    return answer


def _end_with_parent(alive: int) -> None:
    """The other end of the pipe is closed when the parent ends, however it ends."""
    os.read(alive, 1)
    os._exit(1)


def _die_as(code: int) -> None:
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code or 1)


@dataclass(frozen=True)
class _ImportTask:
    """The modules of a project, to be imported in a process of their own."""

    project: Project
    label: str = "imports of the project"


def executed_by_imports(project: Project) -> Executed:
    """What is executed and read when the modules of a project are imported.

    :raises HarnessError: if they cannot be imported
    """
    (ended,) = run_each(_executed_by_imports, [_ImportTask(project)], processes=1)
    if ended.result is None:
        raise HarnessError("the process that imports the project died")
    return ended.result


def _executed_by_imports(task: _ImportTask) -> Executed:
    """To be called in a process that has imported none of the modules."""
    pin_threads()
    project = task.project
    recorder = Recorder(project)
    with recorder.recording(), redirect_stdout(sys.stderr):
        _import_all(project)
    return recorder.executed()


def _import_all(project: Project) -> None:
    for name in (*project.settings.under_test, project.package):
        importlib.import_module(name)
    _ = (project.faults, project.probes, project.experiments, project.plots)
