"""A model is trained once for all checks that go on from there, unless a fork of its process lacks a part of it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlverify.checks import CheckFinding, Status, check_algorithm, parametrize_with_checks, subject
from rlverify.checks.engine.isolation import descendants
from rlverify.checks.engine.rule import RULES, Rule, passing
from rlverify.checks.engine.session import SubjectSession
from tests.engine.checks.tiny_trainers import Tiny, TinyAdapter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each process trains a model of its own")

GO_ON = ["settings_survive", "save_load_save_is_a_fixed_point"]


class Noted(TinyAdapter):
    """Notes each training of a fresh model."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def learn(self, model: Tiny, steps: int) -> Sequence[float]:
        if model.updates == 0 and model.rng.bit_generator.state == Tiny().rng.bit_generator.state:
            with self.file.open("a", encoding="utf-8") as file:
                file.write("fresh\n")
        return super().learn(model, steps)


class Threaded(Tiny):
    def __init__(self) -> None:
        super().__init__()
        threading.Thread(target=threading.Event().wait, daemon=True).start()


class InSharedMemory(Tiny):
    def __init__(self) -> None:
        super().__init__()
        self.net.share_memory()


class KnowsItsProcess(Tiny):
    """Trains otherwise in another process than the one that made it."""

    def __init__(self) -> None:
        super().__init__()
        self.process = os.getpid()

    def step(self) -> float:
        if os.getpid() != self.process:
            self.place = self.place + 1.0
        return super().step()


@pytest.fixture
def fresh_trainings(tmp_path: Path) -> Callable[..., tuple[int, set[Status]]]:
    """Run checks; the number of fresh models that were trained for them, and what became of the checks."""

    def run(make: Callable[[], Tiny]) -> tuple[int, set[Status]]:
        file = tmp_path / "trainings"
        file.write_text("")
        records = check_algorithm(make, adapter=Noted(file), checks=GO_ON)
        return len(file.read_text().splitlines()), {each.status for each in records}

    return run


Run = Callable[..., tuple[int, set[Status]]]


def test_checks_that_go_on_from_a_trained_model_share_one_with_their_faults(fresh_trainings: Run) -> None:
    assert fresh_trainings(Tiny) == (2, {Status.PASS})  # and one that the gate compares it with


@pytest.mark.parametrize("make", [Threaded, InSharedMemory])
def test_where_a_fork_does_not_copy_all_each_process_trains_a_model(make: type[Tiny], fresh_trainings: Run) -> None:
    trainings, statuses = fresh_trainings(make)
    assert trainings > 6
    assert statuses == {Status.PASS}


def test_a_model_that_a_fork_changes_is_shared_no_more(fresh_trainings: Run) -> None:
    trainings, statuses = fresh_trainings(KnowsItsProcess)
    assert trainings > 6
    assert statuses == {Status.PASS}


def ends(session: SubjectSession) -> CheckFinding:  # noqa: ARG001
    os._exit(3)


def holds(session: SubjectSession) -> CheckFinding:  # noqa: ARG001
    return passing()


def test_a_check_that_ends_its_process_is_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    for function in (ends, holds):
        own = Rule(function.__name__, "ours", "high", "It holds.", function)
        monkeypatch.setitem(RULES, function.__name__, own)
    first, second = check_algorithm(Tiny, adapter=TinyAdapter(), checks=["ends", "holds"])
    assert (first.status, first.finding.seen) == (Status.ERROR, "its process ended with exit code 3")
    assert second.status is Status.PASS


def test_no_process_is_left_behind() -> None:
    before = set(descendants(os.getpid()))
    check_algorithm(Tiny, adapter=TinyAdapter(), checks=["deterministic"])
    assert set(descendants(os.getpid())) == before


def test_the_process_of_a_subject_of_pytest_ends_with_it() -> None:
    before = set(descendants(os.getpid()))
    mark = parametrize_with_checks([subject(Tiny, name="a", adapter=TinyAdapter())], checks=["deterministic"])
    check: Any = mark.args[1][0].values[0]  # type: ignore[attr-defined]  # the parameters of pytest's mark
    check()
    assert set(descendants(os.getpid())) > before
    del mark, check
    assert set(descendants(os.getpid())) == before
