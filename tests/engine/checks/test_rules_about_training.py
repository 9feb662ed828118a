"""Each rule about training fails on a learner with exactly its defect, and passes, proven, on the sound one."""

from __future__ import annotations

from typing import Any

import pytest

from rlverify.checks import NotSupportedError, Status, check_algorithm
from rlverify.checks.engine.rule import RULES
from rlverify.checks.engine.session import SubjectSession
from tests.engine.checks import tiny_learner as tiny

SOUND: Any = (tiny.Learner, tiny.TinyAdapter)
DEFECTS: dict[str, tuple[str, Any, Any, str, str]] = {
    "copy": ("environment_can_be_copied", tiny.OtherEnvironment, tiny.TinyAdapter, "goes on otherwise", "step 1"),
    "rate": (
        "learning_rate_takes_effect",
        tiny.KeepsOneRate,
        tiny.TinyAdapter,
        "the learning rate is 0.05 at the update, expected 0.000125",
        "optimizers[0].param_groups[1]",
    ),
    "unknown": (
        "unknown_settings_are_refused",
        tiny.AcceptsEverything,
        tiny.TinyAdapter,
        "accepted without an error: rlverify_unknown",
        "rlverify_unknown",
    ),
    "arguments": (
        "arguments_are_left_alone",
        tiny.WritesNotes,
        tiny.TinyAdapter,
        "['notes']['rate'] is 0.05 after the call, expected no such entry",
        "['notes']['rate']",
    ),
    "start": ("episode_start_forgets", tiny.NeverForgets, tiny.TinyAdapter, "the outputs differ by up to", "step 3"),
    "leak": ("environments_do_not_leak", tiny.Leaks, tiny.TinyAdapter, "the outputs differ by up to", "environment 2"),
    "ratio": (
        "ratio_is_one_on_a_fresh_rollout",
        tiny.Learner,
        tiny.TrainsOnRawObservations,
        "12 log probabilities differ",
        "sample",
    ),
    "one": (
        "one_sample_minibatch",
        tiny.DividesByZero,
        tiny.TinyAdapter,
        "with batch=1, 2 parameters are not finite",
        "weight",
    ),
    "returns": (
        "returns_minus_values_are_advantages",
        tiny.ScalesReturns,
        tiny.TinyAdapter,
        "returns - values is",
        "sample",
    ),
    "nan": (
        "nan_observation_is_reported",
        tiny.TrustsObservations,
        tiny.TinyAdapter,
        "2 parameters are not finite",
        "weight",
    ),
    "unsaved": (
        "normalizer_is_finite_and_saved",
        tiny.Learner,
        tiny.ForgetsStatistics,
        "mean is 0, 0, 0 after the load",
        "mean",
    ),
    "best": (
        "callbacks_continue",
        tiny.Learner,
        tiny.ForgetsBest,
        "callbacks[0]['return'] is -inf after the load, expected ",
        "callbacks[0]['return']",
    ),
    "infinite": (
        "normalizer_is_finite_and_saved",
        tiny.Overflows,
        tiny.TinyAdapter,
        "1 of 2 statistics are not finite",
        "var",
    ),
    "behind": (
        "statistics_follow_the_policy",
        tiny.Learner,
        tiny.LeavesStatistics,
        "the observation is",
        "normalised observation",
    ),
    "explored": (
        "explored_values_train",
        tiny.RestoresRate,
        tiny.TakesRate,
        "the learning rate is 0.05 at the update, expected 0.000125",
        "optimizers[0].param_groups[0]",
    ),
    "pickle": ("artefact_needs_no_unpickling", tiny.Learner, tiny.SavesPickle, "1 pickles: more.pkl", "more.pkl"),
    "class": ("artefact_runs_nothing_when_read", tiny.Learner, tiny.SavesClass, "pathlib.", "more.pkl"),
}
NAMES = list(dict.fromkeys(each[0] for each in DEFECTS.values()))
ALSO = {"class": {"artefact_needs_no_unpickling"}, "rate": {"explored_values_train"}}
"""Rules that a defect breaks too, since it includes theirs."""


def failed(factory: Any, adapter: Any) -> set[str]:
    """The rules that fail, without their proofs."""
    session, found = SubjectSession(factory, adapter()), set()
    for name in NAMES:
        try:
            if RULES[name].function(session).status is Status.FAIL:
                found.add(name)
        except NotSupportedError:
            continue
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_passes_on_the_sound_learner_and_is_proven_by_each_fault(name: str) -> None:
    factory, adapter = SOUND
    (record,) = check_algorithm(lambda: factory(), adapter=adapter(), checks=[name])
    assert record.status is Status.PASS, record.finding
    assert not record.unproven
    missed = [each.fault for each in record.proofs if not each.detected]
    assert missed == (["write NaN into the parameters"] if name == "nan_observation_is_reported" else [])


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_rule_fails_on_its_defect_and_says_where(defect: str) -> None:
    name, factory, adapter, seen, where = DEFECTS[defect]
    (record,) = check_algorithm(lambda: factory(), adapter=adapter(), checks=[name])
    assert record.status is Status.FAIL, record.finding
    assert seen in record.finding.seen
    assert record.finding.where.startswith(where)


@pytest.mark.parametrize("defect", DEFECTS)
def test_no_other_rule_fails_on_a_defect(defect: str) -> None:
    name, factory, adapter, *_ = DEFECTS[defect]
    assert failed(factory, adapter) == {name, *ALSO.get(defect, ())}


class Scheduled(tiny.Learner):
    """Trains the second group with a tenth of the rate, which falls from rollout to rollout."""

    updates = 0

    def groups(self) -> list[dict[str, Any]]:
        self.updates += 1
        self.optimizer.param_groups[1]["lr"] = self.rate / 10 / self.updates
        return self.optimizer.param_groups[:1]


class NeverLearns(tiny.Learner):
    """Trains with a rate of 0 after any value was set."""

    def groups(self) -> list[dict[str, Any]]:
        for group in self.optimizer.param_groups:
            group["lr"] = 0.0
        return []


class TenTimes(tiny.Learner):
    """Trains with ten times the rate."""

    def groups(self) -> list[dict[str, Any]]:
        for group in self.optimizer.param_groups:
            group["lr"] = 10 * self.rate
        return []


@pytest.mark.parametrize("name", ["learning_rate_takes_effect", "explored_values_train"])
@pytest.mark.parametrize("learner", [NeverLearns, TenTimes])
def test_a_rate_that_is_never_the_value_is_a_failure(name: str, learner: Any) -> None:
    (record,) = check_algorithm(lambda: learner(), adapter=tiny.TinyAdapter(), checks=[name])
    assert record.status is Status.FAIL
    assert "at the update, expected 0.000125" in record.finding.seen


@pytest.mark.parametrize("name", ["learning_rate_takes_effect", "explored_values_train"])
def test_a_factor_or_a_schedule_that_follows_the_value_is_no_failure(name: str) -> None:
    (record,) = check_algorithm(lambda: Scheduled(), adapter=tiny.TinyAdapter(), checks=[name])
    assert record.outcome == "pass, proven by 2 faults"
