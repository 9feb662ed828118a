"""Rules about saved files: whether reading them can run code."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from rlverify.checks.adapters.adapter import NotSupportedError
from rlverify.checks.engine import faults as faults
from rlverify.checks.engine.check_records import CheckFinding, Status
from rlverify.checks.engine.faults import GenericFault
from rlverify.checks.engine.rule import failing, passing, rule
from rlverify.checks.engine.search import listed
from rlverify.checks.engine.session import SubjectSession
from rlverify.checks.state.saved_pickles import Pickle, embedded, is_data, is_for_weights, pickles_in
from rlverify.records.attempts import attempt

PICKLES: Final = 4
"""Pickles, or names that they import, that a failure names."""


def files_in(folder: Path) -> list[Path]:
    """What was saved into a folder."""
    found = sorted(each for each in folder.rglob("*") if each.is_file())
    if not found:
        raise NotSupportedError("save() writes no file")
    return found


def pickles_in_all(folder: Path) -> list[Pickle]:
    """The pickles in everything that was saved into a folder."""
    return [found for file in files_in(folder) for found in pickles_in(file)]


def imports_of(pickles: Sequence[Pickle], why: str = "") -> CheckFinding:
    """Whether pickles import nothing but what builds plain data and tensors."""
    risky = [(each.place, name) for each in pickles for name in each.imported if not is_data(name)]
    if not risky:
        return passing()
    names = list(dict.fromkeys(name for _, name in risky))
    return failing(f"{len(names)} names are imported: {listed(names, PICKLES)}", where=risky[0][0], why=why)


def _also_saving(text: str, content: bytes) -> GenericFault:
    return faults.after("save", text, lambda *given: (given[-1] / "rlverify.pkl").write_bytes(content))


def _load_pickle(_inner: Any, folder: Path, _fresh: Any) -> None:
    pickle.loads((folder / "rlverify.pkl").read_bytes())  # noqa: S301  # the fault


@rule("safety", "medium", faults=[_also_saving("save a pickle", pickle.dumps({"steps": range(3)}))])
def artefact_needs_no_unpickling(session: SubjectSession) -> CheckFinding:
    """Saved files can be read without unpickling.

    What is saved is JSON, arrays, or tensors that `torch.load(weights_only=True)` reads. A file that has to be
    unpickled can be used only by someone who trusts everyone who could have written it.
    """
    with session.folder(has_model=True) as folder:
        saved = pickles_in_all(folder)
    places = [
        each.place
        for each in saved
        if not all(map(is_for_weights, each.imported)) or not each.place.endswith("/data.pkl")
    ]
    return failing(f"{len(places)} pickles: {listed(places, PICKLES)}", where=places[0]) if places else passing()


@rule(
    "safety",
    "high",
    rests_on=["load_returns_a_model"],
    faults=[
        _also_saving("save a pickle that calls a function", b"cbuiltins\nprint\n(tR."),
        faults.in_turn(
            "load a pickle",
            _also_saving("", pickle.dumps({"steps": 3})),  # which imports nothing
            faults.before("load", "", _load_pickle),
        ),
    ],
)
def artefact_runs_nothing_when_read(session: SubjectSession) -> CheckFinding:
    """Reading the saved files imports nothing but what builds plain data and tensors.

    The pickles in the saved files name no function and no class except those that build arrays and containers.
    Unpickling calls the functions that a file names. The names are read from the file's instructions; it is not loaded.
    Then each pickle is replaced by one that makes a folder, and the files are loaded: no folder may be made.
    """
    executed: list[str] = []
    with session.folder(has_model=True) as folder:
        pickles = pickles_in_all(folder)
        with suppress(NotSupportedError):
            executed, planted = executed_canaries(session, folder)
    if not executed:
        return imports_of(pickles)
    ran = f"load() executes {len(executed)} of {planted} pickles that were replaced by others"
    ran = f"{ran}: {listed(executed, PICKLES)}"
    found = imports_of(pickles, why=ran)
    return found if found.status is Status.FAIL else failing(ran, where=executed[0])


CANARY = "canary"


class _Canary:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (os.fspath(self.path),)


def executed_canaries(session: SubjectSession, folder: Path) -> tuple[list[str], int]:
    """The places of pickles in saved files that a load executes, found by loading a canary at each of them.

    :raises SubjectError: if the files cannot be loaded as they are. A load that refuses the canary is right
    :raises NotSupportedError: if the adapter cannot load
    """
    session.run(lambda: _loaded(session, folder))
    executed, planted = [], 0
    for file in files_in(folder):
        with session.folder() as room:
            canary = room / CANARY
            for place, _, put in embedded(file.name, file.read_bytes()):
                planted += 1
                changed = room / str(planted)
                shutil.copytree(folder, changed)
                (changed / file.relative_to(folder)).write_bytes(put(pickle.dumps(_Canary(canary))))
                attempt(lambda changed=changed: session.run(lambda: _loaded(session, changed)))  # type: ignore[misc]
                shutil.rmtree(changed, ignore_errors=True)
                if canary.exists():
                    executed.append(place)
                    canary.rmdir()
    return executed, planted


def _loaded(session: SubjectSession, folder: Path) -> None:
    session.loaded(folder)
