"""The code that a claim's page shows."""

from __future__ import annotations

from rlverify.reporting.report_data import planted_code
from tests.engine.reporting.records import CLAIM, simple

BUG = ("toy:load", "def forgets(): ...")
OTHER = ("toy:save", "def remembers(): ...")


def test_committed_pages_show_the_bug_and_the_fix_without_the_healthy_member() -> None:
    assert planted_code(CLAIM, {"forgets": BUG, "remembers": OTHER}) == [
        ("the bug, in place of toy:load", "def forgets(): ..."),
        ("the documented fix, in place of toy:save", "def remembers(): ..."),
    ]


def test_a_claim_that_plants_nothing_shows_no_code() -> None:
    assert planted_code(simple(2, fault=None), {"forgets": BUG}) == []
    assert planted_code(CLAIM, {}) == []
