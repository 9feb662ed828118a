"""A resume that is not exact names the leaves that it needs, each measured, and short enough to read."""

from __future__ import annotations

from typing import Any

import pytest

from rlverify.checks import CheckRecord, Status, check_algorithm
from rlverify.checks.engine import search
from rlverify.checks.engine.search import (
    GLOBALS,
    UNKNOWN,
    common,
    listed,
    names_of,
    parent,
    part_of,
    shortened,
)
from rlverify.checks.engine.session import SubjectSession
from rlverify.checks.rules.resume import forgettable
from rlverify.checks.state.tree import is_below
from tests.engine.checks.tiny_trainers import Tiny, TinyAdapter


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("rng", ["rng"]),
        ("env.envs[0].env.state", ["env", ".envs", "[0]", ".env", ".state"]),
        ("policy.optimizer.state[0]['exp_avg']", ["policy", ".optimizer", ".state", "[0]", "['exp_avg']"]),
        ("['a.b[0]'].c", ["['a.b[0]']", ".c"]),
        ("x['it\\'s'][\"it's\"]", ["x", "['it\\'s']", '["it\'s"]']),
        ("step.<env>.state", ["step", ".<env>", ".state"]),
        ("array[0, 1]", ["array", "[0, 1]"]),
        ("x[#3]", ["x", "[#3]"]),
        (GLOBALS, [GLOBALS]),
        ("", [""]),
    ],
)
def test_a_path_has_names(path: str, names: list[str]) -> None:
    assert names_of(path) == names
    assert part_of(path) == names[0]
    assert parent(path) + names[-1] == path


def test_the_common_object_of_some_leaves() -> None:
    assert common(["env.a"]) == "env.a"
    assert common(["env.a.b", "env.a.c"]) == "env.a"
    assert common(["env.ab", "env.a"]) == "env"
    assert common(["env.a", "rng"]) == ""
    assert [each for each in ("env.a.b", "env.a", "env.ab", "x") if is_below(each, "env.a")] == ["env.a.b", "env.a"]
    assert is_below("a", "")


def test_paths_with_one_parent_are_grouped_from_three_on() -> None:
    assert shortened(["env.a", "env.b", "rng"]) == ["env.a", "env.b", "rng"]
    assert shortened(["env.a", "rng", "env.b", "env.c"]) == ["env.{a, b, c}", "rng"]
    assert shortened(["s[0]", "s[1]", "s['x']"]) == ["s[0, 1, 'x']"]
    assert shortened(["s.a", "s[1]", "s['x']"]) == ["s.{a, [1], ['x']}"]
    assert shortened(["a", "b", "c"]) == ["a", "b", "c"]
    assert shortened([""]) == ["the model"]


def test_five_are_listed() -> None:
    assert listed(list("abcde")) == "a, b, c, d, e"
    assert listed(list("abcdefg")) == "a, b, c, d, e and 2 more"


class Parts:
    """State of an environment that only together makes a step."""

    def __init__(self) -> None:
        self.first, self.second, self.flag, self.count, self.last = 0.0, 0.0, True, 0, 0.0


class WithParts(Tiny):
    """Forgets its environment, of which some attributes matter and others do not."""

    def __init__(self) -> None:
        super().__init__()
        self.env = Parts()

    def step(self) -> float:
        self.env.count += 1
        self.env.first, self.env.second = self.env.first + 1, self.env.second + 2
        self.place = self.place + self.env.first * self.env.second
        self.env.last = float(self.place)
        return super().step()


class WithTwice(WithParts):
    """Each of two attributes is enough."""

    def step(self) -> float:
        self.env.count = self.updates
        self.env.first = self.env.second = max(self.env.first, self.env.second) + 1
        self.place = self.place + self.env.first
        return Tiny.step(self)


class Across(Tiny):
    """Each of two attributes that are not in one object is enough."""

    def __init__(self) -> None:
        super().__init__()
        self.first = self.second = 0.0

    def step(self) -> float:
        self.first = self.second = max(self.first, self.second) + 1
        self.place = self.place + self.first
        return super().step()


class AcrossAndOne(Across):
    """Forgets its generator too."""

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state({**state, "rng": self.rng.bit_generator.state})


class Crashes(WithParts):
    """Cannot go on after a load."""

    def step(self) -> float:
        if self.env.count != self.updates:
            raise RuntimeError("reset it first")
        return super().step()


COUNTED = [0]
"""Steps of all models of a process."""


class CountsOutside(Tiny):
    """Keeps a part of its state in a global variable."""

    def step(self) -> float:
        COUNTED[0] += 1
        self.place = self.place + COUNTED[0]
        return super().step()


class Hides(Tiny):
    """Keeps a part of its state where it cannot be seen."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = iter(range(1000))

    def step(self) -> float:
        self.place = self.place + next(self.numbers)
        return super().step()


def found(make: Any) -> CheckRecord:
    return check_algorithm(make, adapter=TinyAdapter(), checks=["resume_is_exact"])[0]


def test_leaves_that_do_not_matter_are_not_named() -> None:
    finding = found(WithParts).finding
    assert finding.why == "restoring env.first, env.second makes it exact"
    assert finding.causes == ("env.first", "env.second")


def test_of_two_leaves_that_are_each_enough_their_object_is_named() -> None:
    assert found(WithTwice).finding.why == "restoring env makes it exact"


def test_of_two_attributes_that_are_each_enough_neither_is_named() -> None:
    why = "restoring all 3 leaves that differ makes it exact; no single part of them is necessary"
    assert found(Across).finding.why == why
    why = "restoring rng is necessary but not enough; with all 4 leaves that differ it is exact"
    assert found(AcrossAndOne).finding.why == why


def test_a_loaded_model_that_crashes_is_an_error_with_its_place() -> None:
    record = found(Crashes)
    assert record.status is Status.ERROR
    assert record.finding.seen.startswith("RuntimeError: reset it first (checks/test_search.py:")


def test_what_is_kept_outside_the_model_differs_in_the_second_run_of_a_process() -> None:
    finding = found(CountsOutside).finding
    assert (finding.causes, finding.seen.partition(",")[0]) == ((), "deterministic: fail")


def test_what_cannot_be_seen_is_named() -> None:
    finding = found(Hides).finding
    assert finding.causes == (UNKNOWN,)
    assert finding.why.startswith("copying all ")
    lost = "leaves that differ does not make it exact; what is lost is one of: what is inside of numbers"
    assert lost in finding.why


def test_without_runs_left_a_group_is_named_and_not_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_RUNS", 2)
    assert found(WithParts).finding.why == "restoring env makes it exact"


class TestForgettable:
    def test_each_part_that_training_changes_is_forgotten_once(self) -> None:
        session = SubjectSession(Tiny, TinyAdapter())
        assert [each.text for each in forgettable(session)] == [
            "forget net.weight in load()",
            "forget optimizer.param_groups[0]['lr'] in load()",
            "forget optimizer.state[0]['exp_avg'] in load()",
            "forget place in load()",
            "forget rng in load()",
            "forget target.weight in load()",
            "forget updates in load()",
        ]

    def test_what_differs_between_equal_runs_is_not_forgotten(self) -> None:
        session = SubjectSession(Tiny, TinyAdapter(), volatile=frozenset({"rng", "net.weight"}))
        texts = [each.text for each in forgettable(session)]
        assert "forget rng in load()" not in texts
        assert "forget net.bias in load()" in texts
