"""Finds what has changed since the base of the code that a run of a fallen claim executes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rlverify.gating.git_base import Base
from rlverify.project.content import Project
from rlverify.project.fingerprint import code_parts, module_closure, module_name
from rlverify.records.claims import Claim
from rlverify.running.executors import Executor
from rlverify.running.paired_runs import PairedTask
from rlverify.running.runner import ProbeTask, tasks_of
from rlverify.running.tracing import Traced, trace

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
    runs = {claim.id: _runs(project, claim, seed) for claim, seed in fallen[:MOST_CLAIMS]}
    tasks = list(dict.fromkeys(task for own in runs.values() for task in own))
    ended = dict(zip(tasks, executor.map(trace, tasks), strict=True))
    return {
        name: tuple(_executed(project, changed, [ended[task].result or Traced(unseen=True) for task in own]))
        for name, own in runs.items()
    }


def _runs(project: Project, claim: Claim, seed: int) -> Sequence[ProbeTask | PairedTask]:
    if claim.figure is not None:
        return [PairedTask(project, claim.experiment, seed)]
    return tasks_of(project, claim, (seed,))


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
                was, now = code_parts(base.text(path) or ""), code_parts(_text(path))
                differ = (name for name in was.keys() | now.keys() if was.get(name) != now.get(name))
                yield from (f"{module}:{name}" if name else module for name in differ)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
