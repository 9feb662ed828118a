"""A scan executes and imports nothing of what it scans, and needs no torch."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import cloudpickle
import pytest
import torch
from stable_baselines3 import PPO

from rlverify.cli.scan_command import FINDING_FORMATS
from rlverify.scan import load_parameters_safely, scan
from tests.support.model_files import changed_file, model_file, new_model, serialized

CANARY = "canary_of_the_scan"
CANARY_MODULE = """
import os, pathlib
pathlib.Path(os.environ["CANARY_MARKER"]).touch()
def call(*_): pathlib.Path(os.environ["CANARY_MARKER"]).touch()
class Thing: ...
"""


class Payload:
    """Makes whoever unpickles it create the marker."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self.marker),)


def torch_file(value: object, *, is_zip: bool) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=is_zip)
    return file.getvalue()


def written(folder: Path, marker: Path) -> dict[str, Path]:
    """Hostile files of each kind, by name."""
    imports = f"c{CANARY}\ncall\n(tR.".encode()
    hostile = Payload(marker)
    contents = {
        **{f"protocol{number}.pkl": pickle.dumps(hostile, number) for number in range(6)},
        "imports.pkl": imports,
        "torch.pt": torch_file({"x": hostile}, is_zip=True),
        "old.pt": torch_file({"x": hostile}, is_zip=False),
        "model.zip": changed_file(
            model_file("PPO"), data=lambda fields: fields.update(gamma=serialized(pickle.dumps(hostile)))
        ),
        "importing.zip": changed_file(model_file("PPO"), data=lambda fields: fields.update(gamma=serialized(imports))),
        "function.pkl": cloudpickle.dumps(lambda: marker.mkdir()),
        "source.py": f"import {CANARY}\nimport pickle\npickle.load(f)\n".encode(),
    }
    paths = {name: folder / name for name in contents}
    for name, content in contents.items():
        paths[name].write_bytes(content)
    return paths


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The marker, which appears if anything is executed or the module is imported."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / f"{CANARY}.py").write_text(CANARY_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    monkeypatch.setenv("CANARY_MARKER", str(tmp_path / "marker"))
    return tmp_path / "marker"


def test_nothing_is_executed_or_imported(canary: Path, tmp_path: Path) -> None:
    paths = written(tmp_path, canary)
    before = set(sys.modules)
    findings = scan([tmp_path / name for name in paths])
    for text in FINDING_FORMATS.values():
        text(findings)
    assert {Path(each.path).name for each in findings} == set(paths)
    assert not canary.exists()
    assert CANARY not in sys.modules
    assert set(sys.modules) == before


def test_the_process_that_reads_imports_nothing_that_it_need_not(
    canary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not from the folder to be scanned, though it is the current one, and neither torch nor NumPy."""
    (tmp_path / "modules" / f"{CANARY}.py").rename(tmp_path / "json.py")
    for name in ("torch", "numpy"):
        (tmp_path / "modules" / f"{name}.py").write_text(CANARY_MODULE)
    monkeypatch.chdir(tmp_path)
    paths = written(tmp_path, canary)
    assert {Path(each.path).name for each in scan(paths.values())} == set(paths)
    assert not canary.exists()


LOADERS: dict[str, Callable[[Path], object]] = {
    **{f"protocol{number}.pkl": lambda path: pickle.loads(path.read_bytes()) for number in range(6)},  # noqa: S301
    "imports.pkl": lambda path: pickle.loads(path.read_bytes()),  # noqa: S301
    "torch.pt": lambda path: torch.load(path, weights_only=False),
    "old.pt": lambda path: torch.load(path, weights_only=False),
    "model.zip": PPO.load,
    "importing.zip": PPO.load,
    "function.pkl": lambda path: pickle.loads(path.read_bytes())(),  # noqa: S301
    "source.py": lambda path: exec(path.read_text(), {}),  # noqa: S102
}


@pytest.mark.parametrize("name", LOADERS)
def test_the_attacks_are_real(name: str, canary: Path, tmp_path: Path) -> None:
    """The same files do execute where they are loaded, or the test above proves nothing."""
    path = written(tmp_path, canary)[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            LOADERS[name](path)
        except (NameError, TypeError):  # after the attack: the source has no f, and the model no gamma
            pass
        finally:
            sys.modules.pop(CANARY, None)
    assert canary.exists()


def test_restoring_parameters_executes_nothing(canary: Path, tmp_path: Path) -> None:
    for name in ("model.zip", "importing.zip"):
        load_parameters_safely(written(tmp_path, canary)[name], new_model("PPO"))
    assert not canary.exists()
    assert CANARY not in sys.modules


WITHOUT = """
import sys
sys.path.insert(0, sys.argv[1])
class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "stable_baselines3", "sb3_contrib", "gymnasium", "cloudpickle"}:
            raise ImportError(f"{name} must not be imported")
sys.meta_path.insert(0, Refusing())
from rlverify.cli.app import run
sys.exit(run(["scan", "--format", "json", *sys.argv[2:]]))
"""


def test_the_command_needs_no_torch(canary: Path, tmp_path: Path) -> None:
    paths = written(tmp_path, canary)
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", WITHOUT, str(root), *map(str, paths.values())]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert {Path(each["path"]).name for each in json.loads(done.stdout)["findings"]} == set(paths)
    assert not canary.exists()
