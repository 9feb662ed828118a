"""Reading checkpoint files: whether code in them is executed, and on which device tensors end up."""

from __future__ import annotations

import io
import os
import pickle
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from rlcore import CheckpointError, ResumeWarning, StateError, apply_exploit, load_checkpoint, save_checkpoint
from rlcore.checkpoint.formats import FORMAT_V1, FORMAT_V2
from rlverify import Observation, probe
from verification.probes.make import Make, equal

REFUSALS = (CheckpointError, pickle.UnpicklingError)
VERSIONS: dict[str, dict[str, str]] = {
    "a valid": {"format_version": FORMAT_V2},
    "no": {},
    "an unknown": {"format_version": "v9_of_nobody"},
}
"""The version entry of a file, by its name in the symptom."""
OVERRIDES = ("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
"""Environment variables with which torch.load() reads otherwise than its caller asks."""

Reader = Callable[[Path], object]


class _Payload:
    """Creates a folder when it is unpickled: harmless, and visible."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.mkdir, (str(self.marker),)


@probe("a-file-runs-nothing")
def a_file_runs_nothing(make: Make, seed: int) -> Sequence[Observation]:
    """Read files that contain code, and the file of a real model."""
    return [*_executions("rlcore's reader", _read), _whole_file("file of a real model", make, seed)]


@probe("a-version-checked-after-unpickling-stops-nothing")
def a_version_checked_after_unpickling_stops_nothing(make: Make, seed: int) -> Sequence[Observation]:  # noqa: ARG001
    """Read the same files with document 001's reader and with this project's."""
    return [
        *_executions("document 001's reader of population checkpoints", _validated_after_unpickling),
        *_executions("rlcore's reader", _read),
    ]


@probe("a-safe-load-with-a-fallback")
def a_safe_load_with_a_fallback(make: Make, seed: int) -> Sequence[Observation]:  # noqa: ARG001
    """Read with document 001's reader, which falls back to an unsafe load, and with one that has no fallback."""
    return [
        *_executions("safe load with an unsafe fallback", _safe_then_unsafe),
        *_executions("safe load without a fallback", _safe),
    ]


@probe("torch-is-safe-unless-asked")
def torch_is_safe_unless_asked(make: Make, seed: int) -> Sequence[Observation]:  # noqa: ARG001
    """Call torch.load(path) with no other argument, as document 000 quotes it."""
    return _executions("torch.load(path)", torch.load)


@probe("plain-torch-reads-a-v2-file")
def plain_torch_reads_a_v2_file(make: Make, seed: int) -> Sequence[Observation]:
    """Save the parameters of a trained model. Read the file with torch.load(weights_only=True) alone."""
    parameters = _trained(make, seed).get_parameters()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "member.pt"
        save_checkpoint(path, parameters, step=96, performance=1.5)
        found = _outcome(_safe, path)
    return [equal("v2 file read with weights_only=True", "read", found)]


@probe("tensors-go-where-the-reader-says")
def tensors_go_where_the_reader_says(make: Make, seed: int) -> Sequence[Observation]:  # noqa: ARG001
    """Read a file whose tensors were saved from a GPU, with map_location="cpu"."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "member.pt"
        _save_as_from_gpu(path, {"weight": torch.arange(4.0) + seed})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResumeWarning)
            found = _device(path)
    return [equal("device of a tensor saved from a GPU", "cpu", found)]


@probe("v1-files-are-told-from-v2")
def v1_files_are_told_from_v2(make: Make, seed: int) -> Sequence[Observation]:
    """Read a v1 and a v2 file without naming the format. Exploit from the v1 file."""
    source, target = _trained(make, seed), _trained(make, seed + 1)
    with tempfile.TemporaryDirectory() as folder:
        old, new = Path(folder) / "v1.pt", Path(folder) / "v2.pt"
        torch.save(source.policy.state_dict(), old)
        save_checkpoint(new, source.get_parameters(), step=96, performance=1.5)
        found = {path.stem: _format_and_warnings(path) for path in (old, new)}
        taken = _takes_policy(old, source, target)
    expected = {"v1": (FORMAT_V1, 1), "v2": (FORMAT_V2, 0)}
    return [
        *(
            Observation(
                f"{name} file: format and number of warnings", _pair(wanted), _pair(found[name]), found[name] == wanted
            )
            for name, wanted in expected.items()
        ),
        equal("policy weights after an exploit from a v1 file", "all loaded", taken),
    ]


def _executions(reader: str, read: Reader) -> list[Observation]:
    observations = []
    for said, version in VERSIONS.items():
        with _file_with_payload(version) as (path, marker):
            outcome = _outcome(read, path)
            ran = "executed" if marker.exists() else "not executed"
        symptom = f"code in a file with {said} version, {reader}"
        observations.append(Observation(symptom, "not executed", f"{ran}, file {outcome}", holds=ran == "not executed"))
    return observations


@contextmanager
def _file_with_payload(version: Mapping[str, str]) -> Iterator[tuple[Path, Path]]:
    """Yield a file of that version that contains code, and the folder that the code would create."""
    with tempfile.TemporaryDirectory() as folder:
        path, marker = Path(folder) / "member.pt", Path(folder) / "marker"
        data = {"policy.optimizer": {"hidden": _Payload(marker)}, "policy": {"weight": torch.ones(1)}}
        torch.save({**version, "data": data, "step": 1, "performance": 1.0}, path)
        yield path, marker


def _outcome(read: Reader, path: Path) -> str:
    with warnings.catch_warnings(), patch.dict(os.environ):
        warnings.simplefilter("ignore", UserWarning)
        for name in OVERRIDES:
            os.environ.pop(name, None)
        try:
            read(path)
        except (*REFUSALS, ValueError):
            return "refused"
    return "read"


def _read(path: Path) -> object:
    return load_checkpoint(path)


def _validated_after_unpickling(path: Path) -> object:
    """Read as document 001 does: load with weights_only=False, then check format_version."""
    checkpoint = torch.load(path, map_location="cpu", weights_only=False)
    if "format_version" in checkpoint and checkpoint["format_version"] != FORMAT_V2:
        raise ValueError(f"unknown format {checkpoint['format_version']!r}")
    return checkpoint


def _safe(path: Path) -> object:
    return torch.load(path, map_location="cpu", weights_only=True)


def _safe_then_unsafe(path: Path) -> object:
    """Read as document 001 does for inference: weights_only=True; if that fails, warn and use weights_only=False."""
    try:
        return _safe(path)
    except pickle.UnpicklingError:
        warnings.warn(f"{path.name} is loaded with weights_only=False", UserWarning, stacklevel=2)
        return torch.load(path, map_location="cpu", weights_only=False)


def _trained(make: Make, seed: int) -> Any:
    model = make.model(seed)
    model.learn(96)
    return model


def _whole_file(symptom: str, make: Make, seed: int) -> Observation:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "member.pt"
        save_checkpoint(path, _trained(make, seed).get_parameters(), step=96, performance=1.5)
        found = _outcome(_read, path)
    return equal(symptom, "read", found)


def _save_as_from_gpu(path: Path, policy: Mapping[str, torch.Tensor]) -> None:
    """Save a policy, with the device "cpu" in the file replaced by "cuda:0"."""
    buffer = io.BytesIO()
    torch.save(dict(policy), buffer)
    with zipfile.ZipFile(buffer) as given, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as written:
        for name in given.namelist():
            record = given.read(name)
            if name.endswith("data.pkl"):
                record = record.replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
            written.writestr(name, record)


def _device(path: Path) -> str:
    try:
        policy: Any = load_checkpoint(path, map_location="cpu").data["policy"]
    except (CheckpointError, RuntimeError):
        return "another device"
    return "cpu" if policy["weight"].device.type == "cpu" else "another device"


def _format_and_warnings(path: Path) -> tuple[str, int]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = load_checkpoint(path).format_version
        except CheckpointError:
            found = "none"
    return found, sum(issubclass(warning.category, ResumeWarning) for warning in caught)


def _takes_policy(path: Path, source: Any, target: Any) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResumeWarning)
        try:
            apply_exploit(target, load_checkpoint(path).data, {})
        except (CheckpointError, StateError) as error:
            return type(error).__name__
    pairs = zip(source.policy.state_dict().values(), target.policy.state_dict().values(), strict=True)
    return "all loaded" if all(torch.equal(one, other) for one, other in pairs) else "not all loaded"


def _pair(found: tuple[str, int]) -> str:
    return f"{found[0]}, warnings: {found[1]}"
