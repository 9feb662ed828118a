"""A fingerprint changes with the meaning of a member, and with nothing else."""

from __future__ import annotations

import ast
import os
import sys
from functools import partial
from pathlib import Path

import pytest
from toyproject import target

from rlverify.project.fingerprint import (
    code_parts,
    digest,
    file_digest,
    member_digest,
    module_closure,
    module_name,
    module_path,
    source_digest,
    tree_text,
)
from rlverify.records.errors import StaleFaultError

PLAIN = "def f(x, y=1):\n    return x + y\n"


@pytest.mark.parametrize(
    "same",
    [
        "def f(x, y=1):\n    # why\n    return x + y\n",
        'def f(x, y=1):\n    """What it does."""\n    return x + y\n',
        "def f(\n    x,\n    y=1,\n):\n\n    return (x\n        + y)\n",
    ],
    ids=["comment", "docstring", "layout"],
)
def test_comments_docstrings_and_layout_do_not_matter(same: str) -> None:
    assert source_digest(same) == source_digest(PLAIN)


@pytest.mark.parametrize(
    "other",
    [
        "def f(x, y=2):\n    return x + y\n",
        "def f(x, y=1):\n    return x - y\n",
        "def f(x, y=True):\n    return x + y\n",
        "def f(x, y=1.0):\n    return x + y\n",
        "@cache\ndef f(x, y=1):\n    return x + y\n",
        "def f(x: int, y=1):\n    return x + y\n",
        "def f(x, y=1):\n    'doc'\n    'not doc'\n    return x + y\n",
        PLAIN.replace("x", "z"),
        PLAIN.replace("x + y", "None"),
    ],
    ids=["constant", "operator", "type of constant", "float", "decorator", "annotation", "second text", "name", "None"],
)
def test_whatever_may_change_the_meaning_matters(other: str) -> None:
    assert source_digest(other) not in (source_digest(PLAIN), source_digest(PLAIN.replace(" x + y", "")))


def test_the_text_of_a_tree_leaves_out_what_versions_of_python_disagree_on() -> None:
    source = 'def f(x):\n    "doc"\n    return u"x"\n'
    tree = ast.parse(source)
    assert tree_text(ast.parse(source)) == (
        "Module(body=[FunctionDef(name='f', args=arguments(args=[arg(arg='x')]), "
        "body=[Return(value=Constant(value='x'))])])"
    )
    tree.body[0].type_params = []  # type: ignore[attr-defined]
    tree.body[0].type_comment = "int"  # type: ignore[attr-defined]
    assert tree_text(tree) == tree_text(tree) == tree_text(ast.parse(source))


MODULE = "LIMIT = 3\n\n\nclass C:\n    @cached\n    def f(self, x=1):\n        return x\n\n\ndef g():\n    return 2\n"


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("return x", "return -x", {"C.f"}),
        ("return 2", '"""Words."""\n    return 2  # words', set()),
        ("LIMIT = 3", "LIMIT = 4", {""}),
        ("@cached", "@static", {"", "C.f"}),
        ("x=1", "x=2", {"", "C.f"}),
        ("def g", "def h", {"", "g", "h"}),
        ("LIMIT = 3", "import numba", {"", "C.f", "g"}),
        ("return 2", "return (", {"", "C.f", "g"}),
        ("return 2", "return '\0'", {"", "C.f", "g"}),
    ],
)
def test_each_function_is_a_part_and_all_other_code_is_one(old: str, new: str, changed: set[str]) -> None:
    was, now = code_parts(MODULE), code_parts(MODULE.replace(old, new))
    assert was.keys() == {"", "C.f", "g"}
    assert {name for name in was.keys() | now.keys() if was.get(name) != now.get(name)} == changed


def test_borders_between_texts_matter() -> None:
    assert digest(["ab", "c"]) != digest(["a", "bc"])


def test_only_the_named_definition_counts() -> None:
    source = "class A:\n    def f(self): return 1\n    def g(self): return 2\n"
    changed = source.replace("return 2", "return 3")
    assert source_digest(source, "A.f") == source_digest(changed, "A.f")
    assert source_digest(source, "A.g") != source_digest(changed, "A.g")
    with pytest.raises(LookupError, match=r"A\.h"):
        source_digest(source, "A.h")


def test_a_definition_under_a_condition_is_found() -> None:
    source = "try:\n    def f(): return 1\nexcept ImportError:\n    def f(): return 2\n"
    assert source_digest(source, "f") != source_digest(source.replace("return 2", "return 3"), "f")


def test_a_member_is_fingerprinted_where_it_is_defined() -> None:
    source = Path(str(target.__file__)).read_text(encoding="utf-8")
    assert member_digest(target.Heir.add) == source_digest(source, "Average.add")


def test_a_function_without_a_definition_cannot_be_fingerprinted() -> None:
    made = eval("lambda: 1")  # noqa: S307 - a function that stands in no file
    with pytest.raises(StaleFaultError, match="cannot be fingerprinted"):
        member_digest(made)


def test_what_has_no_name_or_no_module_cannot_be_fingerprinted() -> None:
    with pytest.raises(StaleFaultError, match=r"functools:\? cannot be fingerprinted: no definition of \?$"):
        member_digest(partial(len, ""))
    with pytest.raises(StaleFaultError, match=r"None:\? cannot be fingerprinted: module None has no source file"):
        member_digest(property())


def test_a_function_of_a_module_without_a_file_cannot_be_fingerprinted() -> None:
    with pytest.raises(
        StaleFaultError, match="builtins:len cannot be fingerprinted: module builtins has no source file"
    ):
        member_digest(len)


def test_a_single_file_is_a_module_too() -> None:
    assert module_path("textwrap").name == "textwrap.py"


def _package(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


CHANGES = (
    "X = 1\ndef f():\n    return X\n",
    "X = 2\ndef f():\n    return X\n",
    "X = 1\ndef f():\n    return -X\n",
    "X = 1\ndef g():\n    return X\n",
    "def f():\n    return X\nX = 1\n",
)
"""Modules of which each pair differs: in a constant, a body, a name, the order."""


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return source_digest(module_path("unimported.inner.part").read_bytes())


def test_a_module_is_digested_without_being_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _package(tmp_path, {"unimported/__init__.py": "raise SystemExit", "unimported/inner/part.py": "X = 1"})
    monkeypatch.syspath_prepend(tmp_path)
    digests = {text: written(tmp_path / "unimported/inner/part.py", text) for text in CHANGES}
    assert len(set(digests.values())) == len(CHANGES)
    assert (
        written(tmp_path / "unimported/inner/part.py", f'"""Words."""\n{CHANGES[0]}  # words\n') == digests[CHANGES[0]]
    )
    assert "unimported" not in sys.modules
    with pytest.raises(LookupError, match=r"no module unimported\.other"):
        module_path("unimported.other")


def test_helpers_that_a_module_imports_count_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "helped/probes/a.py": "import os\nfrom helped.probes.b import X",
        "helped/probes/b.py": "from helped.probes import c",
    }
    _package(tmp_path, {**files, "helped/probes/c.py": "X = 1", "helped/other.py": "Y = 1"})
    monkeypatch.syspath_prepend(tmp_path)
    found = module_closure(["helped.probes.a"], ("helped.probes",))
    assert found == {"helped.probes.a", "helped.probes.b", "helped.probes.c"}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of which nothing is imported."""
    folder = tmp_path / "relpkg"
    (folder / "inner").mkdir(parents=True)
    files = {"__init__": "def top():\n    pass\n", "helper": "", "inner/__init__": "", "inner/deep": "", "user": ""}
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("from .helper import half", {"relpkg.helper"}),
        ("from . import helper", {"relpkg.helper"}),
        ("from .inner import deep", {"relpkg.inner", "relpkg.inner.deep"}),
        ("from relpkg import top", {"relpkg"}),
        ("from relpkg import helper, top", {"relpkg", "relpkg.helper"}),
        ("from relpkg import helper", {"relpkg.helper"}),
        ("import relpkg", {"relpkg"}),
        ("import relpkg.helper", {"relpkg.helper"}),
        ("from ....beyond import thing", set()),
        ("import json", set()),
    ],
)
def test_imports_are_followed_relative_or_not(line: str, found: set[str], package: Path) -> None:
    (package / "user.py").write_text(f"{line}\n", encoding="utf-8")
    assert module_closure(["relpkg.user"], ("relpkg",)) == {"relpkg.user", *found}


def test_what_is_read_of_a_file_follows_it(package: Path) -> None:
    path, digests = package / "user.py", set()
    for time, needed in enumerate(("relpkg.helper", "relpkg.inner")):
        path.write_text(f"import {needed}\ndef top():\n    return {time}\n", encoding="utf-8")
        os.utime(path, (time, time))
        assert module_closure(["relpkg.user"], ("relpkg",)) == {needed, "relpkg.user"}
        digests.add(file_digest(path, "top"))
    assert len(digests) == 2


def test_a_file_that_is_not_python_imports_nothing(package: Path) -> None:
    for time, source in enumerate((b"import relpkg.helper\ndef (", b"import relpkg.helper\ndef [", b"\xff(", b"X=1\0")):
        (package / "user.py").write_bytes(source)
        os.utime(package / "user.py", (time, time))
        assert module_closure(["relpkg.user"], ("relpkg",)) == {"relpkg.user"}


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("relpkg/__init__.py", "relpkg"),
        ("relpkg/user.py", "relpkg.user"),
        ("relpkg/inner/__init__.py", "relpkg.inner"),
        ("relpkg/inner/deep.py", "relpkg.inner.deep"),
        ("relpkg/inner/__main__.py", "relpkg.inner.__main__"),
    ],
)
def test_the_name_of_a_module_follows_from_its_file(file: str, name: str) -> None:
    assert module_name("relpkg", Path("relpkg"), Path(file)) == name
    assert module_name("single", Path("single.py"), Path("single.py")) == "single"


def test_a_package_that_does_not_exist_has_no_modules() -> None:
    for name in ("no_such_package", "no_such_package.part"):
        with pytest.raises(LookupError, match=f"no module {name}"):
            module_path(name)


def test_a_relative_import_starts_from_the_package_that_the_file_is(package: Path) -> None:
    (package / "inner" / "__init__.py").write_text("from .deep import thing\n", encoding="utf-8")
    (package / "inner" / "deep.py").write_text("from ..helper import half\n", encoding="utf-8")
    found = module_closure(["relpkg.inner"], ("relpkg",))
    assert found == {"relpkg.inner", "relpkg.inner.deep", "relpkg.helper"}
