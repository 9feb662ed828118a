"""Names that a pickle imports are safe, unknown or dangerous."""

from __future__ import annotations

import builtins
import io
import pickle
import random
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch._weights_only_unpickler import _get_allowed_globals

from rlverify.pickles import COMPUTED, PickleImport
from rlverify.scan.findings import Place, danger_of, findings_of_pickles
from rlverify.scan.unpacking import findings_of_content


def words(text: str) -> list[str]:
    return text.split()


DANGEROUS = words(
    """
    os.system posix.system nt.system subprocess.Popen builtins.eval builtins.exec builtins.__import__
    builtins.getattr sys.exit runpy._run_code importlib.import_module shutil.rmtree socket.socket
    operator.attrgetter functools.partial types.CodeType pickle.loads _pickle.loads torch.load torch.hub.load
    torch.storage._load_from_bytes joblib.load cloudpickle.cloudpickle._make_function
    dill._dill._create_function numpy.testing._private.utils.runstring
    asyncio.unix_events._UnixSubprocessTransport._start webbrowser.open io.open pathlib.Path.unlink
    torch.serialization.os.system mymodule.builtins.eval urllib.request.urlopen ctypes.CDLL
    multiprocessing.util.x yaml.unsafe_load_all
    """
)
UNKNOWN = words(
    """
    mymodule.Thing pathlib.PosixPath io.BytesIO gymnasium.spaces.box.Box
    stable_baselines3.common.policies.Policy logging.getLogger osmosis.system builtins.print
    mymodule.Outer.Inner collections.deque torch.nn.modules.linear.Linear
    """
)
NESTED = {
    "asyncio.unix_events._UnixSubprocessTransport._start": 2,
    "pathlib.Path.unlink": 2,
    "torch.serialization.os.system": 3,
    "mymodule.builtins.eval": 2,
    "mymodule.Outer.Inner": 2,
}
"""How many parts at the end are the name, where that is more than one."""


def imported(name: str) -> PickleImport:
    parts = name.split(".")
    length = NESTED.get(name, 1)
    return PickleImport(".".join(parts[:-length]), ".".join(parts[-length:]), is_called=True)


@pytest.mark.parametrize("name", DANGEROUS)
def test_what_runs_programs_or_code_is_dangerous(name: str) -> None:
    assert danger_of(imported(name)) == "dangerous"


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_neither_is_unknown(name: str) -> None:
    assert danger_of(imported(name)) == "unknown"


@pytest.mark.parametrize("key", [(COMPUTED, "x"), ("x", COMPUTED), (COMPUTED, COMPUTED), ("torch", COMPUTED)])
def test_a_computed_name_is_dangerous(key: tuple[str, str]) -> None:
    assert danger_of(PickleImport(*key, is_called=False)) == "dangerous"


@pytest.mark.parametrize("module", [torch, torch.cuda, torch._utils, torch.serialization, torch._tensor, builtins])
def test_torch_admits_all_that_is_taken_to_be_admitted(module: ModuleType) -> None:
    names = {f"{module.__name__}.{name}" for name in vars(module)}
    safe = {name for name in names if danger_of(PickleImport(*name.rpartition(".")[::2], True)) == "safe"}
    storages = {"torch.TypedStorage", "torch.UntypedStorage"}  # which it admits under another name
    assert safe - {"torch._utils._rebuild_xla_tensor"} <= _get_allowed_globals().keys() | storages


def test_almost_all_that_torch_admits_is_safe() -> None:
    missing = [
        name for name in _get_allowed_globals() if danger_of(PickleImport(*name.rpartition(".")[::2], True)) != "safe"
    ]
    assert [name for name in missing if ".sparse." not in name] == []


HARMLESS: dict[str, Any] = {
    "weights": torch.nn.Linear(2, 2).state_dict(),
    "Adam": torch.optim.Adam(torch.nn.Linear(2, 2).parameters()).state_dict(),
    "parameter": torch.nn.Parameter(torch.ones(2)),
    "types": [torch.float16, torch.int8, torch.bool, torch.Size([1]), torch.device("cpu")],
    "complex": 1j,
    "set": {1, 2},
}


@pytest.mark.parametrize("kind", HARMLESS)
def test_what_torch_saves_of_weights_gives_no_findings(kind: str) -> None:
    file = io.BytesIO()
    torch.save(HARMLESS[kind], file)
    file.seek(0)
    assert list(findings_of_content(file, Place("x.pt"))) == []


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_and_numbers_of_numpy_give_no_findings(protocol: int) -> None:
    arrays = [np.arange(3.0), np.float32(1), np.array(["a"]), np.array([(1, 2.0)], dtype="i4,f8"), np.bool_(True)]
    pickled = io.BytesIO(pickle.dumps(arrays, protocol))
    assert list(findings_of_pickles(pickled, Place("x.pkl"))) == []


def test_one_finding_lists_names_of_one_kind() -> None:
    pickled = io.BytesIO(pickle.dumps([eval, random.SystemRandom, random.Random(0), exec]))
    dangerous, unknown = findings_of_pickles(pickled, Place("x.pkl"))
    assert (dangerous.rule, dangerous.severity) == ("pickle-dangerous-import", "error")
    assert dangerous.message == "unpickling would import builtins.eval, builtins.exec"
    assert (unknown.rule, unknown.severity) == ("pickle-import", "warning")
    assert unknown.message.startswith("unpickling would call random.Random")
    assert unknown.message.endswith(" and import random.SystemRandom")


def test_a_message_names_a_few_imports_and_counts_the_rest() -> None:
    pickled = b"".join(b"cmine\nname%d\n" % number for number in range(20)) + b"."
    (finding,) = findings_of_pickles(io.BytesIO(pickled), Place("x.pkl"))
    assert finding.message.endswith("mine.name7 and 12 more")


def test_names_are_printable_and_short() -> None:
    pickled = "c\x1b[31mü\nname\n".encode() + b"c" + b"m" * 900 + b"\nname\n."
    (finding,) = findings_of_pickles(io.BytesIO(pickled), Place("x.pkl"))
    assert "\\x1b[31m\\xfc.name" in finding.message
    assert len(finding.message) < 300
