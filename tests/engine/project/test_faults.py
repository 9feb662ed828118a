"""A fault is in place for everyone while it is planted, is counted, and leaves no trace."""

# ruff: noqa: ARG001, ARG005 - a replacement takes what its target takes

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from toyproject import target

from rlverify.project.content import Project
from rlverify.project.fingerprint import member_digest
from rlverify.project.planting import SourceCode, healthy, null_fault_of, plant, source_of_fault, unreached_hint
from rlverify.project.registry import FAULTS, Fault, fault, get_fault
from rlverify.records.errors import FaultError, StaleFaultError, UnknownNameError
from tests.engine.in_process import fresh_projects


def _fault(owner: str, member: str, replacement: Callable[..., Any], healthy_member: Callable[..., Any]) -> Fault:
    return Fault("made-here", owner, member, replacement, member_digest(healthy_member), "toy", __name__)


def _average(*values: float) -> target.Average:
    average = target.Average()
    for value in values:
        average.add(value)
    return average


MEAN = target.Average.__dict__["mean"].fget
RESTORED = vars(target.Average)["restored"].__func__
KINDS: dict[str, Any] = {
    "function": (
        "toyproject.target", "clip", lambda value, low, high: 99, target.clip, lambda: target.clip(1, 0, 3), 1, 99,
    ),
    "method": (
        "toyproject.target:Average", "add", lambda self, value: None, target.Average.add,
        lambda: _average(5).count, 1, 0,
    ),
    "property": ("toyproject.target:Average", "mean", lambda self: -1.0, MEAN, lambda: _average(4).mean, 4.0, -1.0),
    "static": (
        "toyproject.target:Average", "is_usable", lambda value: False, target.Average.is_usable,
        lambda: _average(4).count, 1, 0,
    ),
    "class": (
        "toyproject.target:Average", "restored", lambda cls, state: cls.limit, RESTORED,
        lambda: getattr(target.Average.restored({"count": 2, "total": 3.0}), "count", 10), 2, 10,
    ),
}  # fmt: skip


def unguarded(value: float, low: float, high: float) -> float:  # type: ignore[misc]
    """Neither end."""
    return value  # type: ignore[no-any-return]  # why


@pytest.mark.parametrize(
    ("owner", "member", "original", "healthy_code"),
    [
        ("toyproject.target", "clip", target.clip, "def clip("),
        ("toyproject.target:Average", "mean", MEAN, "def mean("),
    ],
)
def test_the_source_of_a_fault_is_next_to_the_healthy_one_without_decorators_and_comments_for_tools(
    owner: str, member: str, original: Callable[..., Any], healthy_code: str
) -> None:
    found = source_of_fault(_fault(owner, member, unguarded, original), Path(target.__file__).parents[1])
    assert found is not None
    assert found[0].text.startswith(healthy_code)
    assert '"""' not in found[0].text
    assert re.fullmatch(r"toyproject/target\.py:\d+", found[0].place)
    assert found[1] == SourceCode(
        'def unguarded(value: float, low: float, high: float) -> float:\n    """Neither end."""\n    return value',
        __name__,  # outside the folder
    )


def test_the_source_of_a_fault_that_is_a_lambda_is_the_statement_around_it() -> None:
    replacement = lambda value, low, high: 99  # noqa: E731
    found = source_of_fault(_fault("toyproject.target", "clip", replacement, target.clip), Path())
    assert found is not None
    assert found[1].text == "replacement = lambda value, low, high: 99"


def test_a_fault_without_a_target_or_without_a_source_shows_none() -> None:
    made = _fault("toyproject.target", "clip", target.clip, target.clip)
    assert source_of_fault(replace(made, member="gone"), Path()) is None
    compiled = eval("lambda value, low, high: 99")  # noqa: S307
    assert source_of_fault(replace(made, replacement=compiled), Path()) is None


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_member_is_replaced_counted_and_restored(kind: str) -> None:
    owner, member, replacement, original, use, before, during = KINDS[kind]
    holder = target if ":" not in owner else target.Average
    found = vars(holder)[member]
    assert use() == before
    with plant(_fault(owner, member, replacement, original)) as planted:
        assert planted.executions == 0
        assert use() == during
        assert planted.executions == 1
        assert type(vars(holder)[member]) is type(found)
    assert use() == before
    assert vars(holder)[member] is found


def test_an_inherited_member_is_replaced_on_the_named_class_only() -> None:
    with plant(_fault("toyproject.target:Heir", "add", lambda self, value: None, target.Average.add)):
        heir = target.Heir()
        heir.add(1)
        assert (heir.count, _average(1).count) == (0, 1)
    assert "add" not in vars(target.Heir)
    assert target.Heir.add is target.Average.add


def _fail_while_planted(chosen: Fault) -> None:
    with plant(chosen):
        raise ZeroDivisionError


def test_a_fault_is_taken_out_when_the_block_fails() -> None:
    found = target.clip
    with pytest.raises(ZeroDivisionError):
        _fail_while_planted(_fault("toyproject.target", "clip", lambda value, low, high: 0, target.clip))
    assert target.clip is found


def test_a_replacement_can_call_what_it_replaces(toyproject: Project) -> None:
    with plant(toyproject.fault("add-twice")):
        assert _average(3).count == 2
        assert healthy("add-twice").__qualname__ == "Average.add"
    assert healthy("add-twice") is target.Average.add


def test_faults_of_different_members_can_be_planted_together() -> None:
    first = _fault("toyproject.target", "clip", lambda value, low, high: 7, target.clip)
    second = _fault("toyproject.target", "unused", lambda value: 8, target.unused)
    with plant(first) as one, plant(second) as two:
        assert (target.clip(0, 0, 0), target.unused(0)) == (7, 8)
        assert (one.executions, two.executions) == (1, 1)


def test_a_member_can_be_replaced_by_one_fault_at_a_time(toyproject: Project) -> None:
    with plant(toyproject.fault("clip-one-sided")), pytest.raises(FaultError, match="already replaced"):  # noqa: SIM117
        with plant(toyproject.fault("clip-other-order")):
            pass
    assert target.clip(-1, 0, 3) == 0


def test_a_null_fault_runs_and_changes_nothing(toyproject: Project) -> None:
    null = null_fault_of(toyproject.fault("clip-one-sided"))
    with plant(null) as planted:
        assert target.clip(-5, 0, 3) == 0
    assert (null.name, planted.executions) == ("null-clip-one-sided", 1)


def test_a_fault_knows_whether_production_code_called_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through code of a module without a name, too, as of a template; a module without a source uses nothing."""
    made = ModuleType("toyproject.made")
    vars(made)["is_usable"] = target.Average.is_usable
    monkeypatch.setitem(sys.modules, "toyproject.made", made)
    usable = _fault("toyproject.target:Average", "is_usable", lambda value: True, target.Average.is_usable)
    with plant(usable, "toyproject.target".__eq__) as planted:
        exec("call(1.0)", {"call": target.Average.is_usable})  # noqa: S102
        assert planted.by_production is False
        assert unreached_hint(planted, "toyproject.made".__eq__) is None
        exec("call(1.0)", {"call": _average})  # noqa: S102
        assert planted.by_production is True


class Settable:
    """A property with all of its functions."""

    kept = 0

    @property
    def size(self) -> int:
        """How large it is."""
        return self.kept

    @size.setter
    def size(self, value: int) -> None:
        self.kept = value

    @size.deleter
    def size(self) -> None:
        self.kept = 0


def test_a_property_keeps_its_other_functions_and_its_description() -> None:
    member = vars(Settable)["size"].fget
    with plant(_fault(f"{__name__}:Settable", "size", lambda self: -self.kept, member)):
        found = Settable()
        found.size = 3
        assert (found.size, found.kept) == (-3, 3)
        del found.size
        assert found.kept == 0
        assert Settable.size.__doc__ == "How large it is."


def test_a_changed_member_makes_its_fault_stale(troubleproject: Project) -> None:
    with pytest.raises(StaleFaultError, match=r"stale is stale.*pinned '0000000000000000', now '[0-9a-f]{16}'"):
        plant(troubleproject.fault("stale")).__enter__()


@pytest.mark.parametrize(
    ("owner", "member"), [("toyproject.target", "gone"), ("toyproject.target:Gone", "add"), ("toyproject.gone", "clip")]
)
def test_a_target_that_is_gone_makes_its_fault_stale(owner: str, member: str) -> None:
    with pytest.raises(StaleFaultError, match="made-here"):
        plant(_fault(owner, member, lambda value: value, target.unused)).__enter__()


def test_a_target_that_cannot_import_its_own_needs_is_not_called_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needy.py").write_text("import no_such_need", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_need"):
        plant(_fault("needy", "member", lambda value: value, target.unused)).__enter__()


@pytest.mark.parametrize(
    ("owner", "member"), [("toyproject.target:Average", "limit"), ("toyproject.target", "Average")]
)
def test_only_functions_can_be_replaced(owner: str, member: str) -> None:
    with pytest.raises(FaultError, match="not a function, method or property"):
        plant(_fault(owner, member, lambda value: value, target.unused)).__enter__()


def test_a_replacement_must_take_what_its_target_takes() -> None:
    with pytest.raises(FaultError, match=r"takes \(value, \*rest\), but its target takes \(value, low, high\)"):
        plant(_fault("toyproject.target", "clip", lambda value, *rest: 0, target.clip)).__enter__()


def test_a_mistake_in_a_fault_is_noted_whoever_catches_it() -> None:
    def mistaken(value: float, low: float, high: float) -> float:
        return value.no_such_name  # type: ignore[attr-defined, no-any-return]

    def unusual(value: float, low: float, high: float) -> float:
        raise ValueError

    def passing_on(value: float, low: float, high: float) -> float:
        return target.Average.restored({"count": None}).total  # raises KeyError in the healthy code

    for replacement, error, noted in (
        (mistaken, AttributeError, 1),
        (unusual, ValueError, 0),
        (passing_on, KeyError, 0),
    ):
        with plant(_fault("toyproject.target", "clip", replacement, target.clip)) as planted:
            with pytest.raises(error):
                target.clip(1, 0, 3)
            assert len(planted.mistakes) == noted


def test_a_type_error_of_the_healthy_code_is_no_mistake(toyproject: Project) -> None:
    with plant(toyproject.fault("add-twice")) as planted:
        with pytest.raises(TypeError, match="must be real number"):
            _average("text")  # type: ignore[arg-type]
        assert planted.mistakes == []


def test_a_generator_cannot_be_a_fault() -> None:
    def figures(value: float) -> Iterator[float]:
        yield value

    with pytest.raises(FaultError, match="errors in a generator go unnoticed"):
        fault("generates", target="toyproject.target:unused", pins="")(figures)


def test_a_fault_is_registered_as_it_is_told() -> None:
    def replacement(value: float) -> float:
        return value

    with fresh_projects():
        assert fault("told", target="toy.target:Outer.Inner.mean", pins="1", claimed=False)(replacement) is replacement
        fault("rest", target="toy.target:mean", pins="2", area="state")(replacement)
        told = ("mean", replacement, "1", "test_faults", __name__, False)
        assert get_fault("told") == Fault("told", "toy.target:Outer.Inner", *told)
        rest = ("mean", replacement, "2", "state", __name__, True)
        assert get_fault("rest") == Fault("rest", "toy.target", *rest)


@pytest.mark.parametrize("target", ["toy.target", "toy.target:", ":mean", "toy:target:mean"])
def test_a_target_must_have_one_colon_between_two_names(target: str) -> None:
    with pytest.raises(FaultError, match=f"target '{target}' must read package"):
        fault("odd", target=target, pins="")


def test_a_target_must_be_a_text() -> None:
    with pytest.raises(FaultError, match="target 5 must read package"):
        fault("no-text", target=5, pins="")  # type: ignore[arg-type]


def test_an_unknown_name_is_told(toyproject: Project) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'add-twice'"):
        toyproject.fault("add-twise")
    known = ", ".join(sorted(FAULTS.entries))
    assert known.count(", ") > 1
    with pytest.raises(UnknownNameError, match=f"^no fault named 'nowhere' is registered; known: {known}$"):
        get_fault("nowhere")


def test_the_area_of_a_fault_is_its_module_unless_told(toyproject: Project) -> None:
    assert toyproject.fault("clip-one-sided").area == "arithmetic"
    assert toyproject.fault("restored-forgets").area == "state"
