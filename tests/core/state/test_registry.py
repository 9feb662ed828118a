"""The registry of training state by itself, over pieces that are one number each."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from rlcore.errors import ResumeWarning, StateError
from rlcore.state.training import Scope, StatePart, TrainingState, snapshot


class Piece:
    """A number, or none; it takes none that is negative."""

    def __init__(self, value: float | None) -> None:
        self.value = value

    def capture(self) -> dict[Any, Any] | None:
        return None if self.value is None else {"value": self.value}

    def restore(self, state: Any) -> None:
        if state["value"] < 0:
            raise StateError(f"{state['value']} is negative")
        self.value = state["value"]

    def reset(self) -> None:
        self.value = 0.0

    def part(self, key: str, scope: Scope = Scope.LEARNER, **more: Any) -> StatePart:
        return StatePart(key, scope, self.capture, self.restore, self.reset, **more)


def registry(
    pending: dict[str, Any] | None = None, /, **values: float | None
) -> tuple[TrainingState, dict[str, Piece]]:
    """Pieces of what was learnt under the names given, and one of each other scope."""
    pieces = {name: Piece(value) for name, value in values.items()}
    others = {"progress": Piece(10.0), "env": Piece(20.0)}
    parts = [piece.part(name) for name, piece in pieces.items()]
    parts += [others["progress"].part("progress", Scope.PROGRESS), others["env"].part("env", Scope.RUN)]
    return TrainingState(parts, {} if pending is None else pending), {**pieces, **others}


def numbers(pieces: dict[str, Piece]) -> dict[str, float | None]:
    return {name: piece.value for name, piece in pieces.items()}


def test_what_is_pending_for_training_to_go_on_is_captured_in_place_of_the_present() -> None:
    state, _ = registry({"env": {"value": 5.0}}, a=1.0)
    assert state.capture(*Scope) == {"a": {"value": 1.0}, "progress": {"value": 10.0}, "env": {"value": 5.0}}


def test_a_snapshot_shares_nothing_at_any_depth_and_has_no_graph() -> None:
    tensor = torch.ones(2, requires_grad=True)
    source: Any = {"lists": [[tensor]], "dicts": {"t": tensor, "n": 1, "text": "a"}}
    taken: Any = snapshot(source)
    with torch.no_grad():
        tensor.zero_()
    source["lists"].append(1)
    assert repr(taken) == repr({"lists": [[torch.ones(2)]], "dicts": {"t": torch.ones(2), "n": 1, "text": "a"}})


@pytest.mark.parametrize("exact_match", [True, False])
def test_what_is_restored_shares_nothing_with_what_was_given(exact_match: bool) -> None:
    received: list[Any] = []
    parts = [
        StatePart("a", Scope.LEARNER, dict, received.append),
        StatePart("env", Scope.RUN, dict, received.append),
    ]
    state = TrainingState(parts, {})
    given: Any = {"a": {"t": torch.ones(1)}, "env": {"t": torch.ones(1)}}
    state.restore(given, exact_match=exact_match, expected=tuple(Scope))
    state.resume()
    for taken in (*received, state.pending["env"]):
        taken["t"].zero_()
    assert len(received) == 2
    assert given == {"a": {"t": torch.ones(1)}, "env": {"t": torch.ones(1)}}


def test_everything_given_is_restored_and_what_belongs_to_a_run_waits() -> None:
    state, pieces = registry(a=1.0, b=2.0)
    given = {name: {"value": value} for name, value in [("a", 3.0), ("b", 4.0), ("progress", 5.0), ("env", 6.0)]}
    state.restore(given, expected=tuple(Scope))  # type: ignore[arg-type]
    assert numbers(pieces) == {"a": 3.0, "b": 4.0, "progress": 5.0, "env": 20.0}
    assert state.pending == {"env": {"value": 6.0}}
    state.resume()
    assert pieces["env"].value == 6.0
    assert state.pending == {"env": {"value": 6.0}}


def test_what_is_left_out_starts_fresh_where_there_is_any_and_one_warning_names_it_all() -> None:
    state, pieces = registry(a=1.0, b=2.0, c=None, d=3.0)
    with pytest.warns(ResumeWarning, match="^no state for b, d: it starts fresh.* where it stopped$") as caught:
        state.restore({"a": {"value": 7.0}, "b": None})
    assert len(caught) == 1
    assert numbers(pieces) == {"a": 7.0, "b": 0.0, "c": None, "d": 0.0, "progress": 10.0, "env": 20.0}


def test_without_exact_match_what_is_left_out_stays_and_what_finds_no_home_is_passed_over() -> None:
    state, pieces = registry(a=1.0, b=2.0, c=None)
    pieces["progress"].value = None
    given = {"a": None, "b": {"value": 3.0}, "c": {"value": 4.0}, "progress": {"value": 5.0}, "env": {"value": 6.0}}
    state.restore(given, exact_match=False, expected=tuple(Scope))  # type: ignore[arg-type]
    assert numbers(pieces) == {"a": 1.0, "b": 3.0, "c": None, "progress": 5.0, "env": 20.0}
    assert state.pending == {"env": {"value": 6.0}}


@pytest.mark.parametrize("states", [{}, {"b": {"value": 3.0}}, {"a": None, "b": {"value": 3.0}}], ids=repr)
def test_required_parts_left_out_are_all_named_and_nothing_changes(states: dict[str, Any]) -> None:
    first, second, third = Piece(1.0), Piece(2.0), Piece(3.0)
    state = TrainingState([first.part("a", required=True), second.part("b"), third.part("c", required=True)], {})
    with pytest.raises(StateError, match=r"^missing are \['a', 'c'\]"):
        state.restore(states)
    assert (first.value, second.value, third.value) == (1.0, 2.0, 3.0)
    state.restore(states, exact_match=False)


@pytest.mark.parametrize(
    ("broken", "said"), [({"value": -1.0}, "-1.0 is negative"), ([1], "^c must be a dict of state, got list$")]
)
def test_a_state_that_does_not_fit_leaves_everything_as_it_was(broken: Any, said: str) -> None:
    state, pieces = registry({"env": {"value": 8.0}}, a=1.0, b=None, c=2.0, d=3.0)
    before = numbers(pieces)
    given = {"a": {"value": 5.0}, "progress": {"value": 6.0}, "env": {"value": 7.0}, "c": broken}
    pending = state.pending
    with pytest.raises(StateError, match=said):
        state.restore(given, expected=tuple(Scope))
    assert numbers(pieces) == before
    assert state.pending is pending
    assert pending == {"env": {"value": 8.0}}


def test_an_error_that_no_part_foresees_names_the_part() -> None:
    state, _ = registry(a=1.0)
    with pytest.raises(StateError, match=r"^a cannot be used \(KeyError: .*value"):
        state.restore({"a": {}})
    state.restore({"env": {}}, exact_match=False, expected=[Scope.RUN])
    with pytest.raises(StateError, match=r"^env cannot be used \(KeyError: .*value"):
        state.resume()


def test_where_the_warning_is_an_error_nothing_is_changed() -> None:
    state, pieces = registry(a=1.0, b=2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResumeWarning)
        with pytest.raises(ResumeWarning):
            state.restore({"a": {"value": 5.0}})
    assert (pieces["a"].value, pieces["b"].value) == (1.0, 2.0)


def refuse(state: Any) -> None:
    raise StateError(f"{state['value']} fits nothing")


def test_a_state_of_a_run_that_could_fit_nothing_is_refused_before_it_waits() -> None:
    state = TrainingState([Piece(1.0).part("env", Scope.RUN, check=refuse)], {})
    with pytest.raises(StateError, match=r"6\.0 fits nothing"):
        state.restore({"env": {"value": 6.0}}, expected=[Scope.RUN])
    assert state.pending == {}


REFUSED = {
    "an unknown part": ({"b": {}}, "unknown here .*'b'"),
    "an unknown part that is no text": ({7: {}}, "unknown here .*'7'"),
    "where a run stands": ({"env": {}}, "unknown here .*'env'"),
    "progress": ({"progress": {}}, "unknown here .*'progress'"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("exact_match", [True, False])
def test_what_is_no_parameter_is_refused_and_nothing_changes_unless_it_is_none(case: str, exact_match: bool) -> None:
    more, said = REFUSED[case]
    state, pieces = registry(a=1.0)
    with pytest.raises(StateError, match=said):
        state.restore({"a": {"value": 2.0}, **more}, exact_match=exact_match)  # type: ignore[dict-item]
    assert pieces["a"].value == 1.0
    state.restore({"a": {"value": 2.0}, **dict.fromkeys(more)}, exact_match=exact_match)  # type: ignore[dict-item]
    assert pieces["a"].value == 2.0


@pytest.mark.parametrize("now", [20.0, None])
def test_a_run_that_is_expected_and_left_out_starts_fresh_unless_there_was_none(now: float | None) -> None:
    state, pieces = registry()
    pieces["env"].value = now
    state.restore({"env": None}, expected=[Scope.RUN])
    assert pieces["env"].value == now
    with pytest.warns(ResumeWarning, match="^no state for env: it starts fresh"):
        state.restore({}, expected=[Scope.RUN])
    assert pieces["env"].value == 0.0
