"""The JSON file of a field report: it is read as it was written, or refused in one line."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlverify.field.field_file import read_field_report, text_of
from rlverify.records.errors import UsageError
from tests.report.field_example import EFFECT, checked, field_example


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(text_of(field_example()), encoding="utf-8")
    assert read_field_report(path) == field_example()
    assert text_of(read_field_report(path)) == path.read_text(encoding="utf-8")


def test_the_text_is_the_same_for_the_same_report() -> None:
    assert text_of(field_example()) == text_of(field_example())
    assert text_of(field_example()).endswith("}\n")


def test_an_effect_that_is_not_finite_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    diverged = replace(EFFECT, distance=(math.inf, -math.inf, math.nan))
    written = replace(field_example(), algorithms=(checked("PPO", effects={"resume_is_exact": diverged}),))
    path.write_text(text_of(written), encoding="utf-8")
    distance = read_field_report(path).algorithms[0].effects["resume_is_exact"].distance
    assert distance[:2] == (math.inf, -math.inf)
    assert math.isnan(distance[2])


def drop_versions(content: dict[str, Any]) -> None:
    del content["versions"]


def add_field(content: dict[str, Any]) -> None:
    content["extra"] = 1


def add_field_to_a_finding(content: dict[str, Any]) -> None:
    content["algorithms"][0]["records"][0]["finding"]["extra"] = 1


def change_status(content: dict[str, Any]) -> None:
    content["algorithms"][0]["records"][0]["finding"]["status"] = "fine"


def change_version(content: dict[str, Any]) -> None:
    content["schema_version"] = 2


WRONG: dict[Callable[[dict[str, Any]], None], str] = {
    drop_versions: "is no field report: versions: ",
    add_field: "is no field report: extra: ",
    add_field_to_a_finding: "is no field report: algorithms.0.records.0.finding.extra: ",
    change_status: "is no field report: algorithms.0.records.0.finding.status: ",
    change_version: "has schema_version 2, expected 1",
}


@pytest.mark.parametrize("change", WRONG, ids=lambda change: change.__name__)
def test_a_file_with_other_fields_is_refused(change: Callable[[dict[str, Any]], None], tmp_path: Path) -> None:
    content = json.loads(text_of(field_example()))
    change(content)
    path = tmp_path / "report.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    assert_refused(path, f"{path} {WRONG[change]}", "; run `rlverify field-report` again")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"# Field report"])
def test_a_file_that_is_no_json_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(content)
    assert_refused(path, f"{path} is no field report: the file: Invalid JSON", "; run `rlverify field-report` again")


def test_a_json_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("[1]", encoding="utf-8")
    assert_refused(path, f"{path} is no field report: the file: ", "; run `rlverify field-report` again")


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    missing = tmp_path / "none.json"
    assert_refused(missing, f"{missing} cannot be read: No such file or directory", "")
    assert_refused(tmp_path, f"{tmp_path} cannot be read: Is a directory", "")


def assert_refused(path: Path, start: str, end: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_field_report(path)
    message = str(caught.value)
    assert message.startswith(start)
    assert message.endswith(end)
    assert "\n" not in message
