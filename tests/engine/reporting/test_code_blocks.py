"""The code that a claim's section shows: a bug next to the healthy code."""

from __future__ import annotations

from rlverify.project.planting import SourceCode
from rlverify.reporting.report_data import planted_code
from tests.engine.reporting.records import CLAIM, simple

HEALTHY = SourceCode("def load():\n    read()\n    check()\n    return 1", "toy/load.py:7")
BUG = (HEALTHY, SourceCode("def forgets():\n    return 1", "faults/load.py:3"))


def test_a_bug_and_its_fix_are_next_to_the_healthy_code_with_file_and_line() -> None:
    shown = planted_code(CLAIM, {"forgets": BUG, "remembers": BUG}, 4)
    assert [title for title, _ in shown] == ["The bug as tested", "The document's fix as tested, not code to copy"]
    assert shown[0][1].splitlines() == [
        "--- toy/load.py:7",
        "+++ faults/load.py:3",
        "-def load():",
        "-    read()",
        "-    check()",
        "+def forgets():",
        "     return 1",
    ]


def test_long_healthy_code_is_cut() -> None:
    ((_, shown),) = planted_code(CLAIM, {"forgets": BUG}, 2)
    assert "-# and 2 more lines" in shown.splitlines()
    assert "check()" not in shown


def test_a_claim_that_plants_nothing_shows_no_code() -> None:
    assert planted_code(simple(2, fault=None), {"forgets": BUG}, 4) == []
    assert planted_code(CLAIM, {}, 4) == []
