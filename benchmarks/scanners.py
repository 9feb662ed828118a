"""Which scanner of pickles sees what: ours, picklescan and fickling on the same files.

python -m benchmarks.scanners    writes reports/measured/scanners.md; needs `pip install picklescan fickling`

A file is seen if a scanner reports anything at all about it. Fickling reads streams of pickles alone, so files that
hold them in a container are beyond it.
"""

from __future__ import annotations

import base64
import builtins
import collections
import functools
import gzip
import importlib
import io
import json
import operator
import os
import pickle
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from rlverify.scan import scan
from tests.engine.pickles.test_pickle_imports import WRITTEN_BY_HAND, Calls

PAGE: Final = Path("reports/measured/scanners.md")
CALLS: Final[tuple[tuple[Callable[..., Any], tuple[Any, ...]], ...]] = (
    (builtins.eval, ("1",)),
    (builtins.exec, ("1",)),
    (builtins.open, ("file", "w")),
    (builtins.getattr, (os.system, "__call__")),
    (subprocess.Popen, (["true"],)),
    (shutil.rmtree, ("folder",)),
    (importlib.import_module, ("os",)),
    (functools.partial, (print,)),
    (operator.attrgetter, ("system",)),
)
EVIL: Final = pickle.dumps(Calls(os.system, "true"), 2)


def hostile() -> dict[str, bytes]:
    """Return files that call a function when they are unpickled, by name."""
    array = np.array([Calls(os.system, "true")], dtype=object)
    field = {"policy_class": {":type:": "x", ":serialized:": base64.b64encode(EVIL).decode()}}
    return {
        **{f"{name}.pkl": code for name, code in WRITTEN_BY_HAND.items()},
        **{f"protocol {each}.pkl": pickle.dumps([Calls(os.system, "true")], each) for each in range(6)},
        **{f"call of {function.__name__}.pkl": pickle.dumps(Calls(function, *a), 4) for function, a in CALLS},
        "second pickle of a file.pkl": pickle.dumps([1]) + EVIL,
        "broken behind the call.pkl": EVIL[:-1] + b"\xff\xfe",
        "pickle.pkl.gz": gzip.compress(EVIL),
        "zip.zip": zipped(EVIL, "data.pkl"),
        "zip in a zip.zip": zipped(zipped(EVIL, "data.pkl"), "inner.zip"),
        "bytes before a zip.zip": b"#!/bin/sh\n" + zipped(EVIL, "data.pkl"),
        "zip of another name.zip": zipped(EVIL, "model.weights"),
        "torch.pt": zipped(EVIL, "archive/data.pkl"),
        "tar.tar.gz": tarred(EVIL),
        "array.npy": written(lambda file: np.save(file, array, allow_pickle=True)),
        "arrays.npz": written(lambda file: np.savez(file, x=array)),
        "model of Stable-Baselines3.zip": zipped(json.dumps(field).encode(), "data"),
    }


def harmless() -> dict[str, bytes]:
    """Return files that call nothing but what makes tensors, arrays and collections, by name."""
    weights = {"weight": torch.zeros(3)}
    state = torch.optim.Adam([torch.zeros(2, requires_grad=True)]).state_dict()
    return {
        "numbers.pkl": pickle.dumps([1, 2.5, {"a": None}]),
        "ordered dict.pkl": pickle.dumps(collections.OrderedDict(a=1)),
        "array.pkl": pickle.dumps(np.zeros(3)),
        "number of NumPy.pkl": pickle.dumps(np.float64(1)),
        "array.npy": written(lambda file: np.save(file, np.zeros(3))),
        "weights.pt": written(lambda file: torch.save(weights, file)),
        "weights in the old format.pt": written(
            lambda file: torch.save(weights, file, _use_new_zipfile_serialization=False)
        ),
        "state of an optimizer.pt": written(lambda file: torch.save(state, file)),
        "text.txt": b"hello\n" * 20,
    }


def zipped(content: bytes, name: str) -> bytes:
    return written(lambda file: zipfile.ZipFile(file, "w").writestr(name, content))


def tarred(content: bytes) -> bytes:
    def write(file: io.BytesIO) -> None:
        with tarfile.open(fileobj=file, mode="w:gz") as archive:
            entry = tarfile.TarInfo("data.pkl")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))

    return written(write)


def written(write: Callable[[io.BytesIO], object]) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def of_ours(path: Path) -> bool:
    return bool(scan([path]))


def of_picklescan(path: Path) -> bool:
    from picklescan.scanner import SafetyLevel, scan_file_path

    found = scan_file_path(str(path))
    return bool(found.issues_count) or any(each.safety is SafetyLevel.Suspicious for each in found.globals)


def of_fickling(path: Path) -> bool:
    from fickling.analysis import Severity, check_safety
    from fickling.exception import UnsafeFileError
    from fickling.fickle import StackedPickle

    try:
        with path.open("rb") as file:
            return any(check_safety(each).severity > Severity.LIKELY_SAFE for each in StackedPickle.load(file))
    except (ValueError, TypeError, UnsafeFileError):  # of what it cannot read
        return False


SCANNERS: Final[Mapping[str, Callable[[Path], bool]]] = {
    "rlverify": of_ours,
    "picklescan": of_picklescan,
    "fickling": of_fickling,
}


def measure(files: Mapping[str, bytes]) -> dict[str, list[bool]]:
    """Return for each file which scanners report something, in their order."""
    seen = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            path = Path(folder) / name
            path.write_bytes(content)
            seen[name] = [see(path) for see in SCANNERS.values()]
    return seen


def page() -> str:
    bad, good = measure(hostile()), measure(harmless())
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in SCANNERS if name != "rlverify")
    hit = [sum(column) for column in zip(*bad.values(), strict=True)]
    alarms = [sum(column) for column in zip(*good.values(), strict=True)]
    rows = [(f"{len(bad)} hostile files: reported", hit), (f"{len(good)} harmless files: reported", alarms)]
    differing = {name: seen for name, seen in bad.items() if not all(seen)}
    differing |= {f"{name} (harmless)": seen for name, seen in good.items() if any(seen)}
    rows += [(f"`{name}`", ["reported" if each else "-" for each in seen]) for name, seen in differing.items()]
    table = "\n".join(f"| {name} | {' | '.join(map(str, cells))} |" for name, cells in rows)
    return (
        "<!-- Generated by `python -m benchmarks.scanners`; do not edit. -->\n\n# Scanners of pickles\n\n"
        f"{__doc__.split('    writes')[0].splitlines()[0]}\nThe others are {versions}. Below the sums are the files on "
        "which they differ.\nFickling reads streams of pickles alone, so containers are beyond it.\n\n"
        f"| | {' | '.join(SCANNERS)} |\n|---|{'---|' * len(SCANNERS)}\n{table}\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
