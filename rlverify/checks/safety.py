"""Rules about saved files: whether reading them can run code."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rlverify.checks import generic_faults as faults
from rlverify.checks.adapter import NotSupportedError
from rlverify.checks.canaries import executed_canaries
from rlverify.checks.check_records import CheckFinding
from rlverify.checks.data_names import is_data, is_for_weights
from rlverify.checks.generic_faults import GenericFault
from rlverify.checks.rule import failing, passing, rule
from rlverify.checks.saved_pickles import Pickle, pickles_in
from rlverify.checks.session import SubjectSession

SHOWN: Final = 4


class _SavesPickle(faults.Wrapped):
    def save(self, model: Any, folder: Path) -> None:
        self.inner.save(model, folder)
        (folder / "rlverify.pkl").write_bytes(pickle.dumps({"steps": range(3)}))


class _SavesCall(faults.Wrapped):
    def save(self, model: Any, folder: Path) -> None:
        self.inner.save(model, folder)
        (folder / "rlverify.pkl").write_bytes(b"cbuiltins\nprint\n(tR.")


class _LoadsPickle(faults.Wrapped):
    """Keeps a number in a pickle of its own, which imports nothing."""

    def save(self, model: Any, folder: Path) -> None:
        self.inner.save(model, folder)
        (folder / "rlverify.pkl").write_bytes(pickle.dumps({"steps": 3}))

    def load(self, folder: Path, fresh: Any) -> Any:
        pickle.loads((folder / "rlverify.pkl").read_bytes())  # noqa: S301  # the fault
        return self.inner.load(folder, fresh)


@rule(
    "safety",
    "medium",
    "Saved files can be read without unpickling.",
    faults=[GenericFault("save a pickle", _SavesPickle)],
)
def artefact_needs_no_unpickling(session: SubjectSession) -> CheckFinding:
    """What is saved is JSON, arrays, or tensors that `torch.load(weights_only=True)` reads.

    A file that has to be unpickled can be used only by someone who trusts everyone who could have written it.
    """
    with session.folder() as name:
        saved = _saved(session, Path(name))
    places = [each.place for each in saved if not all(map(is_for_weights, each.imported)) or not _is_torch(each)]
    return failing(f"{len(places)} pickles: {shown(places)}", where=places[0]) if places else passing()


@rule(
    "safety",
    "high",
    "Reading the saved files imports nothing but what builds plain data and tensors.",
    faults=[
        GenericFault("save a pickle that calls a function", _SavesCall),
        GenericFault("load a pickle", _LoadsPickle),
    ],
)
def artefact_runs_nothing_when_read(session: SubjectSession) -> CheckFinding:
    """The pickles in the saved files name no function and no class except those that build arrays and containers.

    Unpickling calls the functions that a file names. The names are read from the file's instructions; it is not loaded.
    Then each pickle is replaced by one that makes a folder, and the files are loaded: no folder may be made.
    """
    with session.folder() as name:
        folder = Path(name)
        risky = [(each.place, name) for each in _saved(session, folder) for name in each.imported if not is_data(name)]
        executed, planted = _executed(session, folder)
    ran = f"load() executes {len(executed)} of {planted} pickles that were replaced by others: {shown(executed)}"
    if risky:
        names = list(dict.fromkeys(name for _, name in risky))
        why = ran if executed else ""
        return failing(f"{len(names)} names are imported: {shown(names)}", where=risky[0][0], why=why)
    return failing(ran, where=executed[0]) if executed else passing()


def _executed(session: SubjectSession, folder: Path) -> tuple[list[str], int]:
    """As `executed_canaries`; none where the adapter cannot load."""
    try:
        return executed_canaries(session, folder)
    except NotSupportedError:
        return [], 0


def shown(names: Sequence[str]) -> str:
    """The first names, and how many there are besides."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


def _saved(session: SubjectSession, folder: Path) -> list[Pickle]:
    """The pickles in everything that a trained model saves into a folder."""
    session.saved(session.steps, folder)
    files = sorted(each for each in folder.rglob("*") if each.is_file())
    if not files:
        raise NotSupportedError("save() writes no file")
    return [found for file in files for found in pickles_in(file)]


def _is_torch(each: Pickle) -> bool:
    """Whether a pickle is the index of a file of ``torch.save``, which is called ``data.pkl`` in its archive."""
    return each.place.endswith("/data.pkl")
