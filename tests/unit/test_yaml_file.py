"""YAML by the rules of 1.2, one clear error with the line for everything else."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from rlcore import ConfigFileError
from rlcore.run.config_file import Document, read_yaml


def read(tmp_path: Path, text: str | bytes) -> Document:
    path = tmp_path / "x.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_yaml(path)


NUMBERS = {"3e-4": 3e-4, "1e6": 1e6, "1E+2": 100.0, "-.5": -0.5, "1.": 1.0, "3.0e-4": 3e-4, "-.inf": -math.inf}
WHOLE = {"7": 7, "-7": -7, "+7": 7, "010": 10, "0o17": 15, "0x1F": 31}
OTHERS = {"true": True, "FALSE": False, "null": None, "~": None, "": None, '"true"': "true", "'3'": "3", "a b": "a b"}
TEXTS = ["yes", "no", "on", "off", "Yes", "y", "tRue", "1_000", "1:30", "2025-11-20", "<<", "e5", "1.2.3", "3e"]
SCALARS: dict[str, object] = {**NUMBERS, **WHOLE, **OTHERS, **{text: text for text in TEXTS}}


@pytest.mark.parametrize("text", SCALARS)
def test_a_value_is_what_yaml_1_2_says(text: str, tmp_path: Path) -> None:
    value = read(tmp_path, f"name: {text}\n").content["name"]
    assert (type(value), value) == (type(SCALARS[text]), SCALARS[text])


def test_not_a_number_is_read_as_such(tmp_path: Path) -> None:
    assert math.isnan(read(tmp_path, "name: .nan").content["name"])


def test_names_like_bools_stay_names(tmp_path: Path) -> None:
    assert read(tmp_path, "on: 1\nyes: 2\n").content == {"on": 1, "yes": 2}


def test_a_place_is_found_by_its_deepest_name(tmp_path: Path) -> None:
    document = read(tmp_path, "a:\n  b:\n    c: 1\n  list:\n    - d: 2\n    -\n      d: 3\n      e: 4\nb: 3\n")
    entries = {"a.list[1].e": 8, "a.list[1]": 7, "a.list[2]": 4, "a.Table['list'][0]['d']": 5, "a.list": 4}
    places = {"a.b['c']": 3, "a.b['missing']": 2, "b": 9, "missing": None, "": None, **entries}
    assert {place: document.line_of(place) for place in places} == places


BAD: dict[str, tuple[str | bytes, int | None, str]] = {
    "a name twice": ("a: 1\nb: 2\na: 3\n", 3, "'a' stands here and in line 1; give it once"),
    "a nested name twice": ("a:\n  b: 1\n  b: 1\n", 3, "'b' stands here and in line 2"),
    "a name twice in a list": ("a:\n  - b: 1\n    b: 1\n", 3, "'b' stands here"),
    "a number for a name": ("1: 2", 1, "'1' is no name"),
    "a list for a name": ("? [a]\n: 2", 1, "is no name"),
    "an anchor": ("a: &x 1\nb: *x\n", 1, "write the value out"),
    "a reference": ("a: 1\nb: *x\n", 2, "write the value out"),
    "code": ("a: !!python/object/apply:os.mkdir [x]", 1, "the tag '.*' is not taken"),
    "a number by tag": ("a: 1\nb: !!float lots\n", 2, "the tag .*float' is not taken; write the value without it"),
    "a bool by tag": ("a: !!bool x", 1, "the tag .*bool' is not taken"),
    "a whole number by tag": ("a: !!int abc", 1, "the tag .*int' is not taken"),
    "a set": ("a: !!set {b}", 1, "the tag .*set' is not taken"),
    "a list by tag": ("a: !!seq {b: 1}", 1, "the tag .*seq' is not taken"),
    "a text by mark": ("a: ! 1", 1, "the tag '!' is not taken"),
    "a name by tag": ("!!str a: 1", 1, "the tag .*str' is not taken"),
    "an open list": ("a: 1\nb: [\n", 3, "expected the node content"),
    "a tab": ("a:\n\tb: 1\n", 2, r"'\\t'"),
    "two documents": ("a: 1\n---\nb: 1\n", 2, "but found another document"),
    "a long number": ("a: " + "9" * 5000, 1, "more digits than any setting"),
    "a control character": ("a: \x01", None, "is no YAML"),
    "no text": (b"a: \xff", None, "no text in UTF-8"),
    "nothing": ("", None, "holds no mapping"),
    "a comment only": ("# nothing", None, "holds no mapping"),
    "a list": ("- a\n", None, "holds no mapping"),
    "ten thousand brackets": ("a: " + "[" * 10_000, None, "nested deeper"),
    "a megabyte": ("a: " + "x" * 1_000_000, None, "larger than 1000000 bytes"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_read_is_one_line_with_file_and_line(case: str, tmp_path: Path) -> None:
    text, line, words = BAD[case]
    with pytest.raises(ConfigFileError, match=words) as caught:
        read(tmp_path, text)
    assert (caught.value.line, caught.value.path) == (line, tmp_path / "x.yaml")
    assert str(caught.value).startswith(f"{tmp_path / 'x.yaml'}{'' if line is None else f', line {line}'}: ")
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_pipe_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigFileError, match=r"missing\.yaml: cannot be read"):
        read_yaml(tmp_path / "missing.yaml")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigFileError, match="is not a regular file"):
        read_yaml(tmp_path / "pipe")


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    assert read(tmp_path, b"\xef\xbb\xbfa: 1").content == {"a": 1}
