"""The code that a claim's page shows."""

from __future__ import annotations

from rlverify.reporting.code_blocks import PlantedCode, code_of, planted_code
from tests.report.records import CLAIM, simple

BUG = PlantedCode("toy:load", "def load(): ...", "def forgets(): ...")
SAME = PlantedCode("toy:load", "def load(): ...", "def remembers(): ...")
OTHER = PlantedCode("toy:save", "def save(): ...", "def remembers(): ...")


def test_the_healthy_member_is_shown_once_before_the_bug_and_the_fix() -> None:
    assert code_of(CLAIM, {"forgets": BUG, "remembers": SAME}) == [
        ("toy:load, healthy", "def load(): ..."),
        ("with the bug", "def forgets(): ..."),
        ("with the documented fix", "def remembers(): ..."),
    ]


def test_a_fix_of_another_member_comes_with_that_member() -> None:
    titles = [title for title, _ in code_of(CLAIM, {"forgets": BUG, "remembers": OTHER})]
    assert titles == ["toy:load, healthy", "with the bug", "toy:save, healthy", "with the documented fix"]


def test_committed_pages_show_the_bug_and_the_fix_without_the_healthy_member() -> None:
    assert planted_code(CLAIM, {"forgets": BUG, "remembers": OTHER}) == [
        ("the bug, in place of toy:load", "def forgets(): ..."),
        ("the documented fix, in place of toy:save", "def remembers(): ..."),
    ]


def test_a_claim_that_plants_nothing_shows_no_code() -> None:
    assert code_of(simple(2, fault=None), {"forgets": BUG}) == []
    assert code_of(CLAIM, {}) == []
