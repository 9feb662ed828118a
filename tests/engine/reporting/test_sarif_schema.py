"""The SARIF files of the commands follow the schema of SARIF 2.1.0 and the rules of GitHub code scanning.

``tests/support/sarif-2.1.0.json`` is the schema of the OASIS standard, in the copy of the npm package
``@microsoft/sarif-multitool-linux`` 5.7.0 (MIT licence), with Unix line ends. That copy declares JSON Schema 2020-12.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from jsonschema import Draft202012Validator

from rlverify.records.problems import Problem
from rlverify.reporting.sarif import sarif_of_run
from tests.engine.gating import test_gate_answer as toy
from tests.engine.in_process import rlverify_here
from tests.engine.reporting.test_outcome_text import fallen, outcome
from tests.support.repository_copy import ROOT

SCHEMA = json.loads((ROOT / "tests" / "support" / "sarif-2.1.0.json").read_text(encoding="utf-8"))
committed = toy.committed


def faults_of(content: Any) -> list[str]:
    return [f"{each.json_path}: {each.message}" for each in Draft202012Validator(SCHEMA).iter_errors(content)]


def refused_by_code_scanning(content: Any, folder: Path) -> list[str]:
    """What GitHub would refuse or show in the wrong place."""
    (run,) = content["runs"]
    driver, found = run["tool"]["driver"], []
    rules = [rule["id"] for rule in driver["rules"]]
    if not driver.get("version"):
        found.append("no version of the driver")
    for rule in driver["rules"]:
        texts = [rule.get(name, {}).get("text") for name in ("shortDescription", "fullDescription", "help")]
        found += [] if all(texts) else [f"{rule['id']}: a text is missing"]
    if len({each["partialFingerprints"].get("primaryLocationLineHash") for each in run["results"]}) < len(rules):
        found.append("two results with one fingerprint")
    for result in run["results"]:
        if rules[result["ruleIndex"]] != result["ruleId"]:
            found.append(f"{result['ruleId']}: the index is of another rule")
        (location,) = result["locations"]
        place = location["physicalLocation"]
        uri = place["artifactLocation"]["uri"]
        if place["artifactLocation"]["uriBaseId"] not in run["originalUriBaseIds"]:
            found.append(f"{uri}: its base is not described")
        lines = len((folder / unquote(uri)).read_text(encoding="utf-8").splitlines())
        if urlsplit(uri).scheme or uri.startswith("/") or not re.fullmatch(r"[\w.~%/-]+", uri, re.ASCII):
            found.append(f"{uri}: not a relative URI")
        if not 1 <= place["region"]["startLine"] <= lines:
            found.append(f"{uri}: no such line")
    return found


def sarif_of(command: str, folder: Path) -> tuple[int, Any]:
    done = rlverify_here(command, "--sarif", "toy.sarif", cwd=folder)
    return done.returncode, json.loads((folder / "toy.sarif").read_text(encoding="utf-8"))


@pytest.mark.parametrize("command", ["audit", "gate"])
def test_claims_that_fell(command: str, committed: Path, tmp_path: Path) -> None:
    folder = toy.changed(committed, tmp_path / "toy", toy.FORGETS, toy.CRASHES)
    code, content = sarif_of(command, folder)
    (run,) = content["runs"]
    assert (code, [each["ruleId"] for each in run["results"]]) == (1, ["TOY-01", "TOY-02", "TOY-03"])
    assert (run["invocations"][0]["executionSuccessful"], run["invocations"][0]["exitCode"]) == (True, 1)
    assert faults_of(content) == []
    assert refused_by_code_scanning(content, folder) == []


@pytest.mark.parametrize(
    ("edits", "without", "exit_code", "was_measured", "notified"),
    [
        ((), [], 0, True, ""),
        ((toy.CRASHES,), ["TOY-02", "TOY-03"], 2, False, "TOY-02: ERROR, healthy, seed 0: NameError"),
        (
            ((toy.CRASHES[0], f"{toy.CRASHES[0]}\n\n\noops"),),
            [],
            1,
            False,
            "code under test cannot be imported: NameError",
        ),
        ((), ["TOY-02"], 1, True, "TOY-02: has no committed evidence"),
    ],
    ids=["nothing fell", "never measured", "cannot be imported", "without committed evidence"],
)
def test_what_is_no_fallen_claim_is_a_notification(
    edits: tuple[tuple[str, str], ...],
    without: list[str],
    exit_code: int,
    was_measured: bool,
    notified: str,
    committed: Path,
    tmp_path: Path,
) -> None:
    """A claim that crashes and has no committed evidence did not fall: it was never measured."""
    folder = toy.changed(committed, tmp_path / "toy", *edits)
    for claim in without:
        (folder / "reports" / "evidence" / f"{claim}.json").unlink()
    code, content = sarif_of("gate", folder)
    (run,) = content["runs"]
    (invocation,) = run["invocations"]
    assert (code, invocation["exitCode"], run["results"]) == (exit_code, exit_code, [])
    assert invocation["executionSuccessful"] is was_measured
    texts = [each["message"]["text"] for each in invocation["toolExecutionNotifications"]]
    assert any(notified in text for text in texts) if notified else texts == []
    assert faults_of(content) == []
    assert refused_by_code_scanning(content, folder) == []


def test_what_is_out_of_date_is_a_notification_of_a_run_that_measured() -> None:
    found = outcome(fallen(1), problems=(Problem("claims.md", 1, "is out of date", remedy="run `rlverify report`"),))
    content = json.loads(sarif_of_run(found))
    (invocation,) = content["runs"][0]["invocations"]
    assert invocation["executionSuccessful"]
    assert [each["message"]["text"] for each in invocation["toolExecutionNotifications"]] == [
        "claims.md: is out of date"
    ]
    assert faults_of(content) == []


def test_the_fingerprint_of_a_claim_does_not_depend_on_what_changed() -> None:
    first, again = fallen(1), fallen(1, suspects=("toy/other.py",), suspect_line=99, headline="ERROR", changes=())
    prints = [json.loads(sarif_of_run(outcome(each)))["runs"][0]["results"][0] for each in (first, again, fallen(2))]
    one, same, other = (each["partialFingerprints"] for each in prints)
    assert one == same
    assert not one.items() & other.items()


def test_the_schema_refuses_a_broken_file() -> None:
    content = json.loads(sarif_of_run(outcome(fallen(1))))
    content["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"].update(startLine=0)
    assert len(faults_of(content)) == 1
