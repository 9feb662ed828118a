"""Random mutations replace one expression or statement each, everywhere in a source, and leave the rest alone."""

from __future__ import annotations

import pytest

from tests.meta.mutation_operators import Mutation, compiles, mutations


def mutated(source: str, kind: str) -> list[str]:
    """All sources that one kind of mutation makes."""
    data = source.encode()
    return [each.apply(data).decode() for each in mutations(data) if each.kind == kind]


@pytest.mark.parametrize(
    ("kind", "source", "expected"),
    [
        ("comparison", "f(a < b)", ["f((a >= b))"]),
        ("comparison", "x = a is not b", ["x = (a is b)"]),
        ("comparison", "x = a < b < c", []),
        ("arithmetic", "x = a + b * c", ["x = (a - b * c)", "x = a + (b / c)"]),
        ("arithmetic", "x -= 1", ["x += 1"]),
        ("constant", "x = 1", ["x = 2"]),
        ("constant", "x = True", ["x = False"]),
        ("constant", "x = 0.5", ["x = 1.5"]),
        ("constant", "x = 'a'", ["x = 'a_'"]),
        ("constant", "x = b'a'", ["x = b'a_'"]),
        ("constant", "x = None", []),
        ("condition", "if a and b: c()", ["if not (a and b): c()"]),
        ("condition", "x = a if b else c", ["x = a if not (b) else c"]),
        (
            "condition",
            "x = [a for a in b if c if d]",
            ["x = [a for a in b if not (c) if d]", "x = [a for a in b if c if not (d)]"],
        ),
        ("return", "def f():\n    return x + 1  # why\n", ["def f():\n    return None  # why\n"]),
        ("return", "def f():\n    return None\n", []),
        ("statement", "a = b\nc(d)\n", ["pass\nc(d)\n", "a = b\npass\n"]),
        ("statement", "def f():\n    return\n", ["def f():\n    pass\n"]),
        ("keyword", "f(a, b=1, c=2)", ["f(a, c=2)", "f(a, b=1)"]),
    ],
)
def test_each_kind_replaces_what_it_is_named_after(kind: str, source: str, expected: list[str]) -> None:
    assert mutated(source, kind) == expected


def test_bytes_before_and_on_the_same_line_stay_in_place() -> None:
    assert mutated("é = 'é', 1\n", "constant") == ["é = 'é_', 1\n", "é = 'é', 2\n"]


def test_a_statement_of_several_lines_is_replaced_as_a_whole() -> None:
    assert mutated("x = f(\n    a,\n    b,\n)\ny = c\n", "statement")[0] == "pass\ny = c\n"


def test_docstrings_and_the_inside_of_f_strings_stay() -> None:
    source = '"""Text."""\ndef f():\n    """Text."""\n    g(f"{a + 1}")\n'
    assert [each.kind for each in mutations(source.encode())] == ["statement"]


def test_bodies_of_functions_run_later_and_all_else_at_import() -> None:
    source = "a = 1\nclass C:\n    b = 2\n    @d(3)\n    def f(self, x=4):\n        return 5\n"
    constants = [each for each in mutations(source.encode()) if each.kind == "constant"]
    assert {each.new: each.at_import for each in constants} == {
        "2": True, "3": True, "4": True, "5": True, "6": False
    }  # fmt: skip


def test_a_mutation_is_described_in_one_line() -> None:
    source = b"x = 0\ny = f(\n    1,\n)\n"
    last = next(each for each in mutations(source) if each.kind == "statement" and each.line == 2)
    assert last == Mutation("statement", 2, 6, 21, "pass", at_import=True)
    assert last.describe(source) == "line 2, statement: y = f( 1, ) -> pass"


def test_what_is_no_module_does_not_compile() -> None:
    assert compiles(b"x = 1\n")
    assert not compiles(b"def f(:\n")
    assert not compiles(b"return 1\n")
