"""The published rates are of all rules: every defect is killed, and no sound trainer raises an alarm."""

from __future__ import annotations

import re

from rlverify.checks.engine.rule import RULES
from tests.support.repository_copy import ROOT

PAGE = (ROOT / "reports" / "measured" / "rules.md").read_text(encoding="utf-8")
ROWS = {
    name: [int(each) for each in cells.split(" | ")]
    for name, cells in re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE, re.M)
}


def test_every_rule_has_a_row() -> None:
    assert set(ROWS) == set(RULES)


def test_every_rule_kills_its_defect_without_a_false_alarm() -> None:
    for name, (defects, killed, sound, passed, _, detected, _, alarms) in ROWS.items():
        assert killed == defects >= 1, name
        assert passed == sound >= 1, name
        assert detected >= 1, name
        assert alarms == 0, name
