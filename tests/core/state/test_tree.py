"""A saved tree has the form of its template, or the error names the leaf, what it must be and what it is."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlcore.errors import StateError
from rlcore.state.tree import (
    ANY_LENGTH,
    COUNT,
    FREE,
    NOT_NEGATIVE,
    OPTIONAL,
    SAME,
    STEPS,
    Rule,
    describe,
    fit,
)

NAN, INF = float("nan"), float("inf")
ANY_NUMBER = Rule(finite=False)
SOME = Rule(0, 5)
DOUBLE = torch.zeros(2, dtype=torch.float64)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (3, "3"),
        ("x" * 58, f"'{'x' * 58}'"),
        ("x" * 59, f"'{'x' * 56}..."),
        ([1, 2], "a list of 2 entries"),
        (torch.zeros(2, 3, dtype=torch.int64), "a tensor of torch.int64 with shape (2, 3)"),
    ],
)
def test_a_value_is_described_in_at_most_sixty_letters(value: object, shown: str) -> None:
    assert describe(value) == shown


@pytest.mark.parametrize(
    ("saved", "like", "rule", "fitted"),
    [
        (0, 1, None, 0),
        (2**53, 1, None, 2**53),
        (-1, 1, Rule(-1, 5), -1),
        (10**30, 1, NOT_NEGATIVE, 10**30),
        (5, 1.0, None, 5.0),
        (-1.5, 1.0, None, -1.5),
        (INF, 1.0, ANY_NUMBER, INF),
        (4.0, 1, STEPS, 4),
        (torch.tensor(4.0), 1, STEPS, 4),
        (True, False, None, True),
        ("b", "a", None, "b"),
        (None, None, None, None),
        (None, 1.0, OPTIONAL, None),
        ([None], [1], OPTIONAL, [None]),
        (1.0, None, OPTIONAL, 1.0),
        (True, None, OPTIONAL, True),
        ("anything", [1], FREE, "anything"),
        ([], [1.0], ANY_LENGTH, []),
        ([1, 2.5], [0.0], ANY_LENGTH, [1.0, 2.5]),
        (["a", 1], [], ANY_LENGTH, ["a", 1]),
        ([0.5, 0.75], (0.1, 0.2), None, (0.5, 0.75)),
        ((1, 2), [3, 4], None, [1, 2]),
        ("a", "a", SAME, "a"),
        ({"b": 1, "a": None}, {"a": None, "b": 0}, None, {"a": None, "b": 1}),
    ],
)
def test_a_value_that_fits_is_returned_in_the_form_of_the_template(
    saved: object, like: object, rule: Rule | None, fitted: object
) -> None:
    found = fit({"x": saved}, {"x": like}, "it", {} if rule is None else {"x": rule})["x"]
    assert (found, type(found)) == (fitted, type(fitted))


@pytest.mark.parametrize(
    ("saved", "like", "rule", "dtype"),
    [
        (torch.ones(2), torch.zeros(2), None, torch.float32),
        (torch.tensor([0.0, 5.0]), torch.zeros(2), SOME, torch.float32),
        (DOUBLE, torch.zeros(2), None, torch.float32),
        (torch.ones(2, dtype=torch.int64), torch.zeros(2, dtype=torch.int64), None, torch.int64),
        (torch.ones(7, 3), torch.zeros(2, 3), ANY_LENGTH, torch.float32),
        (torch.tensor([NAN, -INF]), torch.zeros(2), ANY_NUMBER, torch.float32),
        (4, torch.tensor(0.0), STEPS, torch.float32),
        (torch.ones(2), torch.ones(2), SAME, torch.float32),
        (torch.ones(2), torch.zeros(2, device="meta"), SAME, torch.float32),
        (torch.ones(3), None, OPTIONAL, torch.float32),
    ],
)
def test_a_tensor_that_fits_is_returned_in_the_dtype_of_the_template(
    saved: Any, like: Any, rule: Rule | None, dtype: torch.dtype
) -> None:
    found = fit({"x": saved}, {"x": like}, "it", {} if rule is None else {"x": rule})["x"]
    assert found.dtype == dtype
    assert torch.equal(found.nan_to_num(), torch.as_tensor(saved).to(dtype).nan_to_num())


@pytest.mark.parametrize(
    ("saved", "like", "rule", "message"),
    [
        (-1, 1, None, "an integer from 0 to 9007199254740992, and is -1;"),
        (2**53 + 1, 1, None, "an integer from 0 to 9007199254740992, and is 9007199254740993;"),
        (1.0, 1, None, "an integer"),
        (True, 1, None, "an integer"),
        (6, 1, SOME, "an integer from 0 to 5, and is 6;"),
        (-1, 1, NOT_NEGATIVE, "an integer of at least 0.0, and is -1;"),
        (NAN, 1.0, None, "a finite number, and is nan;"),
        (INF, 1.0, None, "a finite number, and is inf;"),
        (-INF, 1.0, None, "a finite number"),
        (10**400, 1.0, None, "a finite number"),
        (10**400, 1.0, ANY_NUMBER, "a number"),
        (True, 1.0, None, "a finite number"),
        ("1", 1.0, None, "a finite number"),
        (5.5, 1.0, SOME, "a finite number from 0 to 5, and is 5.5;"),
        (0.5, 1, STEPS, "a whole number from 0 to 9007199254740992, and is 0.5;"),
        (NAN, torch.tensor(0.0), STEPS, "a whole number"),
        (True, torch.tensor(0.0), STEPS, "a whole number"),
        (torch.tensor(4), torch.tensor(0.0), STEPS, "a whole number"),
        (torch.ones(2), torch.tensor(0.0), STEPS, "a whole number"),
        (torch.tensor(-1.0), 1, STEPS, "a whole number"),
        (1, True, None, "True or False, and is 1;"),
        (1, "a", None, "a text, and is 1;"),
        (1, None, None, "None, and is 1;"),
        ("a", None, OPTIONAL, "None, and is 'a';"),
        (None, [1], OPTIONAL, "a list of 1 entries, and is None;"),
        (NAN, 1.0, Rule(0.0, finite=False), "a number of at least 0.0, and is nan;"),
        ([], None, OPTIONAL, "None, and is a list of 0 entries;"),
        (NAN, None, OPTIONAL, "a finite number"),
        ("b", "a", SAME, "the model's, 'a', and is 'b';"),
        (torch.ones(2), torch.zeros(2), SAME, "the model's, a tensor"),
        ({}, [1], None, "a list of 1 entries, and is a dict of 0 entries;"),
        ([1, 2], [1], None, "a list of 1 entries, and is a list of 2 entries;"),
        (7, [1], ANY_LENGTH, "a list, and is 7;"),
        (7, {"a": 1}, None, "a dict with the keys ['a'], and is 7;"),
        ([0.0, 0.0], torch.zeros(2), None, "a tensor of torch.float32 with shape (2,), and is a list of 2 entries;"),
        (torch.zeros(3), torch.zeros(2), None, "a tensor of torch.float32 with shape (2,)"),
        (torch.zeros(2, 1), torch.zeros(2), ANY_LENGTH, "a tensor of torch.float32 with shape (any, )"),
        (torch.zeros(2, 4), torch.zeros(2, 3), ANY_LENGTH, "a tensor of torch.float32 with shape (any, 3,)"),
        (torch.zeros(2, dtype=torch.int64), torch.zeros(2), None, "a tensor of torch.float32"),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int64), None, "a tensor of torch.int64"),
        (torch.zeros(2, dtype=torch.int32), torch.zeros(2, dtype=torch.int64), None, "a tensor of torch.int64"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_what_it_must_be(
    saved: object, like: object, rule: Rule | None, message: str
) -> None:
    with pytest.raises(StateError) as caught:
        fit({"x": saved}, {"x": like}, "it", {} if rule is None else {"x": rule})
    assert str(caught.value).startswith(f"it['x'] must be {message}")
    assert str(caught.value).endswith("Nothing was changed.")


@pytest.mark.parametrize(
    ("saved", "like", "rule", "message"),
    [
        ([0.0, NAN], torch.float32, None, "NaN, infinity or a number beyond torch.float32"),
        ([0.0, -INF], torch.float32, None, "NaN, infinity"),
        ([0.0, 1e300], torch.float32, None, "beyond torch.float32"),
        ([0.0, -1e-9], torch.float64, NOT_NEGATIVE, "a number below 0"),
        ([0.0, 6.0], torch.float64, SOME, "a number above 5"),
        ([0, -1], torch.int64, COUNT, "a number below 0"),
    ],
)
def test_elements_of_a_tensor_have_limits(
    saved: list[float], like: torch.dtype, rule: Rule | None, message: str
) -> None:
    with pytest.raises(StateError, match=f"it\\['x'\\] holds .*{message}"):
        fit({"x": torch.tensor(saved)}, {"x": torch.zeros(2, dtype=like)}, "it", {} if rule is None else {"x": rule})


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        ({"b": 1}, "it does not fit: missing keys ['a', 'c'], unknown keys []; "),
        ({"a": 1, "b": 1, "c": 1, "z": 1, 5: 1}, "it does not fit: missing keys [], unknown keys ['5', 'z']; "),
        (dict.fromkeys("wxyz"), "it does not fit: missing keys ['a', 'b', 'c'], unknown keys ['w', 'x', 'y'] ...; "),
    ],
)
def test_a_dict_with_other_keys_is_refused_with_what_is_missing_and_what_is_unknown(saved: Any, message: str) -> None:
    with pytest.raises(StateError) as caught:
        fit(saved, {"c": 1, "a": 1, "b": 1}, "it")
    assert str(caught.value).startswith(message)


def test_an_entry_may_be_lacking_where_the_rule_says_so() -> None:
    rules = {"late": Rule(may_lack=True)}
    assert fit({"a": 1}, {"a": 0, "late": 1.0}, "it", rules) == {"a": 1}
    with pytest.raises(StateError, match="it\\['late'\\] must be a finite number"):
        fit({"a": 1, "late": None}, {"a": 0, "late": 1.0}, "it", rules)


def test_a_leaf_is_named_as_python_would_reach_it_and_entries_of_a_list_have_its_rule() -> None:
    like = {"state": {3: {"exp_avg": [[torch.zeros(1)]]}}}
    saved = {"state": {3: {"exp_avg": [[torch.ones(1)], [-torch.ones(1)]]}}}
    rules = {"exp_avg": Rule(0.0, any_length=True)}
    with pytest.raises(StateError, match=r"^policy\.optimizer\['state'\]\[3\]\['exp_avg'\]\[1\]\[0\] holds a number"):
        fit(saved, like, "policy.optimizer", rules)
