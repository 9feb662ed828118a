"""Differences come in the order of the attributes, so that reports are the same in every process."""

from __future__ import annotations

from types import SimpleNamespace

from rlverify.checks.state.tree import differences

NAMES = [f"name_{number}" for number in range(40)]


def test_differences_come_in_the_order_of_attributes() -> None:
    first = SimpleNamespace(**dict.fromkeys(NAMES, 0))
    second = SimpleNamespace(**dict.fromkeys(reversed(NAMES), 1), more=2)
    assert [each.path for each in differences(first, second)] == ["more", *NAMES]
