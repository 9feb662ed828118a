"""Finds numbers that a load loses and that training reads, though a few steps are too few to show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from rlverify.checks.engine.check_records import CheckFinding
from rlverify.checks.engine.rule import failing, passing
from rlverify.checks.engine.session import SubjectSession
from rlverify.checks.state.leaves import is_tensor
from rlverify.checks.state.tree import Difference, differences, find, put
from rlverify.records.attempts import Crash, attempt

SIZES: Final = (0, 1)
"""Other values that a number gets: a little, and far away."""


def nothing_is_lost(session: SubjectSession) -> CheckFinding:
    """Whether training goes on exactly after a load from other values too, of all numbers that differ after one."""
    session.steps  # noqa: B018  # known before the processes start
    with session.folder(has_model=True) as folder:
        values = session.run(lambda: _differing(session, folder))
    paths: Sequence[str] = [path for path in values if path not in session.volatile]
    if not paths or not _are_lost(session, paths):
        return passing()
    while len(paths) > 1:
        first, second = _halves(paths)
        paths = first if _are_lost(session, first) else second
    lost = values[paths[0]]
    seen = f"{lost.path} is {lost.second or 'missing'} after the load, expected {lost.first}"
    why = "these steps are too few to show it; from another value, training that is saved and loaded goes on otherwise"
    return failing(seen, where=lost.path, why=why)


def _differing(session: SubjectSession, folder: Path) -> dict[str, Difference]:
    """The numbers that differ after a load."""
    model = session.trained_model()
    found = [replace(each, restore=_nothing) for each in differences(model, session.loaded(folder))]
    return {each.path: each for each in found if _other_value(model, each.path, 0) is not None}


def _continued(session: SubjectSession, paths: Sequence[str], size: int, is_loaded: bool) -> dict[str, str]:
    """What training gives that goes on from other values of numbers, after a save and a load or without."""
    model = session.trained_model()
    for path in paths:
        put(model, path, _other_value(model, path, size))
    if is_loaded:
        with session.folder() as folder:
            session.adapter.save(model, folder)
            model = session.loaded(folder)
    session.learn(model, session.steps_after)
    return session.result(model)


def _are_lost(session: SubjectSession, paths: Sequence[str], sizes: Sequence[int] = SIZES) -> bool:
    """Whether training reads one of these numbers after a load that loses it."""
    for size in sizes:
        runs = (partial(_continued, session, paths, size, way) for way in (False, True))
        expected, found = (attempt(partial(session.run, each)) for each in runs)
        if isinstance(expected, Crash):  # training cannot have one of these values
            if len(paths) > 1 and any(_are_lost(session, each, [size]) for each in _halves(paths)):
                return True
        elif found != expected:
            return True
    return False


def _halves(paths: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    return paths[: len(paths) // 2], paths[len(paths) // 2 :]


def _nothing() -> None:
    """Restore nothing: what does it cannot be sent to another process."""


def _other_value(model: Any, path: str, size: int) -> Any:
    """Another number, array or tensor than that at a path, a little or far away; None for anything else."""
    found: Any = attempt(lambda: find(model, path)[0])
    value = found.detach().clone() if is_tensor(found) else found
    kind = str(getattr(value, "dtype", type(value).__name__))
    if "float" in kind:
        return value * (1.5, 1e3)[size] + 0.25
    return value + (1, 10**6)[size] if "int" in kind and "uint8" not in kind else None
