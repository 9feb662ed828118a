"""Canaries are planted into each pickle of a file, and show which of them a load executes."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import lzma
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlverify.checks import Status, check_algorithm
from rlverify.checks.engine.session import SubjectSession
from rlverify.checks.rules.safety import executed_canaries
from rlverify.checks.state.saved_pickles import embedded, imports, pickles_in
from tests.engine.checks.tiny_learner import Learner, TinyAdapter

RULE = "artefact_runs_nothing_when_read"
CANARY = pickle.dumps("canary")


def with_canary(place: str, content: bytes) -> list[tuple[str, bytes]]:
    """For each pickle in a file, its place and the whole file with the canary instead of it."""
    return [(inner, put(CANARY)) for inner, _, put in embedded(place, content)]


class LoadsNumbers(TinyAdapter):
    """Keeps plain numbers in a pickle, which imports nothing, and believes it."""

    def save(self, model: Any, folder: Path) -> None:
        super().save(model, folder)
        (folder / "numbers.pkl").write_bytes(pickle.dumps({"updates": 3}))

    def load(self, folder: Path, fresh: Any) -> Any:
        pickle.loads((folder / "numbers.pkl").read_bytes())  # noqa: S301  # the defect
        return super().load(folder, fresh)


class NeverReads(LoadsNumbers):
    def load(self, folder: Path, fresh: Any) -> Any:
        return TinyAdapter.load(self, folder, fresh)


def test_a_pickle_that_a_load_executes_is_found_though_it_imports_nothing() -> None:
    (record,) = check_algorithm(lambda: Learner(), adapter=LoadsNumbers(), checks=[RULE])
    assert (record.status, record.finding.where) == (Status.FAIL, "numbers.pkl")
    assert record.finding.seen == "load() executes 1 of 2 pickles that were replaced by others: numbers.pkl"


def test_a_pickle_that_no_load_reads_is_no_finding() -> None:
    (record,) = check_algorithm(lambda: Learner(), adapter=NeverReads(), checks=[RULE])
    assert record.outcome == "pass, proven by 2 faults"


class RaisesAlways(TinyAdapter):
    def load(self, folder: Path, fresh: Any) -> Any:  # noqa: ARG002
        raise OSError("disk is gone")


def test_a_load_that_always_fails_proves_nothing() -> None:
    (record,) = check_algorithm(lambda: Learner(), adapter=RaisesAlways(), checks=[RULE])
    assert record.status is Status.INCONCLUSIVE
    assert "disk is gone" in record.finding.seen


def test_canaries_change_no_file_that_was_saved(tmp_path: Path) -> None:
    session = SubjectSession(lambda: Learner(), LoadsNumbers(), spans=(3, 3))
    session.saved(tmp_path)
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    assert executed_canaries(session, tmp_path) == (["numbers.pkl"], 2)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before


def test_each_pickle_of_an_archive_is_replaced_alone() -> None:
    field = base64.b64encode(pickle.dumps([1])).decode()
    fields = {"a": {":serialized:": field, ":type:": "list"}, "b": [3, {":serialized:": field}], "c": "text"}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("data", json.dumps(fields))
        archive.writestr("more.pkl", pickle.dumps({"x": 1}))
        archive.writestr("version", "2.9.2")
    found = dict(with_canary("model.zip", buffer.getvalue()))
    assert list(found) == ["model.zip: data: a", "model.zip: data: b: 1", "model.zip: more.pkl"]
    planted = base64.b64encode(CANARY).decode()
    expected = [
        {**fields, "a": {":serialized:": planted, ":type:": "list"}},
        {**fields, "b": [3, {":serialized:": planted}]},
        fields,
    ]
    for content, changed in zip(found.values(), expected, strict=True):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            assert json.loads(archive.read("data")) == changed
            assert (archive.read("more.pkl") == CANARY) == (changed == fields)
            assert archive.read("version") == b"2.9.2"


def test_a_file_of_torch_has_its_index_replaced() -> None:
    buffer = io.BytesIO()
    torch.save({"weight": torch.zeros(2)}, buffer)
    ((place, content),) = with_canary("weights.pt", buffer.getvalue())
    assert place.endswith("/data.pkl")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        (index,) = (archive.read(each) for each in archive.namelist() if each.endswith("/data.pkl"))
    assert imports(index) == ()


def test_a_file_without_pickles_is_left_alone() -> None:
    assert list(with_canary("settings.json", b'{"gamma": 0.9}')) == []
    assert list(with_canary("notes.txt", b"nothing")) == []


class _Calls:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("read",)


def object_array(value: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([value], dtype=object), allow_pickle=True)
    return buffer.getvalue()


WRAPPED = {
    "gzip": gzip.compress(pickle.dumps(_Calls())),
    "bzip2": bz2.compress(pickle.dumps(_Calls())),
    "xz": lzma.compress(pickle.dumps(_Calls())),
    "array": object_array(_Calls()),
    "gzip of an array": gzip.compress(object_array(_Calls())),
}


@pytest.mark.parametrize("kind", WRAPPED)
def test_pickles_in_compressed_files_and_arrays_are_found_and_replaced(kind: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(WRAPPED[kind])
    (found,) = pickles_in(tmp_path / "file")
    assert "builtins.print" in found.imported
    ((place, content),) = with_canary("file", WRAPPED[kind])
    assert place == "file"
    (tmp_path / "file").write_bytes(content)
    (found,) = pickles_in(tmp_path / "file")
    assert found.imported == ()


@pytest.mark.parametrize("content", [b"\x1f\x8bbroken", b"\x93NUMPYbroken", b"BZh"])
def test_a_broken_file_holds_no_pickle(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    assert pickles_in(tmp_path / "file") == []


def test_an_array_of_numbers_holds_no_pickle(tmp_path: Path) -> None:
    np.save(tmp_path / "numbers.npy", np.zeros(3))
    assert pickles_in(tmp_path / "numbers.npy") == []
