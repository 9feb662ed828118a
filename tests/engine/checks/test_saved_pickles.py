"""What pickles would import, read without loading them."""

from __future__ import annotations

import base64
import collections
import json
import pickle
import zipfile
from pathlib import Path

import pytest

from rlverify.checks.state.saved_pickles import Pickle, imports, pickles_in


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_names_are_found_in_every_protocol(protocol: int) -> None:
    found = imports(pickle.dumps([collections.Counter("ab"), collections.Counter("b"), Path], protocol))
    assert found is not None
    assert "collections.Counter" in found
    assert any(name.startswith("pathlib") and name.endswith(".Path") for name in found)
    assert len(found) == len(set(found))


def test_plain_values_import_nothing() -> None:
    assert imports(pickle.dumps({"one": [1, 2.0, "three"]})) == ()


@pytest.mark.parametrize("content", [b"", b"no pickle", b"columns\na,b\n1,2\n", b"\x89PNG\r\n", b"\x80\x04", b"2.9.2"])
def test_other_bytes_are_no_pickle(content: bytes) -> None:
    assert imports(content) is None


def test_a_call_counts_also_in_a_broken_pickle() -> None:
    assert imports(b"cbuiltins\nprint\n(tR") == ("builtins.print",)


def test_names_from_the_memory_are_followed() -> None:
    content = b"\x80\x04\x8c\x08builtins\x94\x8c\x05print\x940h\x00h\x01\x93)R."
    assert imports(content) == ("builtins.print",)


def test_a_name_that_is_no_text_is_unknown() -> None:
    assert imports(b"\x80\x04K\x01K\x02\x93.") == ("(computed).(computed)",)


def test_an_extension_is_reported() -> None:
    assert imports(b"\x80\x02\x82\x05.") == ("copyreg.extension 5",)


def test_archives_and_fields_of_json_are_searched(tmp_path: Path) -> None:
    field = {":type:": "x", ":serialized:": base64.b64encode(pickle.dumps(Path("a"))).decode()}
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        archive.writestr(
            "data", json.dumps({"gamma": 0.9, "policy": {"inner": [field]}, "text": {":serialized:": "?"}})
        )
        archive.writestr("more.pkl", pickle.dumps(1))
        archive.writestr("version", "2.9.2")
    first, second = pickles_in(tmp_path / "model.zip")
    assert first.place == "model.zip: data: policy: inner: 0"
    assert first.imported[0].startswith("pathlib")
    assert second == Pickle("model.zip: more.pkl", ())
