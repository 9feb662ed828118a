"""Every kind of state is seen, compared, and copied from one object to another."""

from __future__ import annotations

import copy
import enum
import random
import threading
import types
from collections import OrderedDict, UserDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing import Process
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlverify.checks.state.trained import found_modules, found_optimizers, reachable_tensors
from rlverify.checks.state.tree import Difference, differences, find, leaf_of, put, walk

Pair = namedtuple("Pair", "left right")


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Plain:
    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


class Slots:
    __slots__ = ("__hidden", "__weakref__", "shown", "unfilled")

    def __init__(self, hidden: int) -> None:
        self.__hidden = hidden
        self.shown = 1


class SlotsBelow(Slots):
    __slots__ = ("__dict__", "below")

    def __init__(self, hidden: int) -> None:
        super().__init__(hidden)
        self.below, self.loose = hidden, hidden


@dataclass(frozen=True)
class Frozen:
    value: int


class Named(dict[str, int]):
    """A dictionary with an attribute."""


class Listed(list[int]):
    """A list with an attribute."""


class Guarded:
    """Looks at everything that is set from outside."""

    def __init__(self, value: int) -> None:
        vars(self)["value"] = value

    def __setattr__(self, name: str, value: Any) -> None:
        raise TypeError(f"{name} cannot be set")


def with_attribute(made: Any, value: int) -> Any:
    made.extra = value
    return made


def closure(value: int) -> Callable[[], int]:
    def read() -> int:
        return value

    return read


def with_default(value: list[int]) -> Callable[[], list[int]]:
    def read(kept: list[int] = value) -> list[int]:
        return kept

    return read


def module(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))


def optimizer(lr: float, *, stepped: bool = True) -> torch.optim.Optimizer:
    parameter = torch.nn.Parameter(torch.ones(2))
    found = torch.optim.Adam([{"params": [parameter], "lr": lr}], betas=(0.5, lr))
    if stepped:
        parameter.grad = torch.full((2,), lr)
        found.step()
    return found


def objects(value: int) -> np.ndarray[Any, Any]:
    array = np.empty((1, 2), dtype=object)
    array[0, 0], array[0, 1] = Plain(value=value), value
    return array


def torch_generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def kinds() -> dict[str, tuple[Any, Any]]:
    """Two values of every kind that differ; made from scratch, because functions are changed and cannot be copied."""
    return {
        "none": (None, 0),
        "bool": (True, False),
        "bool and int": (True, 1),
        "int": (1, 2),
        "float": (0.1, 0.1 + 1e-17 + 2**-55),
        "zeros": (0.0, -0.0),
        "not a number": (float("nan"), 1.0),
        "complex": (1 + 2j, 1 + 3j),
        "text": ("a", "b"),
        "long text": ("a" * 5000 + "b", "a" * 5000 + "c"),
        "bytes": (b"a", b"b"),
        "bytearray": (bytearray(b"a"), bytearray(b"b")),
        "enum": (Colour.RED, Colour.BLUE),
        "class": (int, float),
        "range": (range(3), range(4)),
        "slice": (slice(3), slice(4)),
        "path": (Path("a"), Path("b")),
        "torch type": (torch.float32, torch.float64),
        "device": (torch.device("cpu"), torch.device("meta")),
        "numpy type": (np.dtype("f4"), np.dtype("f8")),
        "numpy number": (np.float32(1), np.float32(2)),
        "array": (np.arange(3), np.arange(1, 4)),
        "array type": (np.zeros(2, dtype="f4"), np.zeros(2, dtype="f8")),
        "array type that would be rounded": (np.full(2, 0.5), np.zeros(2, dtype=int)),
        "array shape": (np.zeros((2, 3)), np.zeros((3, 2))),
        "0-dimensional array": (np.array(True), np.array(False)),
        "empty array": (np.zeros((0, 2)), np.zeros((0, 3))),
        "array beyond what is printed": (np.arange(5000), np.where(np.arange(5000) == 2500, 0, np.arange(5000))),
        "array of text": (np.array(["a"]), np.array(["b"])),
        "array of dates": (np.array(["2020-01-01"], dtype="M8[D]"), np.array(["2020-01-02"], dtype="M8[D]")),
        "array of fields": (np.zeros(1, dtype=[("a", "i4")]), np.ones(1, dtype=[("a", "i4")])),
        "array with a step": (np.arange(6)[::2], np.arange(1, 7)[::2]),
        "masked array": (np.ma.array([1, 2], mask=[True, False]), np.ma.array([1, 2], mask=[False, False])),
        "array of objects": (objects(1), objects(2)),
        "0-dimensional array of objects": (np.array(None, dtype=object), np.array(1, dtype=object)),
        "empty array of objects": (np.empty((0, 1), dtype=object), np.empty((0, 2), dtype=object)),
        "array that cannot be written": (np.broadcast_to(np.int64(1), 3), np.broadcast_to(np.int64(2), 3)),
        "tensor": (torch.arange(3.0), torch.arange(1.0, 4.0)),
        "tensor of bool": (torch.tensor([True]), torch.tensor([False])),
        "tensor of bfloat16": (torch.ones(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.bfloat16)),
        "tensor of complex": (torch.ones(2, dtype=torch.complex64).conj(), torch.zeros(2, dtype=torch.complex64)),
        "tensor of int": (torch.tensor([1]), torch.tensor([2])),
        "0-dimensional tensor": (torch.tensor(1.0), torch.tensor(2.0)),
        "empty tensor": (torch.zeros(0), torch.zeros(0, 1)),
        "tensor type": (torch.zeros(2), torch.zeros(2).double()),
        "tensor not a number": (torch.tensor(float("nan")), torch.tensor(0.0)),
        "sparse tensor": (torch.eye(2).to_sparse(), torch.ones(2, 2).to_sparse()),
        "tensor with a history": (torch.ones(1, requires_grad=True) * 2, torch.ones(2, requires_grad=True) * 3),
        "Python generator": (random.Random(1), random.Random(2)),
        "NumPy generator": (np.random.default_rng(1), np.random.default_rng(2)),
        "NumPy bit generator": (np.random.MT19937(1), np.random.MT19937(2)),
        "old NumPy generator": (np.random.RandomState(1), np.random.RandomState(2)),
        "torch generator": (torch_generator(1), torch_generator(2)),
        "set": ({1, 2}, {1, 3}),
        "frozen set": (frozenset("ab"), frozenset("ac")),
        "list": ([1, 2], [1, 3]),
        "list length": ([1, 2], [1]),
        "list without items": ([], [1]),
        "list of many numbers": (list(range(2000)), list(range(1, 2001))),
        "tuple": ((1, 2), (1, 3)),
        "tuple in tuple": ((1, (2, 3)), (0, (4, 5))),
        "named tuple": (Pair(1, 2), Pair(3, 4)),
        "queue": (deque([1], maxlen=2), deque([2], maxlen=2)),
        "queue limit": (deque([1], maxlen=2), deque([1], maxlen=3)),
        "dictionary": ({"a": 1, "b": 2}, {"a": 1, "c": 3}),
        "order of keys": (OrderedDict(a=1), OrderedDict(a=2)),
        "default dictionary": (defaultdict(int, a=1), defaultdict(int)),
        "mapping with attributes": (UserDict(a=1), UserDict(a=2)),
        "odd keys": ({None: 1, (1, "a"): 2, Colour.RED: 3, 1.5: 4}, {None: 2, (1, "a"): 3, Colour.RED: 4, 1.5: 5}),
        "keys with brackets": ({"a.b[0]'": 1}, {"a.b[0]'": 2}),
        "dictionary with an attribute": (with_attribute(Named(a=1), 1), with_attribute(Named(a=1), 2)),
        "list with an attribute": (with_attribute(Listed([1]), 1), with_attribute(Listed([1]), 2)),
        "object": (Plain(a=1), Plain(a=2)),
        "object with more": (Plain(a=1, b=2), Plain(a=1)),
        "object with less": (Plain(a=1), Plain(a=1, b=2)),
        "object without anything": (Plain(), Plain(a=1)),
        "other class": (Plain(a=1), types.SimpleNamespace(a=1)),
        "slots": (Slots(1), Slots(2)),
        "slots of both classes": (SlotsBelow(1), SlotsBelow(2)),
        "frozen object": (Frozen(1), Frozen(2)),
        "guarded object": (Guarded(1), Guarded(2)),
        "closure": (closure(1), closure(2)),
        "default value of a function": (with_default([1]), with_default([2])),
        "attribute of a function": (with_attribute(closure(1), 1), with_attribute(closure(1), 2)),
        "function": (len, max),
        "method": (Plain(a=1).__init__, Plain(a=2).__init__),
        "method of a list": ([1].append, [2].append),
        "other method": (deque([1]).append, deque([1]).pop),
        "partial": (partial(print, 1, end="a"), partial(print, 2, end="b")),
        "partial of another": (partial(print), partial(len)),
        "module": (module(1), module(2)),
        "optimizer": (optimizer(0.1), optimizer(0.2)),
        "optimizer that has not stepped": (optimizer(0.1), optimizer(0.1, stepped=False)),
        "optimizer that has stepped": (optimizer(0.1, stepped=False), optimizer(0.1)),
    }


KINDS = list(kinds())


def texts(root: Any) -> dict[str, str]:
    return {path: leaf.digest for path, leaf in walk(root).items()}


def held(value: Any) -> Plain:
    """An object with the value in a place where it can be replaced, next to something else."""
    return Plain(value=value, other=1)


def copied(value: Any) -> Plain:
    """A copy; of what `deepcopy` cannot copy or shares, the value itself."""
    return copy.deepcopy(held(value)) if not (torch.is_tensor(value) and not value.is_leaf) else held(value)


@pytest.mark.parametrize("kind", KINDS)
class TestEveryKind:
    def test_a_copy_is_equal(self, kind: str) -> None:
        for value in kinds()[kind]:
            assert differences(held(value), copied(value)) == []
            assert texts(held(value)) == texts(copied(value))

    def test_a_difference_is_seen(self, kind: str) -> None:
        first, second = map(copied, kinds()[kind])
        found = differences(first, second)
        assert found
        assert all(each.path.startswith("value") for each in found)
        assert all(each.first != each.second or each.first for each in found)

    def test_a_digest_shows_the_difference(self, kind: str) -> None:
        if kind in ("queue limit", "other class", "list without items", "other method"):
            pytest.skip("differs in what is no leaf")
        first, second = map(copied, kinds()[kind])
        assert texts(first) != texts(second)

    def test_restoring_makes_equal_and_changes_the_second_alone(self, kind: str) -> None:
        first, second = map(copied, kinds()[kind])
        before = texts(first)
        if kind == "other method":
            pytest.skip("deepcopy makes no copy of a method of a built-in object")
        for each in differences(first, second):
            each.restore()
        assert differences(first, second) == []
        assert texts(second) == texts(first) == before

    def test_what_was_restored_is_a_copy(self, kind: str) -> None:
        first, second = map(copied, kinds()[kind])
        for each in differences(first, second):
            each.restore()
        array = first.value
        if isinstance(array, np.ndarray) and not array.dtype.hasobject and array.size:
            assert not np.shares_memory(array, second.value)
        if torch.is_tensor(array) and array.layout is torch.strided and array.numel():
            assert array.data_ptr() != second.value.data_ptr()

    def test_every_path_can_be_found(self, kind: str) -> None:
        root = held(kinds()[kind][0])
        for path, leaf in walk(root).items():
            found = leaf_of(find(root, path)[0])
            assert found is not None
            assert found.digest == leaf.digest

    def test_a_leaf_can_be_put(self, kind: str) -> None:
        first, second = map(copied, kinds()[kind])
        shared = {path for path in texts(first) if texts(second).get(path, texts(first)[path]) != texts(first)[path]}
        for path in shared:
            put(second, path, find(first, path)[0])
        assert {path for path in shared if texts(second)[path] != texts(first)[path]} == set()


def test_paths_are_those_of_attributes_keys_and_indices() -> None:
    root = Plain(env=Plain(envs=[Plain(state=1)]), data={"a": (2,)})
    assert set(walk(root)) == {"env.envs[0].state", "data['a'][0]"}


def test_the_shortest_path_of_a_shared_object_counts() -> None:
    shared = Plain(value=1)
    assert list(walk(Plain(long=[[shared]], short=shared))) == ["short.value"]


@pytest.mark.parametrize(
    "shared", [np.zeros(1), torch.zeros(1), np.random.default_rng(0)], ids=["array", "tensor", "rng"]
)
def test_a_shared_leaf_counts_once(shared: Any) -> None:
    assert list(walk(Plain(a=shared, b=shared))) == ["a"]
    assert list(walk(Plain(a=shared, b=copy.deepcopy(shared)))) == ["a", "b"]


def test_a_shared_leaf_differs_once() -> None:
    first, second = np.zeros(1), np.ones(1)
    assert [each.path for each in differences([first, first], [second, second])] == ["[0]"]


def test_cycles_end() -> None:
    first, second = Plain(value=1), Plain(value=2)
    first.itself, second.itself = first, second
    assert list(walk(first)) == ["value"]
    assert [each.path for each in differences(first, second)] == ["value"]
    items: list[Any] = [1]
    items.append(items)
    assert list(walk(items)) == ["[0]"]


def test_objects_made_on_access_are_not_mistaken_for_each_other() -> None:
    class Chain(dict[str, Any]):
        """Makes its item when it is asked for, so that nothing else keeps it alive."""

        def __getitem__(self, key: str) -> Any:
            return Chain({f"{key}x": None}) if len(key) < 8 else 1

    assert list(walk(Chain(x=None))) == ["".join(f"['{'x' * length}']" for length in range(1, 9))]


def test_keys_of_one_text_hide_no_other() -> None:
    root = {float("nan"): 1, float("nan"): 2}
    assert {path: leaf.text for path, leaf in walk(root).items()} == {"[nan]": "1", "[#1]": "2"}


def test_keys_that_print_an_address_are_numbered_and_hide_no_other() -> None:
    root = {object(): "first", 0: "second", (object(),): "third"}
    assert {path: leaf.text for path, leaf in walk(root).items()} == {
        "[#0]": "'first'",
        "[0]": "'second'",
        "[#2]": "'third'",
    }


def test_a_function_of_a_library_is_a_leaf_by_its_name() -> None:
    leaf = leaf_of(torch.nn.functional.relu)
    assert leaf is not None
    assert (leaf.text, leaf.opaque) == ("torch.nn.functional.relu", False)
    module_leaf = leaf_of(np)
    assert module_leaf is not None
    assert module_leaf.text == "numpy"


@pytest.mark.parametrize(
    "node", [threading.Lock(), object(), iter([1]), {object()}, torch.zeros(1, device="meta"), Process()]
)
def test_what_cannot_be_seen_is_opaque(node: Any) -> None:
    leaf = leaf_of(node)
    assert leaf is not None
    assert leaf.opaque


class RaisesClass:
    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("not ready")


class RaisesDictionary:
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise SystemExit(1)


class RaisesItems(dict[str, int]):
    def __getitem__(self, key: str) -> int:
        raise ValueError(key)


class RaisesRepr:
    def __init__(self) -> None:
        self.value = 1

    def __repr__(self) -> str:
        raise ValueError

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        raise ValueError

    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError(name)


@pytest.mark.parametrize("make", [RaisesClass, RaisesDictionary, lambda: torch.nn.LazyLinear(1).weight])
def test_an_object_that_raises_is_an_opaque_leaf(make: Callable[[], Any]) -> None:
    node = make()
    leaf = leaf_of(node)
    assert leaf is not None
    assert (leaf.opaque, "cannot be read" in leaf.text) == (True, True)
    assert list(walk([node, 1]))[:2] == ["[0]", "[1]"]
    assert differences([node], [node]) == []


def test_a_mapping_that_raises_hides_nothing_else() -> None:
    assert list(walk([RaisesItems(a=1), 2])) == ["[1]"]


def test_neither_text_nor_equality_of_an_object_is_used() -> None:
    assert list(walk(RaisesRepr())) == ["value"]
    assert differences(RaisesRepr(), RaisesRepr()) == []


def test_a_dead_reference_is_a_leaf() -> None:
    import weakref

    proxy = weakref.proxy(Plain())
    assert list(walk([proxy])) == ["[0]"]


def test_printing_options_do_not_hide_a_difference() -> None:
    first, second = np.random.RandomState(1), np.random.RandomState(1)
    state = second.get_state(legacy=False)
    state["state"]["key"][300] += 1
    second.set_state(state)
    with np.printoptions(threshold=5, precision=1):
        assert leaf_of(first) != leaf_of(second)
        assert leaf_of(np.float64(0.123456)) != leaf_of(np.float64(0.123457))


def test_the_text_of_a_class_of_the_caller_is_not_used() -> None:
    class Odd(int):
        def __repr__(self) -> str:
            return f"at {id(self)}"

    assert leaf_of(Odd(3)) == leaf_of(Odd(3))
    assert leaf_of(Odd(3)) != leaf_of(Odd(4))


def test_restoring_in_place_keeps_the_object() -> None:
    first, second = Plain(a=np.ones(2), t=torch.ones(2)), Plain(a=np.zeros(2), t=torch.zeros(2))
    array, tensor = second.a, second.t
    for each in differences(first, second):
        each.restore()
    assert second.a is array
    assert second.t is tensor
    assert (array.tolist(), tensor.tolist()) == ([1, 1], [1, 1])


def test_a_copy_refers_to_the_objects_of_the_second() -> None:
    first = Plain(env=Plain(state=1), wrapped=None)
    first.wrapped = [first.env]
    second = Plain(env=Plain(state=1), wrapped=[])
    for each in differences(first, second):
        each.restore()
    assert second.wrapped[0] is second.env


def test_restored_parts_share_what_the_first_shares() -> None:
    shared = Plain(value=1)
    first, second = Plain(a=[shared], b=[shared]), Plain(a=[], b=[])
    for each in differences(first, second):
        each.restore()
    assert second.a[0] is second.b[0]
    assert second.a[0] is not shared


def test_one_item_of_a_tuple_can_be_restored_without_the_other() -> None:
    first, second = Plain(value=(1, 2, (3, 4))), Plain(value=(5, 6, (7, 8)))
    by_path = {each.path: each for each in differences(first, second)}
    by_path["value[2][1]"].restore()
    by_path["value[0]"].restore()
    assert second.value == (1, 6, (7, 4))


def test_a_frozen_mapping_cannot_be_restored() -> None:
    found = differences(Plain(a=types.MappingProxyType({"x": 1})), Plain(a=types.MappingProxyType({"x": 2})))
    with pytest.raises(TypeError):
        found[0].restore()


def test_the_root_cannot_be_replaced() -> None:
    (found,) = differences(1, 2)
    with pytest.raises(TypeError, match="as a whole cannot be replaced"):
        found.restore()


def test_the_root_can_change_in_place() -> None:
    array = np.zeros(2)
    put(array, "", np.ones(2))
    assert array.tolist() == [1, 1]


@pytest.mark.parametrize("path", ["missing", "value[3]", "value.other", "valu"])
def test_a_path_that_does_not_exist_is_an_error(path: str) -> None:
    with pytest.raises(KeyError):
        find(Plain(value=[1]), path)


def test_the_order_of_differences_is_that_of_the_objects() -> None:
    names = [f"name{number}" for number in range(30)]
    found = differences(Plain(**dict.fromkeys(names, 1)), Plain(**dict.fromkeys(names, 2)))
    assert [each.path for each in found] == names


def test_a_difference_says_both_values() -> None:
    (found,) = differences(Plain(a=[1]), Plain(a="x" * 100))
    assert isinstance(found, Difference)
    assert (found.path, found.first, found.second) == ("a", "list of 1 parts", "'" + "x" * 56 + "...")
    assert [(each.first, each.second) for each in differences({"a": 1}, {"b": 2})] == [("1", ""), ("", "2")]


def test_the_hooks_of_a_module_are_left_out() -> None:
    made = torch.nn.Linear(1, 1)
    before = set(walk(made))
    made.register_forward_hook(lambda *_: None)
    assert set(walk(made)) == before
    assert {"weight", "bias", "in_features"} <= before


def test_a_parameter_is_counted_by_its_module_and_named_by_its_optimizer() -> None:
    made = torch.nn.Linear(1, 1)
    root = {"model": made, "optimizer": torch.optim.SGD(made.parameters(), lr=0.5)}
    found = walk(root)
    assert found["['optimizer'].param_groups[0]['lr']"].text == "0.5"
    assert [leaf.text for path, leaf in found.items() if "params" in path] == ["['model'].weight, ['model'].bias"]


def test_nothing_global_is_used_or_changed() -> None:
    before = (
        random.getstate(),
        np.random.get_state(legacy=False)["state"]["key"].tolist(),
        torch.get_rng_state().tolist(),
    )
    first, second = Plain(m=module_without_seed()), Plain(m=module_without_seed())
    between = torch.get_rng_state().tolist()
    for each in differences(first, second):
        each.restore()
    walk(first)
    assert torch.get_rng_state().tolist() == between
    assert random.getstate() == before[0]
    assert np.random.get_state(legacy=False)["state"]["key"].tolist() == before[1]


def module_without_seed() -> torch.nn.Module:
    return torch.nn.Linear(2, 2)


def test_modules_are_found_next_to_what_cannot_be_read() -> None:
    layer = torch.nn.Linear(1, 1)
    optimizer = torch.optim.Adam(layer.parameters())
    model = [RaisesClass(), layer, optimizer]
    assert (found_modules(model), found_optimizers(model)) == ([layer], [optimizer])
    assert {id(each) for each in layer.parameters()} <= reachable_tensors(model)
