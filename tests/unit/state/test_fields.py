"""Attributes of an object become plain values and come back as they were; another value is refused by its place."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rlcore.errors import StateError
from rlcore.state.fields import (
    Field,
    apply_changes,
    counter_field,
    emptied_field,
    flag_field,
    float_list_field,
    generator_field,
    plan_changes,
    read_fields,
    scalar_field,
    tensor_field,
)
from rlcore.state.schema import describe

MAKERS: dict[str, Callable[[], Field]] = {
    "tensor": lambda: tensor_field("x", (2,)),
    "optional tensor": lambda: tensor_field("x", (2,), optional=True),
    "tensor of integers": lambda: tensor_field("x", (2,), (torch.int64,)),
    "scalar": lambda: scalar_field("x"),
    "list": lambda: float_list_field("x"),
    "flag": lambda: flag_field("x"),
    "flag of another": lambda: flag_field("x", source="y"),
    "counter": lambda: counter_field("x"),
    "optional counter from -1": lambda: counter_field("x", optional=True, minimum=-1),
    "emptied": lambda: emptied_field("x"),
    "generator": lambda: generator_field("x"),
}
"""Made within each test, whose failure then is that of what makes them."""


def restored(field: Field, state: Any) -> Any:
    """The attribute ``x`` of an object that had none, after it took ``state``."""
    owner = SimpleNamespace()
    changes = plan_changes(owner, [field], {"x": state}, "it")
    assert vars(owner) == {}
    apply_changes(changes)
    return owner.x


@pytest.mark.parametrize(
    ("kind", "value", "state"),
    [
        ("tensor", np.array([1.5, np.nan]), torch.tensor([1.5, np.nan], dtype=torch.float64)),
        ("tensor", np.array([1.5, np.inf], np.float32), torch.tensor([1.5, np.inf])),
        ("tensor of integers", np.array([2**62, 1]), torch.tensor([2**62, 1])),
        ("optional tensor", np.array([1.5, np.nan]), torch.tensor([1.5, np.nan], dtype=torch.float64)),
        ("optional tensor", None, None),
        ("scalar", np.float64("nan"), torch.tensor(float("nan"), dtype=torch.float64)),
        ("scalar", np.float16(0.1), torch.tensor(0.1, dtype=torch.float16)),
        ("scalar", None, None),
        ("list", [0.1, float("nan")], torch.tensor([0.1, float("nan")], dtype=torch.float64)),
        ("list", [], torch.tensor([], dtype=torch.float64)),
        *(("flag", value, value) for value in (True, False)),
        *(("counter", value, value) for value in (0, 2**60)),
        *(("optional counter from -1", value, value) for value in (-1, 7, None)),
        ("emptied", None, None),
        ("generator", None, None),
    ],
)
def test_an_attribute_comes_back_with_its_type_and_every_bit(kind: str, value: Any, state: Any) -> None:
    field = MAKERS[kind]()
    (read,) = read_fields(SimpleNamespace(x=value), [field]).values()
    assert (type(read), repr(read)) == (type(state), repr(state))
    assert getattr(read, "dtype", None) == getattr(state, "dtype", None)
    back = restored(field, read)
    assert (type(back), repr(back)) == (type(value), repr(value))
    assert getattr(back, "dtype", None) == getattr(value, "dtype", None)


def test_a_generator_goes_on_where_it_was_read_and_is_another() -> None:
    generator = np.random.default_rng(3)
    field = generator_field("x")
    read: Any = field.read(SimpleNamespace(x=generator))
    back = restored(field, read)
    assert back is not generator
    assert back.random(3).tolist() == generator.random(3).tolist()


@pytest.mark.parametrize(("kind", "value", "state"), [("flag", np.True_, True), ("counter", np.int64(3), 3)])
def test_numbers_of_numpy_are_read_as_those_of_python(kind: str, value: Any, state: Any) -> None:
    read = MAKERS[kind]().read(SimpleNamespace(x=value))
    assert (type(read), read) == (type(state), state)


def test_neither_the_state_nor_what_it_restores_shares_memory() -> None:
    values, field = np.zeros(2), tensor_field("x", (2,))
    read: Any = field.read(SimpleNamespace(x=values))
    back = restored(field, read.requires_grad_())
    values[:], back[:] = 1.0, 2.0
    assert read.tolist() == [0.0, 0.0]


def test_what_is_emptied_is_no_part_of_the_state() -> None:
    assert emptied_field("x").read(SimpleNamespace(x=[1, 2])) is None


def test_a_field_with_a_source_is_read_there_and_written_to_its_own_place() -> None:
    owner = SimpleNamespace(x=False, y=True)
    field = MAKERS["flag of another"]()
    assert read_fields(owner, [field]) == {"x": True}
    apply_changes(plan_changes(owner, [field], {"x": False}, "it"))
    assert vars(owner) == {"x": False, "y": True}


def test_what_the_first_reset_creates_may_be_missing_and_nothing_else() -> None:
    for kind in ("optional tensor", "scalar"):
        assert MAKERS[kind]().read(SimpleNamespace()) is None
    for kind in ("tensor", "optional counter from -1", "generator", "flag"):
        with pytest.raises(AttributeError):
            MAKERS[kind]().read(SimpleNamespace())


FLOATS = "a tensor of torch.float32 or torch.float64 with shape (2,)"


@pytest.mark.parametrize(
    ("kind", "wrong", "wanted"),
    [
        *(("tensor", wrong, FLOATS) for wrong in (None, torch.zeros(2).half(), torch.zeros(3), [0.0, 0.0])),
        ("optional tensor", torch.zeros(2, dtype=torch.int64), FLOATS),
        ("tensor of integers", torch.zeros(2), "a tensor of torch.int64 with shape (2,)"),
        *(("scalar", wrong, "a tensor of floating point numbers with shape ()") for wrong in (torch.zeros(1), 0.5)),
        *(
            ("list", wrong, "a tensor of torch.float64 with shape (0,)")
            for wrong in ([0.5], torch.zeros(2, 1, dtype=torch.float64), torch.tensor(0.5, dtype=torch.float64))
        ),
        ("list", torch.zeros(3), "a tensor of torch.float64 with shape (3,)"),
        ("flag", 1, "True or False"),
        *(("counter", wrong, "an integer of at least 0") for wrong in (-1, None, True)),
        ("optional counter from -1", -2, "an integer of at least -1"),
        ("emptied", [1], "None"),
        ("generator", 3, "a dict"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_place_and_what_is_wanted(
    kind: str, wrong: Any, wanted: str
) -> None:
    with pytest.raises(StateError) as caught:
        restored(MAKERS[kind](), wrong)
    assert str(caught.value).startswith(f"it.x must be {wanted}, and is {describe(wrong)};")


def test_the_attributes_of_a_state_are_those_of_the_fields_and_nothing_is_assigned_before_all_are_checked() -> None:
    owner = SimpleNamespace(a=1, b=2)
    fields = [counter_field("a"), counter_field("b")]
    assert read_fields(owner, fields) == {"a": 1, "b": 2}
    for state, said in [
        ({"a": 5, "c": 6}, r"^it does not fit: missing keys \['b'\], unknown keys \['c'\];"),
        ({"a": 5, "b": -6}, r"^it\.b must be"),
        ([5, 6], r"^it must be a dict"),
    ]:
        with pytest.raises(StateError, match=said):
            plan_changes(owner, fields, state, "it")  # type: ignore[arg-type]
    assert vars(owner) == {"a": 1, "b": 2}
    apply_changes(plan_changes(owner, (field for field in fields), {"b": 6, "a": 5}, "it"))
    assert vars(owner) == {"a": 5, "b": 6}
