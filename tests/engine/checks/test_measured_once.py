"""What several checks of one subject need is measured once, and a proof does not search for a reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rlverify.checks import Status, check_algorithm
from rlverify.checks.engine.faults import Wrapped, that_trains
from rlverify.checks.engine.session import SubjectSession, TierName, Trained
from rlverify.checks.rules import gates, resume
from tests.engine.checks.tiny_trainers import Tiny, TinyAdapter

COMPARED = ["deterministic", "observing_changes_nothing", "pieces_equal_whole", "resume_is_exact"]


def outcomes(tier: TierName, adapter: TinyAdapter, checks: Sequence[str] = COMPARED) -> list[tuple[Status, bool]]:
    records = check_algorithm(Tiny, adapter=adapter, checks=checks, tier=tier)
    return [(each.status, not each.proofs or any(proof.detected for proof in each.proofs)) for each in records]


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[type]:
    """The kinds of adapters that trained without an interruption, in order."""
    found: list[type] = []
    original: Callable[..., Trained] = gates.trained_twice

    def counted(session: SubjectSession, **options: bool) -> Trained:
        found.append(type(session.adapter))
        return original(session, **options)

    monkeypatch.setattr(gates, "trained_twice", counted)
    return found


def test_rules_that_compare_with_whole_training_share_it(trainings: list[type]) -> None:
    assert outcomes("smoke", TinyAdapter()) == [(Status.PASS, True)] * len(COMPARED)
    assert trainings == [TinyAdapter] * 3  # to compare two runs, and for a later interruption


def test_a_fault_trains_anew_only_if_it_is_one_of_training(trainings: list[type]) -> None:
    assert outcomes("default", TinyAdapter()) == [(Status.PASS, True)] * len(COMPARED)
    assert all("learn" in vars(each) for each in trainings)
    assert len([each for each in trainings if each is not TinyAdapter]) == 3


def test_the_adapter_that_trains_is_below_faults_that_do_not() -> None:
    class Saves(Wrapped):
        save = TinyAdapter.save

    class Learns(Wrapped):
        learn = TinyAdapter.learn

    class Frozen(Wrapped):
        optimizers = TinyAdapter.optimizers

    class Empty(Wrapped):
        modules = TinyAdapter.modules

    inner = TinyAdapter()
    assert that_trains(Saves(Saves(inner))) is inner
    for kind in (Learns, Frozen, Empty):
        changed = kind(inner)
        assert that_trains(changed) is changed
        assert that_trains(Saves(changed)) is changed


def test_the_adapter_is_asked_for_its_steps_once(tmp_path: Path) -> None:
    asked = tmp_path / "asked"

    class Noted(TinyAdapter):
        def steps_after(self, model: Tiny) -> int:
            with asked.open("a", encoding="utf-8") as file:
                file.write("once\n")
            return super().steps_after(model)

    outcomes("default", Noted())
    assert asked.read_text(encoding="utf-8") == "once\n"


def test_no_proof_searches_for_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[Path] = []
    monkeypatch.setattr(resume, "Search", lambda _session, folder, *_more, **_options: searched.append(folder))
    assert outcomes("default", TinyAdapter(), ["resume_is_exact"]) == [(Status.PASS, True)]
    assert searched == []
