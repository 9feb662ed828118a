"""A suite: its checks on parts of the state and at sizes of its own, and claims that hold only if their fault shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlverify.checks import CheckRecord, KnownFailure, Status, Suite, checks, faults, parametrize_with_checks, subject
from rlverify.checks.engine.rule import Rule
from rlverify.checks.engine.rule_runs import UnknownRuleError
from tests.engine.checks.tiny_trainers import CountsLoads, Tiny, TinyAdapter


class ForgetsPlace(Tiny):
    """Does not save where it was."""

    def load(self, folder: Path) -> None:
        place = self.place
        super().load(folder)
        self.place = place


class LosesTargetLate(Tiny):
    """Loads the target network from before its last copy: nothing differs until it has been trained with."""

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        if self.updates >= 4:
            self.target.load_state_dict(Tiny().target.state_dict())


def suite_of(make: Callable[[int], Any] = lambda _seed: Tiny(), *added: Rule | str, **settings: Any) -> Suite:
    made = Suite("tiny", make, adapter=TinyAdapter(), **settings)
    made.add(*added)
    return made


def only(made: Suite) -> CheckRecord:
    (record,) = made.run()
    return record


def test_a_state_that_survives_passes_and_is_proven_by_forgetting_it() -> None:
    record = only(suite_of(lambda _: Tiny(), checks.save_load(state=["place", "optimizer.state"])))
    assert (record.check, record.family, record.status) == ("save_load", "suite", Status.PASS)
    assert [(each.fault, each.detected) for each in record.proofs] == [
        ("forget place in load()", True),
        ("forget optimizer.state in load()", True),
    ]
    assert record.finding.expected == "place, optimizer.state are the same after a save and a load."


def test_a_state_that_is_lost_fails_and_is_named() -> None:
    record = only(suite_of(lambda _: ForgetsPlace(), checks.save_load(state=["updates", "place"])))
    assert (record.status, record.finding.where) == (Status.FAIL, "place")
    assert record.finding.seen == "place differs after the load"


def test_a_path_that_is_not_there_is_an_error_with_the_path() -> None:
    record = only(suite_of(lambda _: Tiny(), checks.save_load(state="plaice")))
    assert record.status is Status.ERROR
    assert "Tiny has no 'plaice' after training; correct the path" in record.finding.seen


@pytest.mark.parametrize(("interrupt_at", "status"), [(2, Status.PASS), (4, Status.FAIL)])
def test_a_resume_is_interrupted_where_the_suite_says(interrupt_at: int, status: Status) -> None:
    made = suite_of(lambda _: LosesTargetLate(), checks.resume(steps=8, interrupt_at=interrupt_at))
    record = only(made)
    assert (record.check, record.status) == ("resume", status)
    assert f"of 8 steps that is saved and resumed after {interrupt_at} " in record.finding.expected


@pytest.mark.parametrize("interrupt_at", [0, 8, 9, -1])
def test_an_interruption_outside_of_the_training_is_refused(interrupt_at: int) -> None:
    with pytest.raises(ValueError, match=f"interrupt_at={interrupt_at} is not inside of a training of 8 steps"):
        checks.resume(steps=8, interrupt_at=interrupt_at)


def test_no_state_is_refused() -> None:
    with pytest.raises(ValueError, match="state is empty"):
        checks.save_load(state=[])


def is_trained(model: Tiny) -> str | None:
    """Training updates the network.

    More is not asked for.
    """
    return None if model.updates else "no update was made"


def test_a_rule_of_ones_own_gets_a_trained_model() -> None:
    record = only(suite_of(lambda _: Tiny(), checks.holds(is_trained)))
    assert (record.check, record.finding.expected) == ("is_trained", "Training updates the network.")
    assert record.outcome == "pass, unproven: the check has no fault to plant"


def test_a_rule_of_ones_own_fails_with_what_it_returns() -> None:
    made = suite_of(lambda _: Tiny(), checks.holds(lambda model: f"{model.updates} updates", name="no_updates"))
    record = only(made)
    assert (record.status, record.finding.seen) == (Status.FAIL, "3 updates")
    assert record.finding.expected == "no_updates finds nothing."


def test_a_rule_of_ones_own_is_proven_by_overwriting_what_it_looks_at() -> None:
    planted = [faults.overwrite("updates", 0)]
    record = only(suite_of(lambda _: Tiny(), checks.holds(is_trained, faults=planted)))
    assert (record.outcome, record.proofs[0].fault) == (
        "pass, proven by 1 fault",
        "overwrite updates with 0 after learn()",
    )


def test_overwriting_what_is_not_there_is_an_error_with_the_path() -> None:
    made = suite_of(lambda _: Tiny(), checks.holds(is_trained))
    made.claim("T-08", "It trains", check="is_trained", fault=faults.overwrite("update", 0))
    record = made.run()[1]
    assert record.status is Status.ERROR
    assert "Tiny has no 'update' after training; correct the path" in record.finding.seen


def test_a_claim_holds_if_its_fault_breaks_its_check() -> None:
    made = suite_of(lambda _: Tiny(), checks.save_load(state=["place"]))
    made.claim("T-01", "The place survives load()", check="save_load", fault=faults.forget("place"))
    record = made.run()[1]
    assert (record.check, record.family, record.outcome) == ("T-01", "claims", "pass, proven by 1 fault")
    assert record.finding.expected == "The place survives load()"


def test_a_claim_whose_fault_shows_nothing_fails() -> None:
    made = suite_of(lambda _: Tiny(), checks.save_load(state=["place"]))
    made.claim("T-02", "The discount survives load()", check="save_load", fault=faults.forget("discount"))
    record = made.run()[1]
    assert (record.status, record.is_unexpected) == (Status.FAIL, True)
    assert record.finding.seen == "it holds, but the check detected none of 1 faults: forget discount in load()"


def test_a_claim_that_does_not_hold_fails() -> None:
    made = suite_of(lambda _: ForgetsPlace(), checks.save_load(state=["place"]))
    made.claim("T-03", "The place survives load()", check="save_load", fault=faults.forget("place"))
    assert made.run()[1].finding.seen == "place differs after the load"


def test_a_claim_fails_for_its_own_part_of_the_state_alone() -> None:
    made = suite_of(lambda _: ForgetsPlace(), checks.save_load(state=["place", "updates"]))
    made.claim("T-03", "The place survives load()", check="save_load", fault=faults.forget("place"))
    made.claim("T-04", "The counter survives load()", check="save_load", fault=faults.forget("updates"))
    check, place, counter = made.run()
    assert (check.status, place.status) == (Status.FAIL, Status.FAIL)
    assert counter.outcome == "pass, proven by 1 fault"


def test_every_seed_makes_a_subject_of_its_own() -> None:
    seeds: list[int] = []
    made = suite_of(lambda seed: seeds.append(seed) or Tiny(), checks.holds(is_trained), seeds=[3, 5])
    assert [each.name for each in made.subjects] == ["tiny[seed=3]", "tiny[seed=5]"]
    for each in made.subjects:
        each.factory()
    assert seeds == [3, 5]
    assert [each.subject for each in made.run()] == ["tiny[seed=3]", "tiny[seed=5]"]


def test_an_expected_failure_is_strict() -> None:
    reasons = {"save_load": "not saved yet"}
    lost = suite_of(lambda _: ForgetsPlace(), checks.save_load(state=["place"]), expected_failures=reasons)
    kept = suite_of(lambda _: Tiny(), checks.save_load(state=["place"]), expected_failures=reasons)
    assert (only(lost).is_unexpected, only(kept).is_unexpected) == (False, True)


class ForgetsBoth(ForgetsPlace):
    """Does not save its number of updates either."""

    def load(self, folder: Path) -> None:
        updates = self.updates
        super().load(folder)
        self.updates = updates


@pytest.mark.parametrize(
    ("make", "causes", "other"),
    [
        (ForgetsPlace, ["place"], ""),
        (ForgetsPlace, [], ""),
        (ForgetsPlace, "place", ""),
        (ForgetsBoth, ["place"], "new causes: updates"),
        (ForgetsPlace, ["place", "updates"], "expected causes that are gone: updates"),
        (ForgetsBoth, ["rng"], "new causes: place, updates; expected causes that are gone: rng"),
    ],
)
def test_a_failure_that_is_known_with_its_causes_may_have_no_others(make: Any, causes: list[str], other: str) -> None:
    known = KnownFailure("not saved yet", causes)
    added = checks.save_load(state=["place", "updates"])
    record = only(suite_of(lambda _: make(), added, expected_failures={"save_load": known}))
    assert (record.status, record.other_causes, record.is_unexpected) == (Status.FAIL, other, bool(other))
    assert record.outcome == (f"fail, with {other}" if other else "fail, as expected")
    assert record.expected_failure == "not saved yet"


def test_a_known_failure_that_passes_is_reported() -> None:
    known = KnownFailure("not saved yet", ["place"])
    made = suite_of(lambda _: Tiny(), checks.save_load(state=["place"]), expected_failures={"save_load": known})
    assert only(made).is_unexpected


def test_a_known_failure_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="a known failure has no reason"):
        KnownFailure("", ["place"])


def test_rules_for_any_algorithm_are_added_by_name() -> None:
    record = only(suite_of(lambda _: Tiny(), "set_parameters_copies"))
    assert (record.check, record.status) == ("set_parameters_copies", Status.PASS)


def test_what_cannot_be_added_is_refused() -> None:
    made = suite_of(lambda _: Tiny(), checks.holds(is_trained))
    with pytest.raises(UnknownRuleError, match="no check is named 'resumes'; did you mean 'resume_is_exact'"):
        made.add("resumes")
    with pytest.raises(ValueError, match="'tiny' has a check 'is_trained' already; give it another name"):
        made.add(checks.holds(is_trained))
    with pytest.raises(ValueError, match=r"T-04: the suite 'tiny' has no check 'save_load' \(is_trained\)"):
        made.claim("T-04", "It survives", check="save_load", fault=faults.forget("place"))
    with pytest.raises(ValueError, match="has no seed, so nothing would be checked"):
        suite_of(seeds=[])


def test_a_fault_that_forgets_what_is_not_there_does_not_hold() -> None:
    made = suite_of(lambda _: Tiny(), checks.save_load(state=["place"]))
    made.claim("T-06", "The place survives load()", check="save_load", fault=faults.forget("plaice"))
    record = made.run()[1]
    assert record.status is Status.ERROR
    assert "Tiny has no 'plaice', so it cannot be forgotten; correct the path" in record.finding.seen


class Aliased(Tiny):
    """Reaches its network by a second, longer path as well."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = {"network": self.net, "counter": {"updates": 0}}

    def learn(self, steps: int) -> list[float]:
        self.policy["counter"]["updates"] += steps  # type: ignore[index]
        return super().learn(steps)

    def load(self, folder: Path) -> None:
        super().load(folder)
        self.policy["counter"]["updates"] = self.updates  # type: ignore[index]


class Zeroed(Aliased):
    def load(self, folder: Path) -> None:
        super().load(folder)
        for each in self.net.parameters():
            each.data.zero_()


@pytest.mark.parametrize("path", ["policy", "policy['network']", "policy['network'].weight"])
def test_a_part_that_has_a_shorter_path_is_compared_all_the_same(path: str) -> None:
    lost = only(suite_of(lambda _: Zeroed(), checks.save_load(state=[path])))
    assert (lost.status, lost.finding.where) == (Status.FAIL, path)
    kept = only(suite_of(lambda _: Aliased(), checks.save_load(state=[path])))
    assert (kept.outcome) == "pass, proven by 1 fault"


class Counts(Tiny):
    """Has a number that a fresh one does not have, and always loads 0."""

    def learn(self, steps: int) -> list[float]:
        self.flag = 0
        return super().learn(steps)

    def load(self, folder: Path) -> None:
        super().load(folder)
        self.flag = 0


def test_forgetting_a_number_keeps_its_type() -> None:
    made = suite_of(lambda _: Counts(), checks.save_load(state=["flag"]))
    made.claim("T-07", "The flag survives load()", check="save_load", fault=faults.forget("flag"))
    assert made.run()[1].status is Status.FAIL


@pytest.mark.parametrize("value", [True, False, 0])
def test_a_rule_that_returns_no_text_is_an_error(value: object) -> None:
    made = suite_of(lambda _: Tiny(), checks.holds(lambda _: value, name="is_positive"))  # type: ignore[arg-type, return-value]
    record = only(made)
    assert record.status is Status.ERROR
    assert f"is_positive returned {value!r}; return None, or what is wrong as a text" in record.finding.seen


def test_a_rule_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="the function has no name that a report could show"):
        checks.holds(lambda _: None)


def test_a_name_of_a_rule_for_any_algorithm_is_refused() -> None:
    with pytest.raises(ValueError, match="'deterministic' is the name of a rule for any algorithm"):
        suite_of(lambda _: Tiny(), checks.holds(is_trained, name="deterministic"))


def test_an_expected_failure_of_no_check_is_refused() -> None:
    made = suite_of(lambda _: Tiny(), checks.holds(is_trained), expected_failures={"resume": "SB3"})
    with pytest.raises(ValueError, match="no check is named 'resume'; choose from is_trained"):
        made.run()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"limit": 0}, "limit=0 is no positive number of seconds"),
        ({"limit": "3"}, "limit='3' is no positive number of seconds"),
        ({"adapter": TinyAdapter}, "is no Adapter; call it"),
        ({"adapter": "tiny"}, "adapter='tiny' is no Adapter$"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Suite("tiny", lambda _seed: Tiny(), **settings)
    with pytest.raises(ValueError, match=reason):
        subject(Tiny, **settings)


@pytest.mark.parametrize("fault", ["place", lambda adapter: adapter])
def test_a_claim_of_no_fault_is_refused(fault: Any) -> None:
    made = suite_of(lambda _: Tiny(), checks.save_load(state=["place"]))
    with pytest.raises(ValueError, match=r"T-08: fault=.* is no fault; give one, such as faults\.forget"):
        made.claim("T-08", "It survives", check="save_load", fault=fault)


@pytest.mark.parametrize("subjects", [[], [Suite("empty", lambda _seed: Tiny())]])
def test_tests_of_nothing_are_refused(subjects: list[Suite]) -> None:
    with pytest.raises(ValueError, match="has no checks, so nothing would be checked; add some"):
        parametrize_with_checks(subjects)


class ReturnsNothing(TinyAdapter):
    def load(self, folder: Path, fresh: Any) -> Any:
        super().load(folder, fresh)


def test_a_load_that_returns_nothing_is_a_failure() -> None:
    made = Suite("tiny", lambda _seed: Tiny(), adapter=ReturnsNothing())
    made.add("load_returns_a_model")
    record = only(made)
    assert record.status is Status.FAIL
    assert "load() of the adapter returned None; return the model that was loaded" in record.finding.seen


def test_a_function_sees_the_model_after_a_load_where_it_asks_for_that() -> None:
    def is_new(model: CountsLoads) -> str | None:
        return "it was loaded" if model.loads.item() else None

    for after_load, status in ((False, Status.PASS), (True, Status.FAIL)):
        suite = Suite("own", make=lambda _seed: CountsLoads(), adapter=TinyAdapter())
        suite.add(checks.holds(is_new, after_load=after_load))
        assert [each.status for each in suite.run()] == [status]
