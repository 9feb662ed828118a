"""A run's file is YAML 1.2; whatever else it is, one clear error says, with the line."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rlcore import ConfigFileError
from rlcore.run.config_file import Document, read_yaml


def read(tmp_path: Path, text: str | bytes) -> Document:
    path = tmp_path / "x.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_yaml(path)


# YAML 1.1 reads most of them otherwise.
SCALARS: dict[str, object] = {
    "3e-4": 3e-4,
    "1e6": 1e6,
    "-.inf": -math.inf,
    "010": 10,
    "0o17": 15,
    "true": True,
    "null": None,
    "": None,
    '"true"': "true",
    **{text: text for text in ("yes", "no", "on", "off", "y", "tRue", "1:30", "e5", "1.2.3")},
}


@pytest.mark.parametrize("text", SCALARS)
def test_a_value_is_what_yaml_1_2_says(text: str, tmp_path: Path) -> None:
    value = read(tmp_path, f"on: {text}\n").content["on"]
    assert (type(value), value) == (type(SCALARS[text]), SCALARS[text])


def test_a_place_is_found_by_its_deepest_name(tmp_path: Path) -> None:
    document = read(tmp_path, "a:\n  b:\n    c: 1\n  list:\n    - d: 2\n    -\n      d: 3\n      e: 4\nb: 3\n")
    entries = {"a.list[1].e": 8, "a.list[1]": 7, "a.list[2]": 4, "a.Table['list'][0]['d']": 5, "a.list": 4}
    places = {"a.b['c']": 3, "a.b['missing']": 2, "b": 9, "missing": None, "": None, **entries}
    assert {place: document.line_of(place) for place in places} == places


BAD: dict[str, tuple[str | bytes, int | None, str]] = {
    "a name twice": ("a: 1\nb: 2\na: 3\n", 3, 'duplicate key "a"'),
    "a reference": ("a: 1\nb: *x\n", 2, "undefined alias 'x'"),
    "code": ("a: 1\nb: !!python/object/apply:os.mkdir [x]", 2, "could not determine a constructor for the tag"),
    "a number by tag": ("a: 1\nb: !!float lots\n", None, "could not convert"),
    "a bool by tag": ("a: !!bool x", None, "'x'"),
    "an open list": ("a: 1\nb: [\n", 3, "expected the node content"),
    "two documents": ("a: 1\n---\nb: 1\n", 2, "but found another document"),
    "no text": (b"a: \xff", None, "unacceptable character"),
    "nothing": ("", None, "holds no mapping"),
    "a list": ("- a\n", None, "holds no mapping"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_read_is_one_line_with_file_and_line(case: str, tmp_path: Path) -> None:
    text, line, words = BAD[case]
    with pytest.raises(ConfigFileError, match=words) as caught:
        read(tmp_path, text)
    assert (caught.value.line, caught.value.path) == (line, tmp_path / "x.yaml")
    assert str(caught.value).startswith(f"{tmp_path / 'x.yaml'}{'' if line is None else f', line {line}'}: ")
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigFileError, match=r"missing\.yaml: .*No such file or directory"):
        read_yaml(tmp_path / "missing.yaml")
