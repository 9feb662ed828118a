"""The lines of a reproduction are at most five, and they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tests.meta.tiny_trainers as trainers
from rlverify.checks import subject
from rlverify.checks.engine.subjects import LINES, reproduction
from tests.meta.tiny_trainers import ForgetsPlace, Tiny, TinyAdapter, Unseeded
from tests.meta.tiny_trainers import TinyAdapter as Renamed

RATE = 0.5
OBJECT = object()
in_this_module = lambda: Tiny()  # noqa: E731


class WithArgument(TinyAdapter):
    def __init__(self, folder: str) -> None:
        self.folder = folder


def lines(factory: Any, adapter: Any = None) -> list[str]:
    return reproduction(factory, adapter, "deterministic").splitlines()


FIRST = "from rlverify.checks import check_algorithm, table"


def local(value: float) -> Callable[[], Any]:
    return lambda: (Tiny(), value)


def local_object(value: object) -> Callable[[], Any]:
    return lambda: (Tiny(), value)


def test_a_class_is_imported() -> None:
    assert lines(Tiny, TinyAdapter()) == [
        FIRST,
        "from tests.meta.tiny_trainers import Tiny, TinyAdapter",
        "print(table(check_algorithm(Tiny, adapter=TinyAdapter(), checks=['deterministic'])))",
    ]


@pytest.mark.parametrize(
    ("factory", "imports", "call"),
    [
        (lambda: Tiny(), ["from tests.meta.tiny_trainers import Tiny"], "lambda: Tiny()"),
        (lambda: trainers.Tiny(), ["import tests.meta.tiny_trainers as trainers"], "lambda: trainers.Tiny()"),
        (lambda: Renamed(), ["from tests.meta.tiny_trainers import TinyAdapter as Renamed"], "lambda: Renamed()"),
        (lambda: [RATE, len("a")], ["RATE = 0.5"], "lambda: [RATE, len('a')]"),
        (lambda: 3, [], "lambda: 3"),
        (
            lambda: {
                "a": Tiny(),
            },
            ["from tests.meta.tiny_trainers import Tiny"],
            "lambda: {'a': Tiny()}",
        ),
        (in_this_module, ["from tests.unit.checks.test_reproduction import in_this_module"], "in_this_module"),
        (local(0.1), ["from tests.meta.tiny_trainers import Tiny", "value = 0.1"], "lambda: (Tiny(), value)"),
        (lambda: (lambda: 4), [], "lambda: lambda: 4"),
    ],
)  # fmt: skip
def test_a_lambda_is_written_out(factory: Any, imports: list[str], call: str) -> None:
    assert lines(factory) == [FIRST, *imports, f"print(table(check_algorithm({call}, checks=['deterministic'])))"]


@pytest.mark.parametrize(
    ("factory", "adapter"),
    [
        (local_object(object()), None),
        (lambda: OBJECT, None),
        (local(0.1).__call__, None),
        (Tiny, WithArgument("a")),
        (subject(Tiny()).factory, None),
        (lambda: unknown_name(), None),  # type: ignore[name-defined]  # noqa: F821
        (eval("lambda: 1"), None),  # noqa: S307
        (type("Local", (), {}), None),
    ],
    ids=["object", "global object", "method", "adapter", "instance", "unknown", "no source", "local class"],
)
def test_what_cannot_be_written_says_where_it_is(factory: Any, adapter: Any) -> None:
    (line,) = lines(factory, adapter)
    assert line.startswith("# run check_algorithm with checks=['deterministic'] on the factory in ")


def test_two_lambdas_in_one_line_are_told_apart() -> None:
    first, second = lambda: Tiny(), lambda: ForgetsPlace()
    assert "lambda: Tiny()" in lines(first)[-1]
    assert "lambda: ForgetsPlace()" in lines(second)[-1]


def test_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    made = subject(lambda: Unseeded(), adapter=TinyAdapter(), name="mine")
    text = made.reproduction("deterministic")
    assert len(text.splitlines()) <= LINES
    exec(text, {})  # noqa: S102
    assert "deterministic  fail" in capsys.readouterr().out
