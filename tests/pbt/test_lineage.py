"""The file that says who copied whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlcore.pbt.population import LineageEvent, ancestors, append_lineage, read_lineage


def start(member: int) -> LineageEvent:
    return LineageEvent("start", member, 0, None, {"gamma": 0.9})


def copied(member: int, step: int, source: int) -> LineageEvent:
    before: dict[str, Any] = {"gamma": 0.9}
    return LineageEvent("exploit", member, step, -1.5, {"gamma": 0.8}, before, source, step, "v2_full_parameters")


def test_what_is_appended_and_not_cut_off_is_read_back(tmp_path: Path) -> None:
    path, size = tmp_path / "lineage.jsonl", 0
    for events in ([start(0), start(1)], []):
        size = append_lineage(path, size, events)
    append_lineage(path, size, [copied(0, 5, 1), copied(1, 5, 2)])  # is not committed
    assert append_lineage(path, size, [copied(1, 5, 0)]) == path.stat().st_size
    assert read_lineage(path) == read_lineage(tmp_path) == [start(0), start(1), copied(1, 5, 0)]
    assert read_lineage(path, size) == [start(0), start(1)]
    path.write_bytes(path.read_bytes()[:-7])
    assert read_lineage(path) == [start(0), start(1)]


def test_ancestors_follow_the_copies_back_to_the_start() -> None:
    """A source that copied another at the same step gives what it had before; an exploration brings no ancestor."""
    explored = LineageEvent("explore", 2, 12, 1.0, {"gamma": 0.5}, {"gamma": 0.8})
    events = [start(0), start(1), start(2), copied(1, 5, 0), copied(3, 5, 1), copied(2, 10, 1), explored]
    found = {member: ancestors(events, member) for member in range(4)}
    assert found == {0: [], 1: [(0, 5)], 2: [(1, 10), (0, 5)], 3: [(1, 5)]}
