"""Findings as text, JSON and SARIF 2.1.0."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from rlverify.cli.scan_command import FINDING_FORMATS, json_of, sarif_of, text_of
from rlverify.scan.findings import RULES, ScanFinding
from tests.engine.reporting.test_sarif_schema import faults_of

CALL = ScanFinding("a b/x.py", "torch-load", "warning", "torch.load is called", "pass weights_only=True", line=7)
FIELD = ScanFinding("m.zip", "pickle-import", "warning", "imports mine.X", "skip it", field="data:policy_class")
FINDINGS = (CALL, replace(CALL, line=9), FIELD)


def results(*findings: ScanFinding) -> list[Any]:
    found: list[Any] = json.loads(sarif_of(findings))["runs"][0]["results"]
    return found


def test_text_has_one_line_for_each_finding_one_for_each_remedy_and_a_count() -> None:
    assert text_of(FINDINGS).splitlines() == [
        "a b/x.py:7: warning: torch.load is called [torch-load]",
        "a b/x.py:9: warning: torch.load is called [torch-load]",
        "m.zip:data:policy_class: warning: imports mine.X [pickle-import]",
        "[torch-load] pass weights_only=True",
        "[pickle-import] skip it",
        "3 findings in 2 files",
    ]
    assert text_of([CALL]).endswith("\n1 finding in 1 file\n")
    assert text_of([]) == "nothing found\n"


def test_text_escapes_what_would_move_the_cursor_or_begin_a_line() -> None:
    text = text_of([replace(CALL, path="a\n\x1b[31m\x9b\udcffü.py")])
    assert text.splitlines()[0].startswith("a\\n\\x1b[31m\\x9b\\udcffü.py:7: warning: ")


def test_json_has_all_that_a_finding_has() -> None:
    content = json.loads(json_of(FINDINGS))
    assert content["schema_version"] >= 1
    assert content["findings"] == [asdict(each) for each in FINDINGS]
    assert json.loads(json_of([]))["findings"] == []


@pytest.mark.parametrize("findings", [FINDINGS, (), (CALL,)], ids=["three", "none", "one"])
def test_sarif_follows_the_schema(findings: tuple[ScanFinding, ...]) -> None:
    content = json.loads(sarif_of(findings))
    assert faults_of(content) == []
    (run,) = content["runs"]
    (invocation,) = run["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (True, 1 if findings else 0)
    assert len(run["results"]) == len(findings)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_the_texts_that_code_scanning_shows(rule: str) -> None:
    content = json.loads(sarif_of([replace(CALL, rule=rule)]))
    (shown,) = content["runs"][0]["tool"]["driver"]["rules"]
    assert faults_of(content) == []
    assert shown["id"] == rule
    assert all(shown[name]["text"] for name in ("shortDescription", "fullDescription", "help"))


def test_sarif_names_the_rule_the_place_and_the_severity() -> None:
    call, _, field = results(*FINDINGS)
    rules = json.loads(sarif_of(FINDINGS))["runs"][0]["tool"]["driver"]["rules"]
    assert [rules[each["ruleIndex"]]["id"] for each in (call, field)] == ["torch-load", "pickle-import"]
    place = call["locations"][0]["physicalLocation"]
    assert place == {
        "artifactLocation": {"uri": "a%20b/x.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 7},
    }
    assert field["locations"][0]["logicalLocations"] == [{"fullyQualifiedName": "data:policy_class", "kind": "member"}]
    assert field["message"]["text"] == "data:policy_class: imports mine.X\nskip it"
    (error,) = results(replace(CALL, severity="error"))
    assert (call["level"], error["level"]) == ("warning", "error")


def test_a_file_outside_the_folder_has_an_absolute_uri() -> None:
    (result,) = results(replace(CALL, path="/tmp/größe.py"))
    assert result["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "file:///tmp/gr%C3%B6%C3%9Fe.py"}


def test_fingerprints_differ_between_findings_and_stay_when_lines_move() -> None:
    prints = [each["partialFingerprints"] for each in results(*FINDINGS)]
    assert len({each["finding/v1"] for each in prints}) == 3
    assert len({each["primaryLocationLineHash"] for each in prints}) == 3
    moved = [each["partialFingerprints"] for each in results(replace(CALL, line=70), replace(CALL, line=90), FIELD)]
    assert moved == prints


def test_there_are_three_formats() -> None:
    assert {name: text(FINDINGS) for name, text in FINDING_FORMATS.items()} == {
        "text": text_of(FINDINGS),
        "json": json_of(FINDINGS),
        "sarif": sarif_of(FINDINGS),
    }
