"""Rules about saved files: whether reading them can run code."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, Final

from rlverify.checks import generic_faults as faults
from rlverify.checks.adapter import NotSupportedError
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
    found = [each for each in _saved(session) if not all(map(is_for_weights, each.imported)) or not _is_torch(each)]
    if not found:
        return passing()
    places = [each.place for each in found]
    more = f" and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
    return failing(f"{len(places)} pickles: {', '.join(places[:SHOWN])}{more}", where=places[0])


@rule(
    "safety",
    "high",
    "Reading the saved files imports nothing but what builds plain data and tensors.",
    faults=[GenericFault("save a pickle that calls a function", _SavesCall)],
)
def artefact_runs_nothing_when_read(session: SubjectSession) -> CheckFinding:
    """The pickles in the saved files name no function and no class except those that build arrays and containers.

    Unpickling calls the functions that a file names. The names are read from the file's instructions; it is not loaded.
    """
    risky = [(each.place, name) for each in _saved(session) for name in each.imported if not is_data(name)]
    if not risky:
        return passing()
    names = list(dict.fromkeys(name for _, name in risky))
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return failing(f"{len(names)} names are imported: {', '.join(names[:SHOWN])}{more}", where=risky[0][0])


def _saved(session: SubjectSession) -> list[Pickle]:
    """The pickles in everything that a trained model saves."""
    with session.folder() as name:
        folder = Path(name)
        session.saved(session.steps, folder)
        files = sorted(each for each in folder.rglob("*") if each.is_file())
        if not files:
            raise NotSupportedError("save() writes no file")
        return [found for file in files for found in pickles_in(file)]


def _is_torch(each: Pickle) -> bool:
    """Whether a pickle is the index of a file of ``torch.save``, which is called ``data.pkl`` in its archive."""
    return each.place.endswith("/data.pkl")
