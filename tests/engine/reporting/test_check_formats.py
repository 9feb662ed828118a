"""The records of a run of the checks for programs: the whole texts of JSON, JUnit and SARIF."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from jsonschema import Draft202012Validator
from syrupy.assertion import SnapshotAssertion

from rlverify.checks.engine.check_records import CheckFinding, CheckRecord, KnownFailure, Proof, Severity, Status
from rlverify.checks.engine.subjects import Subject
from rlverify.checks.targets import Target
from rlverify.reporting.check_formats import CHECK_FORMATS, CheckedSubject, CheckRun, summary_of_checks
from tests.support.repository_copy import ROOT

FOLDER = Path("/project")
SCHEMA = json.loads((ROOT / "tests" / "support" / "sarif-2.1.0.json").read_text(encoding="utf-8"))
PROOFS = (Proof("forget a <counter>", True), Proof("forget another", False))


def record(
    check: str, status: Status, seen: str = "", *, severity: Severity = "high", **more: Any
) -> CheckRecord:  # fmt: skip
    found = CheckFinding(status, "It holds.", seen, more.pop("where", ""), more.pop("why", ""))
    return CheckRecord("ppo", check, "resume", severity, found, **more)


RECORDS = (
    record("deterministic", Status.PASS, proofs=PROOFS),
    record("pieces_equal_whole", Status.PASS, unproven="the check has no fault to plant", severity="medium"),
    record(
        "resume_is_exact", Status.FAIL, "36 of 62 <states> differ", where="step 1", why="restoring it helps",
        reproduction="rlverify check training:ppo --check resume_is_exact",
    ),
    record("settings_survive", Status.FAIL, "gamma is 1, expected 0.99", known=KnownFailure("issue 7")),
    record("learning_rates_continue", Status.PASS, proofs=PROOFS[:1], known=KnownFailure("fixed long ago")),
    record("targets_start_equal", Status.NOT_APPLICABLE, "the model has no target networks"),
    record("learning_rate_zero_freezes", Status.INCONCLUSIVE, "deterministic: fail"),
    record("set_parameters_copies", Status.ERROR, "ValueError: \x00 (a.py:3)", severity="critical"),
)  # fmt: skip


def run_of(*records: CheckRecord, file: str = "/project/größe & co/training.py") -> CheckRun:
    target = Target("training:ppo", Subject("ppo", dict), Path(file), 7)
    return CheckRun((CheckedSubject(target, records),))


EMPTY = CheckRun(())


@pytest.mark.parametrize("name", ["json", "junit", "sarif"])
def test_the_whole_text(name: str, snapshot: SnapshotAssertion) -> None:
    text = CHECK_FORMATS[name](run_of(*RECORDS), FOLDER)
    assert text.endswith("\n")
    assert text == snapshot


@pytest.mark.parametrize("run", [run_of(*RECORDS), run_of(*RECORDS, file="/else where/ppo.py"), EMPTY])
def test_sarif_follows_its_schema(run: CheckRun) -> None:
    content = json.loads(CHECK_FORMATS["sarif"](run, FOLDER))
    assert [each.message for each in Draft202012Validator(SCHEMA).iter_errors(content)] == []


def test_a_file_outside_the_folder_has_an_absolute_uri() -> None:
    content = json.loads(CHECK_FORMATS["sarif"](run_of(*RECORDS, file="/else where/ppo.py"), FOLDER))
    place = content["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "file:///else%20where/ppo.py"}


def test_a_fingerprint_depends_on_subject_and_check_alone() -> None:
    def prints(run: CheckRun) -> list[dict[str, str]]:
        found = json.loads(CHECK_FORMATS["sarif"](run, FOLDER))["runs"][0]["results"]
        return [each["partialFingerprints"] for each in found]

    changed = replace(RECORDS[2], finding=replace(RECORDS[2].finding, seen="other"))
    one, other = prints(run_of(*RECORDS))
    assert prints(run_of(changed, file="/project/moved.py")) == [one]
    assert not one.items() & other.items()


def test_junit_has_a_suite_for_each_subject() -> None:
    first = run_of(*RECORDS[:3]).subjects[0]
    second = CheckedSubject(first.target, tuple(replace(each, subject="dqn") for each in RECORDS[:2]))
    root = ElementTree.fromstring(CHECK_FORMATS["junit"](CheckRun((first, second)), FOLDER))
    assert [(suite.get("name"), suite.get("tests")) for suite in root] == [("ppo", "3"), ("dqn", "2")]


@pytest.mark.parametrize(
    ("indices", "code"),
    [((0, 1, 3, 5, 6), 0), ((0, 2), 1), ((4,), 1), ((0, 7), 2), ((2, 7), 1), ((), 2)],
)
def test_the_exit_code(indices: tuple[int, ...], code: int) -> None:
    assert run_of(*(RECORDS[index] for index in indices)).exit_code == code


def test_the_summary_counts_every_record() -> None:
    assert summary_of_checks(run_of(*RECORDS)) == (
        "8 checks: 3 passed (2 proven), 2 failed (1 as expected), 1 inconclusive, 1 not applicable, 1 could not be run"
    )
    assert summary_of_checks(run_of(RECORDS[2])) == "1 check: 1 failed"
    assert summary_of_checks(EMPTY) == "0 checks: none; none passed or failed"
