"""Digests ignore the names of local variables, and detect every change of what a program does."""

from __future__ import annotations

import argparse
import ast
import csv
import dataclasses
import difflib
import functools
import heapq
import itertools
import json.decoder
import random
import re
import shutil
import statistics
import string
import symtable
import tarfile
import textwrap
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rlverify.project.canonical import canonical
from rlverify.project.fingerprint import code_parts
from tests.meta.code_equality import are_alike
from tests.meta.random_programs import changed_names, random_function, renamed

MODULES: tuple[ModuleType, ...] = (
    argparse, csv, dataclasses, difflib, functools, heapq, json.decoder, random, shutil, statistics, string, tarfile,
    textwrap, zipfile,
)  # fmt: skip
_READS_NAMES = re.compile(r"\b(locals|vars|dir|eval|exec)\b")


def _text(source: str) -> str:
    return canonical(ast.parse(textwrap.dedent(source)))


@pytest.mark.parametrize("body", ["'A docstring.'", "return 1"])
def test_without_bodies_functions_are_alike_whatever_they_do(body: str) -> None:
    assert canonical(ast.parse(f"def f(a): {body}"), bodies=False) == canonical(
        ast.parse("def f(a): pass"), bodies=False
    )


@pytest.mark.parametrize(
    "source",
    [
        "def f(a):\n x = a\n return x",
        "def f(a):\n for x in a:\n  x += 1\n else:\n  del x",
        "def f(a):\n with a as (x, *b), x as c:\n  return x",
        "def f(a):\n try:\n  a()\n except E as x:\n  raise a from x",
        "def f(a):\n x: int\n x = a",
        "def f(a):\n return [x for x in a if x]",
        "def f(a):\n return {x: k for k, (x, *z) in a for z in x}",
        "def f(a):\n return [b for a.b[0], x in a if x]",
        "v = [x for x in a if x]",
        "def f(a, b):\n return [[x + z for z in b] for x in a]",
        "def f(a):\n return [0 for *x, z in a]",
        "def f(a):\n x = a.eval()\n a.b.eval()\n return x",
        "def f(a):\n if x := a:\n  return x",
        "def f(a):\n b = any((x := each) for each in a)\n return x",
        "def f(a):\n @(x := a)\n def g(b=x): return b\n return x",
        "def f(a):\n class A((x := a)): pass\n return x",
        "def f(a):\n g = lambda b=(x := a): b\n return x",
        "def f():\n x = 0\n def g():\n  nonlocal x\n  x += 1\n return g, x",
        "def f():\n x = 0\n return lambda: x",
        "def f():\n x = 0\n def g(a: x, b=x) -> x: return x",
        "def f():\n x = B\n @x\n class A(x):\n  b = x\n  def m(self): return x, [x for _ in x]",
        "class A:\n def m(self):\n  x = self\n  return x",
        "def f():\n x = 0\n return f'{x:{x}}', a[x:x]",
        "async def f(a):\n async with a as x:\n  await x\n return [x async for x in a]",
        "def f():\n x = 0\n match x:\n  case 0 if x: return x",
    ],
)
def test_the_name_of_a_local_variable_does_not_matter(source: str) -> None:
    other = renamed(source, {"x": "y"})
    assert other != ast.unparse(ast.parse(source))
    assert _text(source) == _text(other)


def test_the_text_of_a_comprehension_has_all_its_parts() -> None:
    """Worked out by hand from what `canonical` says."""
    expected = (
        "ListComp(elt=Name(id=str:'0'),generators=[comprehension(is_async=int:0,iter=Name(id=str:'a'),"
        "target=Name(id=str:'0')),comprehension(is_async=int:0,iter=Name(id=str:'0'),target=Name(id=str:'1'))])"
    )
    assert canonical(ast.parse("[x for x in a for y in x]", mode="eval").body) == expected


def test_a_variable_of_a_function_inside_is_its_own() -> None:
    source = "def f(x):\n def g():\n  x = 0\n  return x\n return x, lambda: (x := 1)"
    other = "def f(x):\n def g():\n  y = 0\n  return y\n return x, lambda: (z := 1)"
    assert _text(source) == _text(other)
    assert _text(source) != _text(other.replace("return y", "return x"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1", "y = 1"),
        ("try: a()\nexcept E as x: pass", "try: a()\nexcept E as y: pass"),
        ("def f():\n from a import x as z\n x = 1", "def f():\n from a import y as z\n y = 1"),
        ("def f(x): return x", "def f(y): return y"),
        ("def f(*x): return x", "def f(*y): return y"),
        ("def f(*, x=1): return x", "def f(*, y=1): return y"),
        ("lambda x: x", "lambda y: y"),
        ("def f(): return x", "def f(): return y"),
        ("def f():\n global x\n x = 1", "def f():\n global y\n y = 1"),
        ("def f():\n global x\n x = 1", "def f():\n x = 1"),
        ("def f(a): return a.x", "def f(a): return a.y"),
        ("def f(a): return a(x=1)", "def f(a): return a(y=1)"),
        ("def f(a):\n class A:\n  x = 1", "def f(a):\n class A:\n  y = 1"),
        ("def f():\n def x(): pass", "def f():\n def y(): pass"),
        ("def f():\n import x", "def f():\n import y"),
        ("def f():\n from a import x", "def f():\n from a import y"),
        ("def f(a, b):\n x, y = a, b\n return x - y", "def f(a, b):\n x, y = a, b\n return y - x"),
        ("def f(a, b):\n x, y = a, b\n return x, y", "def f(a, b):\n x, y = a, b\n return x, x"),
        ("def f(a, b):\n x, y = a, b\n return x, y", "def f(a, b):\n x, x = a, b\n return x, x"),
        ("def f(a):\n x = a\n return x, x", "def f(a):\n x = a\n return x, y"),
        ("def f(a):\n x = a\n return x", "def f(a):\n x = a\n return a"),
        ("def f(a):\n x = 1\n y = 2\n return x", "def f(a):\n y = 2\n x = 1\n return x"),
        ("def f(a): a.b(); a.c()", "def f(a): a.c(); a.b()"),
        ("def f(a=1): pass", "def f(a=2): pass"),
        ("def f(a, *, b=1): pass", "def f(a, b=1): pass"),
        ("@a\ndef f(): pass", "@b\ndef f(): pass"),
        ("@a\n@b\ndef f(): pass", "@b\n@a\ndef f(): pass"),
        ("def f(): pass", "async def f(): pass"),
        ("def f(): return 1", "def f(): return True"),
        ("def f(): return -0.0", "def f(): return 0.0"),
        ("def f(): return 'a'", "def f(): return b'a'"),
        ("def f(): return f'{a}'", "def f(): return f'{a!r}'"),
        ("[x for x in x]", "[y for y in y]"),
        ("[x for x in x]", "[y for y in x if x]"),
        ("[x for x in a if x]", "[x for x in a if y]"),
        ("def f(x): return [x for x in x]", "def f(x): return [x for y in x]"),
        ("def f():\n x = 1\n return [x for x in x]", "def f():\n x = 1\n return [y for y in y]"),
        ("def f():\n x = 1\n return [0 for z in x]", "def f():\n x = 1\n return [0 for z in z]"),
        ("[z for y in a for z in y]", "[z for z in a for y in z]"),
        ("[b for a.b in x]", "[c for a.b in x]"),
        ("def f():\n x = 1\n return eval('x')", "def f():\n y = 1\n return eval('x')"),
        ("def f():\n x = 1\n return locals()", "def f():\n y = 1\n return locals()"),
        ("def f():\n x = 1\n return builtins.locals()", "def f():\n y = 1\n return builtins.locals()"),
        ("def f():\n x = 1\n return frame().f_locals", "def f():\n y = 1\n return frame().f_locals"),
        ("def f():\n x = 1\n def g(): return x, eval('x')", "def f():\n y = 1\n def g(): return y, eval('x')"),
        ("def f():\n x = 1\n return [vars() for x in x]", "def f():\n x = 1\n return [vars() for y in x]"),
        ("[eval('x') for x in a]", "[eval('x') for y in a]"),
        ("def f():\n x = 1\n return f'{x=}'", "def f():\n y = 1\n return f'{y=}'"),
        ("def f():\n __tracebackhide__ = True", "def f():\n y = True"),
        ("class A:\n def m(self):\n  __x = 1\n  return _A__x", "class A:\n def m(self):\n  y = 1\n  return _A__x"),
        (
            "def f():\n x = 1\n class A:\n  x = 2\n  def m(self): return x",
            "def f():\n y = 1\n class A:\n  x = 2\n  def m(self): return x",
        ),
        (
            "def f():\n x = 1\n class A(x):\n  x = 2",
            "def f():\n y = 1\n class A(x):\n  x = 2",
        ),
        (
            "def f():\n x = 1\n class A:\n  x = 2\n  b = [x for _ in a]",
            "def f():\n y = 1\n class A:\n  x = 2\n  b = [x for _ in a]",
        ),
        (
            "def f():\n x = 1\n class A:\n  global x\n  print(x)",
            "def f():\n y = 1\n class A:\n  global y\n  print(y)",
        ),
        (
            "def h():\n x = 0\n def f():\n  x = 1\n  class A:\n   nonlocal x\n   x = 2",
            "def h():\n x = 0\n def f():\n  y = 1\n  class A:\n   nonlocal x\n   x = 2",
        ),
        (
            "def h():\n x = 0\n def f():\n  x = 1\n  def g():\n   nonlocal x\n   import x",
            "def h():\n x = 0\n def f():\n  y = 1\n  def g():\n   nonlocal x\n   import x",
        ),
        (
            "def f():\n v = [(lambda: (x := 1)) for _ in a]\n return x",
            "def f():\n v = [(lambda: (y := 1)) for _ in a]\n return y",
        ),
        ("def f():\n x = 1\n def g():\n  x = 2", "def f():\n x = 1\n def g():\n  nonlocal x\n  x = 2"),
        ("def f():\n x = 1\n def g(): return x", "def f():\n x = 1\n def g(x): return x"),
        (
            "def f():\n x = 1\n def g():\n  global x\n  return x",
            "def f():\n y = 1\n def g():\n  global y\n  return y",
        ),
        (
            "def f():\n x, y = 1, 2\n def g():\n  nonlocal x\n  x = 3",
            "def f():\n x, y = 1, 2\n def g():\n  nonlocal y\n  y = 3",
        ),
        ("def f():\n x = 1\n def g():\n  x = x", "def f():\n y = 1\n def g():\n  x = y"),
        ("def f(a):\n try: a()\n except E as x: x", "def f(a):\n try: a()\n except E as x: y"),
        ("def f(a):\n match a:\n  case [x, *y]: pass", "def f(a):\n match a:\n  case [y, *x]: pass"),
    ],
)
def test_whatever_may_change_the_meaning_matters(one: str, other: str) -> None:
    assert _text(one) != _text(other)


def test_every_pair_of_small_programs_with_one_text_does_the_same() -> None:
    """With each way to give three names to the variables of scopes that may hide a name from another."""
    templates = (
        "def f():\n {} = 1\n def g():\n  {} = 2\n  return {}",
        "def f():\n {} = 1\n class A:\n  {} = 2\n  def m(self): return {}",
        "def f():\n {} = 1\n return [{} for {} in {}]",
        "def f():\n {} = 1\n return lambda {}={}: {}",
    )
    names = ("a", "b", "c")
    for template in templates:
        count = template.count("{}")
        programs = [
            template.format(*(names[place // 3 ** (count - 1 - each) % 3] for each in range(count)))
            for place in range(3**count)
        ]
        texts = {program: _text(program) for program in programs}
        for one, other in itertools.product(programs[: len(programs) // 3], programs):  # the first name is an "a"
            assert (texts[one] == texts[other]) == are_alike(one, other), f"{one}\n\n{other}"


@given(st.integers(min_value=0))
def test_programs_with_one_text_do_the_same(seed: int) -> None:
    """Of random functions, with names exchanged at random."""
    source = random_function(random.Random(seed))
    other = changed_names(source, random.Random(seed + 1))
    assume(_compiles(source) and _compiles(other))
    if _text(source) == _text(other):
        assert are_alike(source, other)


def _compiles(source: str) -> bool:
    try:
        compile(source, "<source>", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


@functools.cache
def _functions() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """(source, its ordinary local variables) of the functions of some modules; two variables at least."""
    found = []
    for module in MODULES:
        assert module.__file__ is not None
        for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                source = ast.unparse(node)
                names = tuple(_locals_of(source))
                if len(names) > 1 and _compiles(source) and not _READS_NAMES.search(source):
                    found.append((source, names))
    return tuple(found)


def _locals_of(source: str) -> Iterator[str]:
    try:
        (table,) = symtable.symtable(source, "<source>", "exec").get_children()
    except (SyntaxError, ValueError):  # a method that reads a variable of the function around its class, or of a class
        return
    for each in table.get_symbols():
        special = each.is_parameter() or each.is_imported() or each.is_namespace() or "__" in each.get_name()
        if each.is_local() and not special:
            yield each.get_name()


def test_there_are_functions_to_rename_in() -> None:
    assert len(_functions()) > 200


@given(st.data())
def test_a_local_variable_of_a_real_function_may_have_any_fresh_name(data: st.DataObject) -> None:
    source, names = data.draw(st.sampled_from(_functions()))
    name = data.draw(st.sampled_from(names))
    other = renamed(source, {name: f"{name}_"})
    assert (_text(source) == _text(other)) == are_alike(source, other)


@given(st.data())
def test_a_local_variable_of_a_real_function_may_not_have_the_name_of_another(data: st.DataObject) -> None:
    source, names = data.draw(st.sampled_from(_functions()))
    name, taken = data.draw(st.permutations(names))[:2]
    assert _text(source) != _text(renamed(source, {name: taken}))


@given(st.data())
def test_one_use_of_a_variable_of_a_real_function_may_not_be_renamed(data: st.DataObject) -> None:
    source, names = data.draw(st.sampled_from(_functions()))
    name = data.draw(st.sampled_from(names))
    uses = sum(isinstance(node, ast.Name) and node.id == name for node in ast.walk(ast.parse(source)))
    assume(uses > 1)
    other = renamed(source, {name: "fresh"}, only=data.draw(st.integers(0, uses - 1)))
    assert _text(source) != _text(other)


MODULE = """
import a
LIMIT = 3
@a.decorator
def f(x: int = LIMIT) -> int:
    return x + 1
class A(a.Base, metaclass=a.Meta):
    size = 4
    def m(self, y=LIMIT):
        def inner():
            return y
        return inner
    async def n(self):
        return self.size
g = lambda z: z + 2
if LIMIT:
    def h():
        return 5
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [("x + 1", "x + 10"), ("return y", "return -y"), ("return self.size", "return 0"), ("return 5", "pass")],
)
def test_without_bodies_no_body_of_a_function_matters(old: str, new: str) -> None:
    assert canonical(ast.parse(MODULE), bodies=False) == canonical(ast.parse(MODULE.replace(old, new)), bodies=False)
    assert _text(MODULE) != _text(MODULE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("import a", "import a, b"),
        ("LIMIT = 3", "LIMIT = 4"),
        ("@a.decorator\n", ""),
        ("x: int", "x: float"),
        ("x: int = LIMIT", "x: int = 3"),
        ("-> int", "-> float"),
        ("def f(", "def ff("),
        ("def f(x", "def f(w"),
        ("def f(", "async def f("),
        ("a.Base", "a.Other"),
        ("metaclass=a.Meta", ""),
        ("size = 4", "size = 5"),
        ("def m(self, y=LIMIT)", "def m(self, y=2)"),
        ("async def n", "def n"),
        ("z + 2", "z + 3"),
        ("if LIMIT:", "if not LIMIT:"),
        ("    def h():\n        return 5", "    pass"),
    ],
)
def test_without_bodies_all_other_code_matters(old: str, new: str) -> None:
    assert old in MODULE
    other = MODULE.replace(old, new)
    assert canonical(ast.parse(MODULE), bodies=False) != canonical(ast.parse(other), bodies=False)


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("x + 1", "x + 10", {"f"}),
        ("return y", "return -y", {"A.m"}),
        ("return self.size", "return 0", {"A.n"}),
        ("return 5", "pass", {"h"}),
        ("size = 4", "size = 5", {""}),
        ("z + 2", "z + 3", {""}),
        ("x: int = LIMIT", "x: int = 3", {"", "f"}),
        ("return 5", "result = 5\n        return result", {"h"}),
        ("LIMIT = 3", "LIMIT = 3  # why", set()),
    ],
)
def test_each_function_and_the_rest_have_a_digest(old: str, new: str, parts: set[str]) -> None:
    before, after = (code_parts(text.encode()) for text in (MODULE, MODULE.replace(old, new)))
    assert before.keys() == after.keys() == {"", "f", "A.m", "A.n", "h"}
    assert {name for name in before if before[name] != after[name]} == parts


def test_a_name_that_is_defined_twice_has_one_digest_of_both() -> None:
    source = "if a:\n def f(): return 1\nelse:\n def f(): return 2\n"
    before = code_parts(source.encode())
    for old, new in (("1", "3"), ("2", "3")):
        after = code_parts(source.replace(old, new).encode())
        assert after["f"] != before["f"]
        assert after[""] == before[""]


def test_a_program_may_be_nested_deeper_than_python_recurses() -> None:
    source = "def f(a):\n if a: pass\n" + "".join(f" elif a == {number}: pass\n" for number in range(800))
    assert _text(source) == _text(source.replace("pass", "pass  # nothing"))
    assert _text(source) != _text(source.replace("799", "1799"))


COMPILED = """
def plain(): return {value}


class C:
    def method(self): return 2
"""


@pytest.mark.parametrize(
    "line",
    ["import numba", "import numpy, numba.core", "from numba import njit", "from numba.extending import intrinsic"],
)
@pytest.mark.parametrize("indented", [False, True])
def test_all_code_of_a_module_that_imports_a_compiler_runs_on_import(line: str, indented: bool) -> None:
    """A compiled function runs unseen, whichever function of the module it is; an import inside a function counts."""
    where = f"def late():\n    {line}\n" if indented else f"{line}\n"
    before, after = (code_parts((where + COMPILED.format(value=value)).encode()) for value in (1, 3))
    assert before.keys() == after.keys() == {""}
    assert before != after
    assert before == code_parts((where + "# a comment\n" + COMPILED.format(value=1)).encode())


@pytest.mark.parametrize("line", ["import numbat", "from numbat import njit", "from .numba import njit", "numba = 1"])
def test_a_module_that_only_sounds_like_a_compiler_is_none(line: str) -> None:
    assert code_parts(f"{line}\n{COMPILED.format(value=1)}".encode()).keys() == {"", "plain", "C.method"}
