"""The search for what a load loses makes its models once, unless a fork of their process lacks a part of them."""

from __future__ import annotations

import multiprocessing
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from rlverify.checks import CheckRecord, Status, check_algorithm
from rlverify.checks.engine.isolation import Failed, in_process, is_copied_by_fork, time_limit
from tests.engine.checks.tiny_trainers import Tiny, TinyAdapter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the models are made for each run")


class Forgets(Tiny):
    """Loses three attributes, of which one matters."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.last, self.total = 0, 0.0, 0.0

    def step(self) -> float:
        self.count += 1
        self.total += self.moved()
        self.place = self.place + self.total
        self.last = super().step()
        return self.last

    def moved(self) -> float:
        return 1.0


def counts(pipe: Connection) -> None:
    """Answer each message with the number of messages since the last one that is a number."""
    count = 0
    while True:
        told = pipe.recv()
        count = told if told is not None else count + 1
        pipe.send(count)


class Elsewhere(Forgets):
    """Counts its steps in another process, which it tells after a load where to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.pipe, other = multiprocessing.Pipe()
        multiprocessing.get_context("fork").Process(target=counts, args=(other,), daemon=True).start()

    def moved(self) -> float:
        return float(self.asked(None))

    def asked(self, what: int | None) -> int:
        self.pipe.send(what)
        return int(self.pipe.recv())

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self.asked(self.updates)


class Noted(TinyAdapter):
    """Writes a line for each load, and hangs in one of them."""

    def __init__(self, file: Path, hangs_in: int = 0) -> None:
        self.file = file
        self.hangs_in = hangs_in

    def load(self, folder: Path, fresh: Tiny) -> Tiny:
        with self.file.open("a", encoding="utf-8") as file:
            file.write("load\n")
        if self.loads() == self.hangs_in:
            threading.Event().wait()
        return super().load(folder, fresh)

    def loads(self) -> int:
        return len(self.file.read_text(encoding="utf-8").splitlines())


def resumed(make: Any, adapter: Noted) -> CheckRecord:
    return check_algorithm(make, adapter=adapter, checks=["resume_is_exact"], limit=10)[0]


def test_the_models_are_loaded_once_for_all_runs(tmp_path: Path) -> None:
    adapter = Noted(tmp_path / "loads")
    assert resumed(Forgets, adapter).finding.why == "restoring total makes it exact"
    assert adapter.loads() == 4  # the check itself, whether forks have all, and the search


def test_with_a_part_in_another_process_each_run_has_models_of_its_own(tmp_path: Path) -> None:
    adapter = Noted(tmp_path / "loads")
    assert resumed(Elsewhere, adapter).finding.why == "restoring total makes it exact"
    assert adapter.loads() > 6


@pytest.mark.slow
def test_models_that_hang_in_the_search_are_ended(tmp_path: Path) -> None:
    adapter = Noted(tmp_path / "loads", hangs_in=4)
    record = check_algorithm(Forgets, adapter=adapter, checks=["resume_is_exact"], limit=8)[0]
    assert (record.status, adapter.loads()) == (Status.ERROR, 4)
    assert record.finding.seen == "its process was killed by signal 14"


class TestCopiedByFork:
    def test_a_process_alone_is(self) -> None:
        assert in_process(is_copied_by_fork, 60) is True

    def test_with_a_thread_it_is_not(self) -> None:
        def with_thread() -> bool:
            threading.Thread(target=threading.Event().wait, daemon=True).start()
            return is_copied_by_fork()

        assert in_process(with_thread, 60) is False

    def test_with_a_child_it_is_not(self) -> None:
        def with_child() -> bool:
            Elsewhere()
            return is_copied_by_fork()

        assert in_process(with_child, 60) is False

    def test_with_a_device_it_is_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
        assert in_process(is_copied_by_fork, 60) is False


def test_a_block_within_its_time_leaves_no_limit() -> None:
    def limited() -> str:
        with time_limit(0.2):
            pass
        threading.Event().wait(0.5)
        return "lives"

    assert in_process(limited, 60) == "lives"


def test_a_block_over_its_time_ends_its_process() -> None:
    def limited() -> None:
        with time_limit(0.1):
            threading.Event().wait()

    assert in_process(limited, 60) == Failed("its process was killed by signal 14")
