"""Every promise of SECURITY.md names tests that exist."""

from __future__ import annotations

import re

from tests.support.repository_copy import ROOT


def test_each_promise_names_tests_that_are_there() -> None:
    rows = [line for line in (ROOT / "SECURITY.md").read_text("utf-8").splitlines() if line.startswith("| ")][1:]
    named = [re.findall(r"`(tests/[\w/]+\.py)`", row) for row in rows]
    assert len(rows) >= 8
    assert all(named)
    assert [each for row in named for each in row if not (ROOT / each).is_file()] == []
