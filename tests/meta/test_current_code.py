"""The digests of the code of a project at one moment, and the check that it stayed as it was."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rlverify.project.content import open_project
from rlverify.project.current_code import CurrentCode
from rlverify.project.fingerprint import mentioned_names
from rlverify.records.code_records import Executed
from rlverify.records.errors import HarnessError
from tests.meta.project_folders import PROJECTS, write_settings

MODULE = "figureproject.target"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the project with figures, to be changed."""
    ignored = shutil.ignore_patterns("__pycache__", "pyproject.toml")
    shutil.copytree(PROJECTS / "figureproject", tmp_path / "figureproject", ignore=ignored)
    return write_settings(tmp_path, "figureproject", pythonpath=["."])


def code_of(folder: Path) -> CurrentCode:
    return CurrentCode(open_project(folder))


def test_a_digest_is_of_the_moment_at_which_the_sources_were_read(folder: Path) -> None:
    before = code_of(folder)
    was = before.digest(f"{MODULE}:middle")
    path = folder / "figureproject/target.py"
    path.write_text(path.read_text().replace("/ 2", "/ 3"))
    assert before.digest(f"{MODULE}:middle") == was != code_of(folder).digest(f"{MODULE}:middle")


def changed_body(folder: Path) -> None:
    path = folder / "figureproject/target.py"
    path.write_text(path.read_text().replace("/ 2", "/ 3"))


def changed_constant(folder: Path) -> None:
    with (folder / "figureproject/target.py").open("a") as file:
        file.write("NEW = 1\n")


def new_module(folder: Path) -> None:
    (folder / "figureproject/new.py").write_text("")


def removed_module(folder: Path) -> None:
    (folder / "figureproject/target.py").unlink()


def broken(folder: Path) -> None:
    with (folder / "figureproject/target.py").open("a") as file:
        file.write("def (\n")


@pytest.mark.parametrize("change", [changed_body, changed_constant, new_module, removed_module, broken])
def test_a_change_meanwhile_is_an_error_that_names_the_module(folder: Path, change: Callable[[Path], None]) -> None:
    code = code_of(folder)
    code.check_unchanged()
    change(folder)
    with pytest.raises(HarnessError, match=r"figureproject\.(target|new) was changed while it was measured"):
        code.check_unchanged()


def test_a_comment_meanwhile_is_no_change(folder: Path) -> None:
    code = code_of(folder)
    with (folder / "figureproject/target.py").open("a") as file:
        file.write("# a comment\n")
    code.check_unchanged()


def test_the_digest_of_a_file_is_the_start_of_its_sha_256(folder: Path) -> None:
    (folder / "data.txt").write_text("content")
    assert code_of(folder).digest("file data.txt") == "ed7002b439e9ac84"
    assert code_of(folder).digest("file missing.txt") == ""


def test_a_package_may_be_a_single_file(folder: Path) -> None:
    (folder / "alone.py").write_text("def one():\n    return 1\n")
    write_settings(folder, "figureproject", pythonpath=["."], under_test=["alone"])
    code = code_of(folder)
    assert code.sources["alone"] == b"def one():\n    return 1\n"
    assert len(code.digest("alone:one")) == 16


def test_a_library_that_the_settings_do_not_name_has_no_digest(folder: Path) -> None:
    assert code_of(folder).digest("library numpy") == ""


def test_a_function_of_a_module_that_no_import_names_brings_its_module(folder: Path) -> None:
    """As where a run imports by a name that it works out."""
    (folder / "figureproject/late.py").write_text("X = 1\n\n\ndef late():\n    return X\n")
    record = code_of(folder).record("", [MODULE], Executed(("figureproject.late:late",)), Executed())
    names = dict(record.parts)
    assert {"figureproject.late", "figureproject.late:late", MODULE} <= names.keys()
    assert record.roots == ("figureproject.late", MODULE)


def test_a_run_that_starts_processes_depends_on_all_functions_of_its_modules(folder: Path) -> None:
    code = code_of(folder)
    seen = code.record("", [MODULE], Executed(unseen=False), Executed())
    unseen = code.record("", [MODULE], Executed(unseen=True), Executed())
    assert f"{MODULE}:middle" not in dict(seen.parts)
    assert f"{MODULE}:middle" in dict(unseen.parts)


def test_what_imports_execute_counts_for_the_modules_that_are_imported(folder: Path) -> None:
    code = code_of(folder)
    imported = Executed((f"{MODULE}:middle", "figureproject.probes.values:middle", f"{MODULE}:<module>"))
    record = code.record("", [MODULE], Executed(), imported)
    assert [name for name, _ in record.parts if ":" in name] == [f"{MODULE}:middle"]


CALLING = """
from figureproject.near import Base, beside as next_to


class Sub(Base):
    def step(self):
        return super().step()


def start(base):
    from figureproject.near import late
    inner = lambda: next_to(late)
    return inner, base.walk(), Sub


def not_mentioned(): ...
def second(): return third()
def third(): return start(1)
def defined_twice(): return second()
def defined_twice(): return 1
"""
NEAR = """
class Base:
    def step(self): ...
    def walk(self): return far_away()


def beside(): ...
def late(): ...
def far_away(): ...
def not_mentioned(): ...
"""


@pytest.mark.parametrize(
    ("parts", "known", "expected"),
    [
        (["calling:start"], [], "calling:Sub.step near:Base.step near:Base.walk near:far_away near:beside near:late"),
        (["calling:start"], ["calling:Sub.step", "near:Base.walk"], "near:beside near:late"),
        (["calling", "library numpy", "near:beside"], [], ""),
        (["near:Base.gone"], [], ""),
        (["calling:Other.step"], [], "calling:Sub.step near:Base.step"),
        (["calling:second"], ["calling:start"], "calling:third"),
        (["calling:defined_twice"], ["calling:start"], "calling:second calling:third"),
    ],
    ids=["all", "known", "no function", "gone", "gone override", "known end", "twice"],
)
def test_functions_whose_names_are_mentioned_may_be_called(
    folder: Path, parts: list[str], known: list[str], expected: str
) -> None:
    for name, text in (("calling", CALLING), ("near", NEAR), ("not_imported", NEAR)):
        (folder / f"figureproject/{name}.py").write_text(text)
    within = "figureproject.{}".format
    found = code_of(folder).mentioned([within(each) if ":" in each else each for each in parts], map(within, known))
    assert found == {within(each) for each in expected.split()}


def test_what_is_compiled_or_not_python_mentions_nothing_in_parts() -> None:
    assert mentioned_names(b"def (") == {}
    assert mentioned_names(b"import numba\n\ndef f(): return g()\n") == {}


def test_a_real_run_whose_code_is_edited_meanwhile_replaces_nothing(folder: Path) -> None:
    """Runs wait in a real process until a real file has been edited."""
    hold, log = folder / "hold", folder / "log"
    hold.touch()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "FIGURELAB_HOLD": str(hold), "FIGURELAB_LOG": str(log)}
    command = [sys.executable, "-m", "rlverify.cli.entry", "audit", "--level", "full", "--update", "--jobs", "1"]
    program = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
    while program.poll() is None and not log.exists():
        time.sleep(0.01)
    path = folder / "figureproject/target.py"
    path.write_text(path.read_text().replace("/ 2", "/ 2.0"))
    hold.unlink()
    said = program.communicate()[1]
    assert (program.returncode, f"{MODULE} was changed while it was measured" in said) == (2, True)
    assert not (folder / "reports" / "evidence" / "FIG-GAIN.json").exists()
    assert not list((folder / ".rlverify" / "runs").rglob("*.json"))


def test_an_edit_while_probes_run_is_an_error_too(folder: Path) -> None:
    """The edit is made by the probe itself, so that it comes surely in between."""
    path = folder / "figureproject/probes/values.py"
    target = folder / "figureproject/target.py"
    text = path.read_text()
    assert text.count("return [") == 1
    edit = f"__import__('pathlib').Path({str(target)!r}).open('a').write('NEW = 1\\n'); return ["
    path.write_text(text.replace("return [", edit))
    command = [sys.executable, "-m", "rlverify.cli.entry", "gate", "--jobs", "1"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, f"{MODULE} was changed while it was measured" in done.stderr) == (2, True)
