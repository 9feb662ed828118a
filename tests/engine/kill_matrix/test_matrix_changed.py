"""The faults that a change asks to plant again, and what the gate asks of a committed kill matrix."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rlverify.gating.git_base import Base
from rlverify.kill_matrix import plan as changed_module
from rlverify.kill_matrix.committed import committed_problems, matrix_json, undetected
from rlverify.kill_matrix.plan import MatrixPlan, changed_plans, require_test
from rlverify.project.content import Project, open_project
from rlverify.records.errors import MatrixError
from rlverify.records.matrix import FaultResult, Matrix
from tests.engine.checkouts import commit, git
from tests.engine.project_folders import PROJECTS, toy_plan

TOY_TESTS = """
import pytest
from helpers import bounds

def test_restore():
    assert restored() == 1

@pytest.mark.parametrize("value", [-5])
def test_low(value):
    assert clipped(value) == bounds()[0]

class TestAverage:
    def test_count(self):
        assert counted() == 1

def test_unrelated():
    assert True
"""
RESTORE = "tests/test_toy.py::test_restore"
CLIP = "tests/test_toy.py::test_low[-5]"
COUNT = "tests/test_toy.py::TestAverage::test_count"
BY_FUNCTION = {
    'fault = "clip-one-sided"\nkilled_by = ["tests/test_toy.py"]': f'fault = "clip-one-sided"\nkilled_by = ["{CLIP}"]',
    'fault = "add-twice"\nkilled_by = ["tests/test_toy.py"]': f'fault = "add-twice"\nkilled_by = ["{COUNT}"]',
}


def toy_checkout(folder: Path) -> MatrixPlan:
    """The toy project with tests, whose claims name test functions, as the last commit of a repository."""
    toy_plan(folder, BY_FUNCTION)
    shutil.copytree(PROJECTS / "toyproject", folder / "toyproject", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "tests").mkdir()
    (folder / "tests" / "test_toy.py").write_text(TOY_TESTS, encoding="utf-8")
    (folder / "tests" / "helpers.py").write_text("def bounds():\n    return 0, 3\n", encoding="utf-8")
    git(folder, "init", "--quiet")
    commit(folder, "toy")
    return MatrixPlan(open_project(folder))


def changed(folder: Path, matrix_plan: MatrixPlan) -> set[str]:
    return {plan.fault for plan in changed_plans(matrix_plan, Base(folder.resolve(), "HEAD"))}


@pytest.mark.parametrize(
    ("old", "new", "faults"),
    [
        ("assert True", "assert 1", set()),
        ("def test_unrelated", "def test_renamed", set()),
        ("import pytest\n", "import pytest, os\n", set()),
        ("def test_low(value):\n", "def test_low(value):  # the lower end\n", set()),
        ("clipped(value) == ", "clipped(value) >= ", {"clip-one-sided"}),
        ("[-5]", "[-5, -6]", {"clip-one-sided"}),
        ("counted() == 1", "counted() == 2", {"add-twice"}),
        ("class TestAverage:\n", "class TestAverage:\n    limit = 3\n\n", set()),
        ("restored() == 1", "restored() > 0", {"restored-forgets", "restored-keeps-total"}),
    ],
)
def test_the_faults_that_an_edited_test_must_detect_are_planted_again_and_no_others(
    old: str, new: str, faults: set[str], tmp_path: Path
) -> None:
    matrix_plan = toy_checkout(tmp_path)
    assert changed(tmp_path, matrix_plan) == set()
    assert TOY_TESTS.count(old) == 1
    (tmp_path / "tests" / "test_toy.py").write_text(TOY_TESTS.replace(old, new), encoding="utf-8")
    assert changed(tmp_path, matrix_plan) == faults


def test_an_edited_helper_asks_for_nothing(tmp_path: Path) -> None:
    matrix_plan = toy_checkout(tmp_path)
    (tmp_path / "tests" / "helpers.py").write_text("def bounds():\n    return 0, 4\n", encoding="utf-8")
    assert changed(tmp_path, matrix_plan) == set()


@pytest.mark.parametrize(
    ("file", "old", "new", "faults"),
    [
        ("faults/arithmetic.py", "return min(value, high)", "return max(value, low)", {"clip-one-sided"}),
        ("target.py", "def clip(", "def clip(  # all\n    ", set()),
        ("target.py", "self.count += 1", "self.count += 1.0", {"add-twice", "null-add-twice"}),
    ],
)
def test_an_edited_fault_or_target_is_planted_again(
    file: str, old: str, new: str, faults: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix_plan = toy_checkout(tmp_path)
    path = tmp_path / "toyproject" / file
    places = {f"toyproject.{each.stem}": each for each in (tmp_path / "toyproject").glob("*.py")}
    places |= {f"toyproject.faults.{each.stem}": each for each in (tmp_path / "toyproject" / "faults").glob("*.py")}
    monkeypatch.setattr(changed_module, "module_path", places.__getitem__)
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")
    assert changed(tmp_path, matrix_plan) == faults


def test_an_inherited_test_is_one_if_its_class_has_bases(tmp_path: Path) -> None:
    (tmp_path / "test_heir.py").write_text("class TestHeir(Tests):\n    values = 1\n", encoding="utf-8")
    require_test(tmp_path, "test_heir.py::TestHeir::test_of_the_base")
    with pytest.raises(MatrixError, match="no definition of TestOther"):
        require_test(tmp_path, "test_heir.py::TestOther::test_of_the_base")


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        ("tests/test_toy.py::test_gone", "no definition of test_gone"),
        ("tests/test_toy.py::TestGone::test_count", "no definition of TestGone"),
        ("tests/test_gone.py::test_low", "No such file"),
        ("tests/test_gone.py", "No such file"),
        ("tests/broken.py::test_low", "invalid syntax"),
        ("tests/bytes.py", r"\(unicode error\) 'utf-8' codec can't decode|Non-UTF-8 code"),
        ("tests", "Is a directory"),
    ],
)
def test_a_test_that_does_not_exist_is_named(test: str, reason: str, tmp_path: Path) -> None:
    toy_checkout(tmp_path)
    (tmp_path / "tests" / "broken.py").write_text("def test_low(:\n", encoding="utf-8")
    (tmp_path / "tests" / "bytes.py").write_bytes(b"x = '\xff'\n")
    with pytest.raises(MatrixError) as error:
        require_test(tmp_path, test)
    assert re.match(f"kill matrix, {test}: is not a test: (?:{reason})", str(error.value))
    assert str(error.value).endswith("; correct the id")


def toy_matrix(matrix_plan: MatrixPlan) -> Matrix:
    """A matrix of today in which every fault met the fate that it should."""
    rows = tuple(FaultResult(each, each.expected, True, each.checks[:1]) for each in matrix_plan.plans)
    return Matrix("2026-11-27", rows, {test: "passed" for row in rows for test in row.killers})


def gate_problems(matrix_plan: MatrixPlan, matrix: Matrix | None, exit_code: int = 1) -> dict[str, str]:
    """What the gate says about a committed matrix, apart from its page."""
    paths = matrix_plan.project.paths
    paths.reports.mkdir(exist_ok=True)
    if matrix is not None:
        (paths.reports / "matrix.json").write_text(matrix_json(matrix), encoding="utf-8")
    found = committed_problems(matrix_plan, paths)
    assert {problem.exit_code for problem in found} <= {exit_code}
    return {
        problem.subject: str(problem).removeprefix(f"{problem.subject}: ")
        for problem in found
        if problem.subject != "kill-matrix.md"
    }


def test_the_gate_reports_a_claim_that_names_no_test(tmp_path: Path) -> None:
    named = f'killed_by = ["{CLIP}"]'
    toy_checkout(tmp_path)
    catalogue = tmp_path / "catalogue" / "toy.toml"
    text = catalogue.read_text(encoding="utf-8")
    assert text.count(named) == 1
    catalogue.write_text(text.replace(named, ""), encoding="utf-8")
    matrix_plan = MatrixPlan(open_project(tmp_path))
    (told,) = undetected(matrix_plan)
    sentence = 'no test is named that fails when clip-one-sided is planted; add killed_by = ["tests/..."]'
    assert (told.subject, told.sentence, told.exit_code) == ("TOY-02", sentence, 1)
    assert "TOY-02" not in gate_problems(matrix_plan, None)  # a report does not ask for it


def test_the_gate_asks_of_no_other_claim_for_a_test(toyproject: Project) -> None:
    unnamed = {claim.id for claim in toyproject.claims if not claim.killed_by}
    assert unnamed == {"NULL-TOY", "TOY-03", "TOY-04"}
    assert [*undetected(MatrixPlan(toyproject))] == []


def test_the_gate_names_the_rows_that_were_measured_for_other_tests(tmp_path: Path) -> None:
    matrix_plan = toy_checkout(tmp_path)
    matrix = toy_matrix(matrix_plan)
    assert gate_problems(matrix_plan, matrix) == {}
    rows = tuple(
        replace(row, plan=replace(row.plan, checks=(RESTORE,)), killers=(RESTORE,))
        if row.plan.fault == "add-twice"
        else row
        for row in matrix.rows
    )
    said = "measured of other faults or tests: add-twice (defect); run `rlverify matrix --update`"
    assert gate_problems(matrix_plan, replace(matrix, rows=rows)) == {"matrix.json": said}


def test_the_gate_names_every_test_that_is_gone_with_its_claim(tmp_path: Path) -> None:
    toy_checkout(tmp_path)
    matrix = toy_matrix(MatrixPlan(open_project(tmp_path)))
    path = tmp_path / "tests" / "test_toy.py"
    path.write_text(TOY_TESTS.replace("test_low", "test_other"), encoding="utf-8")
    os.utime(path, (1, 1))
    gone = f"killed_by: {CLIP} is not a test: no definition of test_low; correct the id"
    assert gate_problems(MatrixPlan(open_project(tmp_path)), matrix, exit_code=2) == {"TOY-02": gone}
    shutil.rmtree(tmp_path / "tests")
    found = gate_problems(MatrixPlan(open_project(tmp_path)), matrix, exit_code=2)
    assert found == {
        claim: f"killed_by: {test} is not a test: No such file or directory; correct the id"
        for claim, test in (("TOY-01", RESTORE), ("TOY-02", CLIP), ("TOY-05", COUNT))
    }


def test_a_method_that_is_misspelt_is_no_test_though_its_class_exists(tmp_path: Path) -> None:
    (tmp_path / "test_b.py").write_text("class TestF:\n    def test_f(self):\n        pass\n", encoding="utf-8")
    require_test(tmp_path, "test_b.py::TestF::test_f")
    reason = r"test_b.py::TestF::test_fff: is not a test: no definition of TestF.test_fff"
    with pytest.raises(MatrixError, match=reason):
        require_test(tmp_path, "test_b.py::TestF::test_fff")
