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


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    path, size = tmp_path / "lineage.jsonl", 0
    for events in ([start(0), start(1)], [], [copied(1, 5, 0)]):
        size = append_lineage(path, size, events)
    assert read_lineage(path) == [start(0), start(1), copied(1, 5, 0)]
    assert size == path.stat().st_size
    assert read_lineage(tmp_path) == read_lineage(path), "the folder will do"


def test_what_was_not_committed_is_cut_off_by_the_next_append(tmp_path: Path) -> None:
    path = tmp_path / "lineage.jsonl"
    committed = append_lineage(path, 0, [start(0)])
    append_lineage(path, committed, [copied(0, 5, 1), copied(1, 5, 2)])
    append_lineage(path, committed, [copied(0, 5, 1)])
    assert read_lineage(path) == [start(0), copied(0, 5, 1)]


def test_a_line_cut_off_while_it_was_written_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "lineage.jsonl"
    append_lineage(path, 0, [start(0), copied(0, 5, 1)])
    path.write_bytes(path.read_bytes()[:-7])
    assert read_lineage(path) == [start(0)]


def test_ancestors_follow_the_copies_back_to_the_start() -> None:
    events = [start(0), start(1), start(2), copied(1, 5, 0), copied(2, 10, 1)]
    assert ancestors(events, 0) == []
    assert ancestors(events, 1) == [(0, 5)]
    assert ancestors(events, 2) == [(1, 10), (0, 5)]


def test_what_is_copied_is_what_the_source_had_before_it_copied_at_the_same_step() -> None:
    events = [start(0), start(1), start(2), copied(1, 5, 0), copied(2, 5, 1)]
    assert ancestors(events, 2) == [(1, 5)]


def test_an_exploration_brings_no_ancestor() -> None:
    events = [start(0), copied(0, 5, 1), LineageEvent("explore", 0, 10, 1.0, {"gamma": 0.5}, {"gamma": 0.8})]
    assert ancestors(events, 0) == [(1, 5)]
