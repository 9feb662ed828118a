"""The engine gives one record for each check, whatever a subject does, and leaves the caller as it was."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch

from rlverify.checks import (
    Adapter,
    CheckFinding,
    CheckRecord,
    NotSupportedError,
    Proof,
    Status,
    Subject,
    check_algorithm,
    check_subject,
    subject,
)
from rlverify.checks.engine.check_records import Severity
from rlverify.checks.engine.faults import GenericFault, Wrapped
from rlverify.checks.engine.rule import RULES, CheckFunction, Rule, failing, passing
from rlverify.checks.engine.rule_runs import UnknownRuleError, record_of
from rlverify.checks.engine.session import SubjectSession
from rlverify.checks.engine.subjects import Runs
from rlverify.checks.state.tree import walk
from tests.engine.checks.tiny_trainers import (
    ForgetsMoments,
    LearnStartsAgain,
    PredictDraws,
    Tiny,
    TinyAdapter,
    Unseeded,
)

FAST = "targets_start_equal"


@contextlib.contextmanager
def rules(*functions: CheckFunction, rests_on: dict[str, Sequence[str]] | None = None, **faults: Any) -> Iterator[None]:
    """Only these rules exist in the block."""
    before = dict(RULES)
    RULES.clear()
    severity: Severity = "low"
    for each in functions:
        name = each.__name__
        planted = faults.get(name, ())
        needed = tuple((rests_on or {}).get(name, ()))
        RULES[name] = Rule(name, "ours", severity, f"{name} holds", each, needed, lambda _session, own=planted: own)
    try:
        yield
    finally:
        RULES.clear()
        RULES.update(before)


def checked(made: Any, checks: Sequence[str] | None = None, **more: Any) -> list[CheckRecord]:
    return check_algorithm(made, adapter=TinyAdapter(), checks=checks, **more)


def raises() -> None:
    raise ValueError("no model\ntoday")


def exits() -> None:
    sys.exit("enough")


def forks_and_prints() -> Tiny:
    sys.stdout.write("printed\n")
    if os.fork() == 0:
        time.sleep(120)
    return Tiny()


class TestFactories:
    @pytest.mark.usefixtures("processes")
    @pytest.mark.parametrize(
        ("factory", "seen"),
        [
            (raises, "ValueError: no model today (checks/test_engine.py:"),
            (exits, "SystemExit: enough"),
            (lambda: os._exit(2), "its process ended with exit code 2"),
            (lambda: time.sleep(120), "did not end within 0.5 seconds"),
            (lambda: Tiny, "the factory returned the class Tiny; call it"),
            (lambda: None, "the factory returned NoneType, which has no learn(); return the model"),
        ],
        ids=["raises", "exits", "ends the process", "hangs", "class", "None"],
    )
    def test_one_that_fails_gives_one_error_for_each_check(self, factory: Callable[[], Any], seen: str) -> None:
        found = checked(factory, ["deterministic", FAST], limit=0.5)
        assert [each.check for each in found] == ["deterministic", FAST]
        for each in found:
            assert each.status is Status.ERROR
            assert each.finding.seen.startswith(seen)
            assert each.finding.expected == RULES[each.check].expected
            assert each.is_unexpected

    @pytest.mark.parametrize("value", [3, "model", [], np.zeros(2)], ids=["int", "str", "list", "array"])
    def test_another_type_needs_an_adapter(self, value: Any) -> None:
        (found,) = check_algorithm(lambda: value, checks=[FAST])
        kind = type(value).__name__
        assert found.finding.seen == f"the factory returned {kind}, which has no learn(); give an adapter"

    @pytest.mark.usefixtures("processes")
    def test_one_that_prints_and_forks_is_checked(self, capfd: pytest.CaptureFixture[str]) -> None:
        (found,) = checked(forks_and_prints, [FAST])
        assert found.status is Status.PASS
        assert "printed" not in capfd.readouterr().out

    @pytest.mark.usefixtures("processes")
    def test_one_that_fails_leaves_other_subjects_alone(self) -> None:
        found = [checked(each, [FAST])[0].status for each in (raises, Tiny, exits, Tiny)]
        assert found == [Status.ERROR, Status.PASS, Status.ERROR, Status.PASS]

    def test_an_instance_is_copied_and_never_changed(self) -> None:
        model = Tiny()
        before = walk(model)
        found = checked(model, ["deterministic", "resume_is_exact", "set_parameters_copies"])
        assert {each.status for each in found} == {Status.PASS}
        assert walk(model) == before
        assert {each.subject for each in found} == {"Tiny"}

    def test_a_module_of_torch_is_an_instance_though_it_can_be_called(self) -> None:
        assert isinstance(subject(torch.nn.Linear(1, 1)).factory(), torch.nn.Linear)

    def test_a_class_is_a_factory_though_it_has_learn(self) -> None:
        assert isinstance(subject(Tiny).factory(), Tiny)

    @pytest.mark.parametrize(
        ("factory", "name"),
        [
            (Tiny, "Tiny"),
            (raises, "raises"),
            (lambda: Tiny(), "subject"),
            (functools.partial(Tiny), "Tiny"),
            (Tiny(), "Tiny"),
        ],
    )
    def test_the_name_is_that_of_the_factory(self, factory: Any, name: str) -> None:
        assert subject(factory).name == name
        assert subject(factory, name="mine").name == "mine"

    @pytest.mark.usefixtures("processes")
    def test_nothing_global_is_consumed_or_changed(self) -> None:
        def state() -> tuple[object, ...]:
            return (
                random.getstate(), np.random.get_state(legacy=False)["state"]["key"].tobytes(),
                torch.get_rng_state().tolist(), Path.cwd(), dict(os.environ), sorted(Path.cwd().iterdir()),
            )  # fmt: skip

        before = state()
        checked(Tiny, ["deterministic", "settings_survive"])
        checked(raises, [FAST])
        assert state() == before


class TestRules:
    @pytest.mark.parametrize("checks", [["unknown"], "unknown", [FAST, "unknown"]])
    def test_an_unknown_name_is_an_error_with_the_names(self, checks: Any) -> None:
        with pytest.raises(UnknownRuleError, match="no check is named 'unknown'; choose from deterministic, "):
            checked(raises, checks)

    def test_an_expected_failure_of_an_unknown_rule_is_an_error(self) -> None:
        with pytest.raises(UnknownRuleError, match="no check is named 'resume'"):
            checked(Tiny, [FAST], expected_failures={"resume": "a slip"})

    def test_one_name_is_one_check(self) -> None:
        assert [each.check for each in checked(Tiny, FAST)] == [FAST]  # type: ignore[arg-type]

    def test_the_order_is_that_of_the_caller_and_progress_comes_before_each(self) -> None:
        seen: list[tuple[str, str]] = []
        names = ["settings_survive", "deterministic", FAST]
        found = checked(Tiny, names, name="mine", on_check=lambda *each: seen.append(each))
        assert [each.check for each in found] == names
        assert seen == [("mine", name) for name in names]

    def test_by_default_all_rules_run_in_their_order(self) -> None:
        assert [each.check for each in checked(raises)] == list(RULES)

    def test_every_rule_rests_on_rules_before_it(self) -> None:
        names = list(RULES)
        for rule in RULES.values():
            assert {name for name in rule.rests_on if names.index(name) < names.index(rule.name)} == set(rule.rests_on)
            assert rule.rationale
            assert rule.expected.endswith(".")

    def test_a_rule_that_others_rest_on_runs_once(self, tmp_path: Path) -> None:
        def first(session: SubjectSession) -> CheckFinding:  # noqa: ARG001
            with (tmp_path / "runs").open("a") as file:
                file.write("x")
            return passing()

        def second(session: SubjectSession) -> CheckFinding:  # noqa: ARG001
            return passing()

        def third(session: SubjectSession) -> CheckFinding:  # noqa: ARG001
            return passing()

        with rules(first, second, third, rests_on={"second": ["first"], "third": ["first", "second"]}):
            checked(Tiny, ["third", "second", "first"])
        assert (tmp_path / "runs").read_text() == "x"

    @pytest.mark.parametrize(
        ("before", "status", "seen"),
        [
            (lambda _: failing("2 of 3 differ"), Status.INCONCLUSIVE, "gate: fail, 2 of 3 differ"),
            (lambda _: 1 / 0, Status.INCONCLUSIVE, "gate: error, ZeroDivisionError: division by zero"),
            (lambda session: session.run(raises), Status.INCONCLUSIVE, "gate: error, ValueError: no model today"),
            (lambda session: session.run(lambda: Adapter().act(1)), Status.PASS, ""),
            (lambda _: passing(), Status.PASS, ""),
        ],
        ids=["fail", "error", "error of the subject", "not applicable", "pass"],
    )
    def test_what_rests_on_another(self, before: CheckFunction, status: Status, seen: str) -> None:
        def gate(session: SubjectSession) -> CheckFinding:
            return before(session)

        def rule(session: SubjectSession) -> CheckFinding:  # noqa: ARG001
            return passing()

        def last(session: SubjectSession) -> CheckFinding:  # noqa: ARG001
            return passing()

        with rules(gate, rule, last, rests_on={"rule": ["gate"], "last": ["rule"]}):
            found = {each.check: each for each in checked(Tiny)}
        assert found["rule"].status is found["last"].status is status
        assert found["rule"].finding.seen.startswith(seen)
        if status is Status.INCONCLUSIVE:
            assert found["last"].finding.seen.startswith("rule: inconclusive, gate: ")

    def test_a_rule_that_crashes_is_an_error_and_the_rest_runs(self) -> None:
        def crashes(session: SubjectSession) -> CheckFinding:  # noqa: ARG001
            raise RuntimeError("a mistake of the rule")

        def fine(session: SubjectSession) -> CheckFinding:  # noqa: ARG001
            return passing()

        with rules(crashes, fine):
            first, second = checked(Tiny)
        assert (first.status, second.status) == (Status.ERROR, Status.PASS)
        assert first.finding.seen.startswith("RuntimeError: a mistake of the rule (checks/test_engine.py:")

    def test_what_an_adapter_cannot_do_is_not_applicable(self) -> None:
        class Learner(Adapter):
            def learn(self, model: Tiny, steps: int) -> Sequence[Any]:
                return model.learn(steps)

            def target_modules(self, model: Tiny) -> Sequence[Any]:
                return [model.target]

        found = {each.check: each for each in check_algorithm(Tiny, adapter=Learner())}
        assert {each.status for each in found.values()} <= {Status.PASS, Status.NOT_APPLICABLE}
        assert found["resume_is_exact"].finding.seen == "the adapter has no save()"
        assert found["observing_changes_nothing"].finding.seen == "the adapter has no act(); the adapter has no save()"
        assert found["pieces_equal_whole"].outcome == "pass, proven by 1 fault"

    def test_a_model_without_parameters_of_torch_is_not_applicable(self) -> None:
        class Counter:
            def __init__(self) -> None:
                self.count = 0

            def learn(self, steps: int) -> None:
                self.count += steps

        found = {each.check: each for each in check_algorithm(Counter)}
        assert {each.status for each in found.values()} == {Status.NOT_APPLICABLE}
        assert found["deterministic"].finding.seen.startswith("no trained parameters of torch were found; override")

    @pytest.mark.parametrize(
        "returned", [None, (), [torch.ones(2)] * 3, np.zeros((3, 2)), [{"obs": np.ones(1)}, object()]]
    )
    def test_learn_may_return_any_steps(self, returned: Any) -> None:
        class Odd(TinyAdapter):
            def learn(self, model: Tiny, steps: int) -> Any:
                super().learn(model, steps)
                return returned

        (found,) = check_algorithm(Tiny, adapter=Odd(), checks=["deterministic"])
        assert found.status is Status.PASS


class TestExpectedFailures:
    def test_one_that_fails_is_no_surprise(self) -> None:
        name = "pieces_equal_whole"
        (found,) = checked(LearnStartsAgain, [name], expected_failures={name: "known"})
        assert (found.status, found.is_unexpected, found.outcome) == (Status.FAIL, False, "fail, as expected")
        assert found.expected_failure == "known"

    def test_one_that_passes_is_reported(self) -> None:
        (found,) = checked(Tiny, [FAST], expected_failures=MappingProxyType({FAST: "known"}))
        assert (found.status, found.is_unexpected) == (Status.PASS, True)

    def test_an_error_is_never_expected(self) -> None:
        (found,) = checked(raises, [FAST], expected_failures={FAST: "known"})
        assert (found.status, found.is_unexpected) == (Status.ERROR, True)

    def test_of_another_rule_it_has_no_effect(self) -> None:
        (found,) = checked(PredictDraws, ["observing_changes_nothing"], expected_failures={FAST: "known"})
        assert (found.status, found.is_unexpected, found.expected_failure) == (Status.FAIL, True, "")


def flip(session: SubjectSession) -> CheckFinding:
    """Fails if the adapter does not act."""

    def action() -> bool:
        return bool(session.adapter.act(session.make()))

    return passing() if session.run(action) else failing("it does not act")


class Silent(Wrapped):
    def act(self, model: Any) -> Any:  # noqa: ARG002
        return 0


class Crashing(Wrapped):
    def act(self, model: Any) -> Any:  # noqa: ARG002
        raise RuntimeError("planted")


class TestProofs:
    def proven(self, *faults: GenericFault) -> CheckRecord:
        with rules(flip, flip=faults):
            (found,) = checked(Tiny)
        return found

    def test_a_fault_that_is_detected_proves_a_pass(self) -> None:
        found = self.proven(GenericFault("be silent", Silent))
        assert (found.outcome, found.proofs) == ("pass, proven by 1 fault", (Proof("be silent", detected=True),))

    def test_a_fault_that_is_not_detected_is_named(self) -> None:
        found = self.proven(GenericFault("be silent", Silent), GenericFault("do nothing", Wrapped))
        assert found.outcome == "pass, proven by 1 of 2 faults"
        assert [each.fault for each in found.proofs if not each.detected] == ["do nothing"]

    def test_a_fault_without_effect_proves_nothing(self) -> None:
        found = self.proven(GenericFault("do nothing", Wrapped))
        assert found.outcome == "pass, unproven: the check detected none of 1 faults"

    def test_a_fault_that_crashes_proves_nothing_and_says_why(self) -> None:
        found = self.proven(GenericFault("crash", Crashing))
        assert found.outcome.startswith("pass, unproven: a fault could not be planted: crash: RuntimeError: planted")

    def test_without_faults_a_pass_is_unproven(self) -> None:
        assert self.proven().outcome == "pass, unproven: the check has no fault to plant"

    def test_faults_that_cannot_be_made_are_a_reason(self) -> None:
        def broken(session: SubjectSession) -> Sequence[GenericFault]:  # noqa: ARG001
            raise RuntimeError("no faults today")

        with rules(flip):
            RULES["flip"] = Rule("flip", "ours", "low", "flip holds", flip, (), broken)
            (found,) = checked(Tiny)
        assert found.outcome.startswith("pass, unproven: no fault could be planted: RuntimeError: no faults today")

    def test_a_fault_stays_in_its_own_run(self) -> None:
        adapter = TinyAdapter()
        with rules(flip, flip=[GenericFault("be silent", Silent)]):
            first, second = (check_algorithm(Tiny, adapter=adapter)[0] for _ in range(2))
        assert first == second

    def test_only_a_pass_is_proven(self) -> None:
        with rules(flip, flip=[GenericFault("be silent", Silent)]):
            (found,) = check_algorithm(Tiny, adapter=Silent(TinyAdapter()))
        assert (found.status, found.proofs, found.unproven) == (Status.FAIL, (), "")


class TestSharedRuns:
    def made(self, tmp_path: Path) -> Subject:
        def make() -> Tiny:
            with (tmp_path / "made").open("a") as file:
                file.write("x")
            return Tiny()

        return subject(make, adapter=TinyAdapter())

    def count(self, tmp_path: Path) -> int:
        found = len((tmp_path / "made").read_text())
        (tmp_path / "made").unlink()
        return found

    def test_the_tests_of_one_subject_run_a_gate_once(self, tmp_path: Path) -> None:
        made = self.made(tmp_path)
        pieces, observing = (
            dataclasses.replace(RULES[name], faults=lambda _: ())
            for name in ("pieces_equal_whole", "observing_changes_nothing")
        )
        record_of(pieces, made, made.runs)
        first = self.count(tmp_path)
        record_of(observing, made, made.runs)
        assert self.count(tmp_path) < first

    def test_a_check_that_was_reported_runs_again(self, tmp_path: Path) -> None:
        made, times = subject(Tiny, adapter=TinyAdapter()), tmp_path / "times"

        def rule(session: SubjectSession) -> CheckFinding:  # noqa: ARG001
            with times.open("a") as file:
                file.write(".")
            return passing()

        def other(session: SubjectSession) -> CheckFinding:  # noqa: ARG001
            return passing()

        with rules(rule, other, rests_on={"other": ["rule"]}):
            counts = []
            for name in ("other", "rule", "other", "rule"):
                record_of(RULES[name], made, made.runs)
                counts.append(len(times.read_text()))
        assert counts == [1, 1, 1, 2]

    def test_a_call_of_its_own_runs_everything(self, tmp_path: Path) -> None:
        made = self.made(tmp_path)
        check_subject(made, checks=[FAST])
        first = self.count(tmp_path)
        check_subject(made, checks=[FAST])
        assert self.count(tmp_path) == first

    def test_a_changed_subject_shares_nothing(self) -> None:

        made = subject(Tiny, adapter=TinyAdapter())
        made.runs.findings["deterministic"] = failing("of another")
        assert dataclasses.replace(made, limit=5.0).runs == Runs()
        assert subject(Tiny, adapter=made.adapter).runs == Runs()


@pytest.mark.slow
@pytest.mark.usefixtures("processes")
def test_the_records_are_the_same_in_every_process() -> None:
    code = (
        "from rlverify.checks import check_algorithm\n"
        "from tests.engine.checks.tiny_trainers import ForgetsMoments, TinyAdapter\n"
        "print(check_algorithm(ForgetsMoments, adapter=TinyAdapter(), checks=['resume_is_exact']))\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    found = checked(ForgetsMoments, ["resume_is_exact"])
    assert other.stdout == f"{found}\n"
    assert "restoring optimizer.state[0]" in other.stdout


def test_an_error_while_training_is_an_error_of_the_check() -> None:
    class Ends(Tiny):
        def learn(self, steps: int) -> list[float]:
            raise FloatingPointError(f"diverged in {steps} steps")

    found = {each.check: each for each in checked(Ends, ["deterministic", FAST, "resume_is_exact"])}
    assert found["deterministic"].status is Status.ERROR
    assert found["deterministic"].finding.seen.startswith(
        "FloatingPointError: diverged in 3 steps (checks/test_engine.py:"
    )
    assert found[FAST].status is Status.PASS
    assert found["resume_is_exact"].status is Status.INCONCLUSIVE


def test_not_supported_outside_of_a_process_is_not_applicable() -> None:
    def rule(session: SubjectSession) -> CheckFinding:  # noqa: ARG001
        raise NotSupportedError("nothing to look at")

    with rules(rule):
        (found,) = checked(Unseeded)
    assert (found.status, found.finding.seen) == (Status.NOT_APPLICABLE, "nothing to look at")
