"""Each rule about checkpoints fails on functions with exactly its defect, and passes on the sound ones."""

from __future__ import annotations

from typing import Any

import pytest

from rlverify.checks import CheckRecord, Status
from rlverify.checks.rules.checkpoints import CHECKPOINTS, check_checkpoint
from tests.support import tiny_subjects as tiny

DEFECTS: dict[str, tuple[Any, Any, str, str]] = {
    "checkpoint_restores_everything": (
        tiny.save,
        tiny.load_without_steps,
        "1 of 2 values differ after the load",
        "['steps']",
    ),
    "saving_changes_nothing": (tiny.save_and_change, tiny.load, "1 of 2 values changed", "['steps']"),
    "truncated_file_is_refused": (tiny.save, tiny.load_short, "another object without an error", "checkpoint: 0% left"),
    "changed_byte_is_refused": (tiny.save, tiny.load_unchecked, "another object without an error", "checkpoint: byte"),
    "failed_save_keeps_the_old_file": (tiny.save_over, tiny.load, "the older file cannot be loaded", "checkpoint"),
    "checkpoint_runs_nothing_when_read": (tiny.save_with_class, tiny.load, "1 names are imported: pathlib.", "more"),
}


def checked(save: Any, load: Any, **options: Any) -> dict[str, CheckRecord]:
    return {each.check: each for each in check_checkpoint(save, load, tiny.make, change=tiny.change, **options)}


@pytest.mark.parametrize("name", CHECKPOINTS.rules)
def test_a_rule_passes_on_sound_functions_and_is_proven(name: str) -> None:
    record = checked(tiny.save, tiny.load, checks=[name])[name]
    assert record.status is Status.PASS, record.finding
    assert record.proofs
    assert all(each.detected for each in record.proofs)


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_fails_its_rule_and_no_other(name: str) -> None:
    save, load, seen, where = DEFECTS[name]
    records = checked(save, load)
    assert {each for each, record in records.items() if record.status is not Status.PASS} == {name}
    assert seen in records[name].finding.seen
    assert records[name].finding.where.startswith(where)


def test_every_rule_has_a_defect() -> None:
    assert list(DEFECTS) == list(CHECKPOINTS.rules)


def test_functions_without_a_file_are_not_applicable() -> None:
    kept: dict[str, Any] = {}
    found = checked(
        lambda made, _path: kept.update(made), lambda _path, _fresh: kept, checks=["truncated_file_is_refused"]
    )
    assert found["truncated_file_is_refused"].finding.seen == "save() writes no file"
