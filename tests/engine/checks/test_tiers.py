"""Tiers: smoke proves nothing and stops after its time, full forgets every leaf and searches without a limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlverify.checks import (
    CheckRecord,
    Status,
    Suite,
    check_algorithm,
    checks,
    faults,
    parametrize_with_checks,
    subject,
)
from rlverify.checks.engine import search
from rlverify.checks.engine.rule import RULES
from rlverify.checks.engine.rule_runs import record_of
from rlverify.checks.engine.session import TierName
from tests.engine.checks.tiny_trainers import Tiny, TinyAdapter


class ForgetsAll(Tiny):
    """Restores nothing."""

    def load(self, folder: Path) -> None:
        pass


def found(make: type[Tiny], tier: TierName, check: str = "resume_is_exact") -> CheckRecord:
    (record,) = check_algorithm(make, adapter=TinyAdapter(), checks=[check], tier=tier)
    return record


def test_smoke_plants_no_faults_and_says_so() -> None:
    record = found(Tiny, "smoke")
    assert (record.status, record.proofs) == (Status.PASS, ())
    assert record.outcome == "pass, unproven: the tier smoke plants no faults"


def test_smoke_does_not_search_for_what_is_lost() -> None:
    assert found(ForgetsAll, "smoke").finding.why == "the tier smoke does not search for what is lost"
    assert found(ForgetsAll, "default").finding.why.startswith("restoring ")


def test_full_forgets_every_leaf_that_training_changes() -> None:
    some = {each.fault for each in found(Tiny, "default").proofs}
    every = {each.fault for each in found(Tiny, "full").proofs}
    assert some < every
    both = {"forget net.weight in load()", "forget net.bias in load()"}
    assert both <= every
    assert len(both & some) == 1


def test_a_check_that_has_no_time_left_in_smoke_is_inconclusive() -> None:
    made = subject(Tiny, adapter=TinyAdapter(), tier="smoke")
    made.runs.seconds = 6.9
    before = record_of(RULES["deterministic"], made, made.runs)
    made.runs.seconds = 7.0
    after = record_of(RULES["set_parameters_copies"], made, made.runs)
    assert (before.status, after.status) == (Status.PASS, Status.INCONCLUSIVE)
    assert after.finding.seen == "not run: the 7 seconds of the tier smoke are used up"


def test_the_other_tiers_have_no_limit() -> None:
    made = subject(Tiny, adapter=TinyAdapter())
    made.runs.seconds = 1e6
    assert record_of(RULES["deterministic"], made, made.runs).status is Status.PASS


def test_the_time_of_checks_is_counted() -> None:
    made = subject(Tiny, adapter=TinyAdapter())
    record_of(RULES["deterministic"], made, made.runs)
    first = made.runs.seconds
    record_of(RULES["set_parameters_copies"], made, made.runs)
    assert 0 < first < made.runs.seconds


def test_a_claim_of_a_suite_is_not_proven_in_smoke() -> None:
    made = Suite("tiny", lambda _seed: Tiny(), adapter=TinyAdapter())
    made.add(checks.save_load(state=["place"]))
    made.claim("T-01", "The place survives load()", check="save_load", fault=faults.forget("place"))
    test = parametrize_with_checks([made], tier="smoke")
    claim = test.args[1][1].values[0]  # type: ignore[attr-defined]  # the parameters of pytest's mark
    assert claim().outcome == "pass, unproven: the tier smoke plants no faults"


def test_an_unknown_tier_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no tier 'quick'; choose from smoke, default, full"):
        subject(Tiny, tier="quick")  # type: ignore[arg-type]


def test_full_searches_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_RUNS", 2)
    assert found(ForgetsAll, "default").finding.why.startswith("restoring optimizer, ")
    assert found(ForgetsAll, "full").finding.why.startswith("restoring optimizer.state[0][")
