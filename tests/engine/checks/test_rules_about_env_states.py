"""Each rule about states of environments fails on an environment with its defect, and passes on the sound one."""

from __future__ import annotations

import pytest

from rlverify.checks import Status
from rlverify.checks.rules.env_states import ENV_STATES, check_env_state
from tests.support import tiny_subjects as tiny

DEFECTS = {
    "env_state_continues": (tiny.ForgetsTime, "goes on otherwise", "step 2", {"env_state_moves"}),
    "env_state_moves": (tiny.OnlyItself, "goes on otherwise", "step 1", set()),
    "env_state_is_a_copy": (tiny.SharesPlace, "1 values of the state changed", "['now']", set()),
    "set_state_copies": (tiny.TakesPlace, "1 values of the state changed", "['place']", set()),
    "env_state_needs_no_pickle": (tiny.HoldsGenerator, "it holds a pathlib.", "state['path']", set()),
}


@pytest.mark.parametrize("name", ENV_STATES.rules)
def test_a_rule_passes_on_a_sound_environment_and_is_proven(name: str) -> None:
    (record,) = check_env_state(tiny.Drift, checks=[name])
    assert record.status is Status.PASS, record.finding
    assert record.proofs
    assert all(each.detected for each in record.proofs)


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_fails_its_rule_and_no_other(name: str) -> None:
    env, seen, where, also = DEFECTS[name]
    records = {each.check: each for each in check_env_state(env)}
    assert {each for each, record in records.items() if record.status is not Status.PASS} == {name, *also}
    assert seen in records[name].finding.seen
    assert records[name].finding.where == where


def test_every_rule_has_a_defect() -> None:
    assert list(DEFECTS) == list(ENV_STATES.rules)
