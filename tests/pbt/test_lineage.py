"""The file that says who copied whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlcore import CheckpointError
from rlcore.pbt.files import Ancestor, LineageEvent, LineageFile, ancestors, read_lineage


def start(member: int) -> LineageEvent:
    return LineageEvent("start", member, 0, None, {"gamma": 0.9})


def copied(member: int, step: int, source: int) -> LineageEvent:
    before: dict[str, Any] = {"gamma": 0.9}
    return LineageEvent("exploit", member, step, -1.5, {"gamma": 0.8}, before, source, step, "v2_full_parameters")


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    file = LineageFile(tmp_path / "lineage.jsonl")
    file.append([start(0), start(1)])
    file.append([])
    file.append([copied(1, 5, 0)])
    assert read_lineage(file.path) == [start(0), start(1), copied(1, 5, 0)]
    assert file.size == file.path.stat().st_size
    assert read_lineage(tmp_path) == read_lineage(file.path), "the folder will do"


def test_what_was_not_committed_is_cut_off_by_the_next_append(tmp_path: Path) -> None:
    file = LineageFile(tmp_path / "lineage.jsonl")
    file.append([start(0)])
    committed = file.size
    file.append([copied(0, 5, 1), copied(1, 5, 2)])
    again = LineageFile(file.path, committed)
    again.append([copied(0, 5, 1)])
    assert read_lineage(file.path) == [start(0), copied(0, 5, 1)]


def test_a_line_cut_off_while_it_was_written_is_left_out(tmp_path: Path) -> None:
    file = LineageFile(tmp_path / "lineage.jsonl")
    file.append([start(0), copied(0, 5, 1)])
    file.path.write_bytes(file.path.read_bytes()[:-7])
    assert read_lineage(file.path) == [start(0)]


@pytest.mark.parametrize("content", ["[1]\n", '{"event": "start"}\n', "not json\n"])
def test_what_is_no_lineage_is_refused_by_its_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "lineage.jsonl").write_text(content)
    with pytest.raises(CheckpointError, match="line 1 is no event"):
        read_lineage(tmp_path / "lineage.jsonl")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nothing\.jsonl"):
        read_lineage(tmp_path / "nothing.jsonl")


def test_ancestors_follow_the_copies_back_to_the_start() -> None:
    events = [start(0), start(1), start(2), copied(1, 5, 0), copied(2, 10, 1)]
    assert ancestors(events, 0) == []
    assert ancestors(events, 1) == [Ancestor(0, 5)]
    assert ancestors(events, 2) == [Ancestor(1, 10), Ancestor(0, 5)]


def test_what_is_copied_is_what_the_source_had_before_it_copied_at_the_same_step() -> None:
    events = [start(0), start(1), start(2), copied(1, 5, 0), copied(2, 5, 1)]
    assert ancestors(events, 2) == [Ancestor(1, 5)]


def test_an_exploration_brings_no_ancestor() -> None:
    events = [start(0), copied(0, 5, 1), LineageEvent("explore", 0, 10, 1.0, {"gamma": 0.5}, {"gamma": 0.8})]
    assert ancestors(events, 0) == [Ancestor(1, 5)]
