"""What a committed kill matrix was measured of, and what the gate asks for."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rlverify.kill_matrix.committed import committed_status, undetected
from rlverify.kill_matrix.digests import digest_of_test, row_digest, under_test_digest, weak_test_digest
from rlverify.kill_matrix.matrix_file import to_json
from rlverify.kill_matrix.plan import MatrixPlan
from rlverify.project.content import Project, open_project
from rlverify.records.errors import MatrixError
from rlverify.records.matrix import (
    FaultResult,
    Matrix,
    WeakTest,
)
from tests.meta.project_folders import planned, project_in, toy_plan

WEAK = WeakTest("w.py::test_w", "forgets", "told", "blind")

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


def toy_digests(
    folder: Path, tests: str = TOY_TESTS, helpers: str = "def bounds():\n    return 0, 3\n"
) -> dict[str, str]:
    """The digest of every row of the toy project, whose claims name test functions, by fault."""
    matrix_plan = toy_plan(folder, BY_FUNCTION)
    (folder / "tests").mkdir()
    (folder / "tests" / "test_toy.py").write_text(tests, encoding="utf-8")
    if helpers:
        (folder / "tests" / "helpers.py").write_text(helpers, encoding="utf-8")
    return {plan.fault: row_digest(matrix_plan, plan) for plan in matrix_plan.plans}


@pytest.mark.parametrize(
    ("old", "new", "changed"),
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
def test_a_row_changes_with_the_tests_that_must_detect_its_fault_and_with_no_others(
    old: str, new: str, changed: set[str], tmp_path: Path
) -> None:
    before = toy_digests(tmp_path / "before")
    assert TOY_TESTS.count(old) == 1
    after = toy_digests(tmp_path / "after", TOY_TESTS.replace(old, new))
    assert len(before) == len(set(before.values())) == 6
    assert {fault for fault in before if before[fault] != after[fault]} == changed
    assert before.keys() == after.keys()


def test_no_row_changes_with_a_helper(tmp_path: Path) -> None:
    before = toy_digests(tmp_path / "before")
    assert toy_digests(tmp_path / "edited", helpers="def bounds():\n    return 0, 4\n") == before
    assert toy_digests(tmp_path / "moved", helpers="") == before
    assert toy_digests(tmp_path / "further", TOY_TESTS.replace("from helpers", "from tests.support.helpers")) == before


def test_a_test_can_be_moved_within_its_file_but_not_to_another(tmp_path: Path) -> None:
    test = TOY_TESTS[TOY_TESTS.index("def test_restore") : TOY_TESTS.index("@pytest")]
    assert toy_digests(tmp_path / "before") == toy_digests(tmp_path / "after", TOY_TESTS.replace(test, "") + test)
    with pytest.raises(MatrixError, match=f"{RESTORE}: is not a test: no definition of test_restore"):
        toy_digests(tmp_path / "gone", TOY_TESTS.replace(test, ""))


def test_a_row_changes_with_its_fault_and_with_the_ids_of_its_checks(tmp_path: Path) -> None:
    toy_digests(tmp_path)
    matrix_plan = MatrixPlan(open_project(tmp_path))
    plan = planned(matrix_plan)["clip-one-sided", "defect"]
    first = row_digest(matrix_plan, plan)
    assert row_digest(matrix_plan, replace(plan, tests=(*plan.tests, RESTORE), claims=("TOY-99",))) == first
    others = (
        replace(plan, fault="clip-other-order"),
        replace(plan, checks=(CLIP, RESTORE)),
        replace(plan, checks=(CLIP.replace("[-5]", ""),)),
        replace(plan, checks=("tests/test_toy.py",)),
    )
    assert len({first, *(row_digest(matrix_plan, each) for each in others)}) == 1 + len(others)


def test_an_inherited_test_has_the_digest_of_the_class_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "test_heir.py").write_text("class TestHeir(Tests):\n    values = 1\n", encoding="utf-8")
    assert digest_of_test(tmp_path, "test_heir.py::TestHeir::test_of_the_base")
    with pytest.raises(MatrixError, match="no definition of TestOther"):
        digest_of_test(tmp_path, "test_heir.py::TestOther::test_of_the_base")


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        ("tests/test_toy.py::test_gone", "no definition of test_gone"),
        ("tests/test_toy.py::TestGone::test_count", "no definition of TestGone"),
        ("tests/test_gone.py::test_low", "no such file"),
        ("tests/test_gone.py", "no such file"),
        ("tests/broken.py::test_low", "invalid syntax"),
        ("tests/bytes.py", "(unicode error) 'utf-8' codec can't decode"),
        ("tests", "Is a directory"),
    ],
)
def test_a_test_that_does_not_exist_is_named(test: str, reason: str, tmp_path: Path) -> None:
    toy_digests(tmp_path)
    matrix_plan = MatrixPlan(open_project(tmp_path))
    (tmp_path / "tests" / "broken.py").write_text("def test_low(:\n", encoding="utf-8")
    (tmp_path / "tests" / "bytes.py").write_bytes(b"x = '\xff'\n")
    plan = replace(planned(matrix_plan)["clip-one-sided", "defect"], checks=(COUNT, test))
    with pytest.raises(MatrixError) as of_row:
        row_digest(matrix_plan, plan)
    with pytest.raises(MatrixError) as of_weak_test:
        weak_test_digest(matrix_plan, replace(WEAK, test=test, fault="add-twice"))
    assert str(of_row.value) == str(of_weak_test.value)
    assert str(of_row.value).startswith(f"kill matrix, {test}: is not a test: {reason}")
    assert str(of_row.value).endswith("; correct the id")


def toy_matrix(matrix_plan: MatrixPlan) -> Matrix:
    """A matrix of today in which every fault met the fate that it should."""
    rows = tuple(
        FaultResult(each, each.expected, True, each.checks[:1], row_digest(matrix_plan, each))
        for each in matrix_plan.plans
    )
    return Matrix(under_test_digest(matrix_plan), rows, {test: "passed" for row in rows for test in row.killers})


def gate_problems(matrix_plan: MatrixPlan, matrix: Matrix | None, exit_code: int = 1) -> dict[str, str]:
    """What the gate says about a committed matrix, apart from its page."""
    paths = matrix_plan.project.paths
    paths.reports.mkdir(exist_ok=True)
    if matrix is not None:
        (paths.reports / "matrix.json").write_text(to_json(matrix), encoding="utf-8")
    found = committed_status(matrix_plan, paths).problems
    assert {problem.exit_code for problem in found} <= {exit_code}
    return {
        problem.subject: str(problem).removeprefix(f"{problem.subject}: ")
        for problem in found
        if problem.subject != "kill-matrix.md"
    }


def test_the_gate_reports_a_claim_that_names_no_test(tmp_path: Path) -> None:
    named = f'killed_by = ["{CLIP}"]'
    toy_digests(tmp_path)
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


def test_the_gate_names_the_rows_of_which_fault_or_tests_have_changed(tmp_path: Path) -> None:
    toy_digests(tmp_path)
    matrix_plan = MatrixPlan(open_project(tmp_path))
    matrix = toy_matrix(matrix_plan)
    assert gate_problems(matrix_plan, matrix) == {}
    rows = tuple(replace(row, digest="old") if row.plan.fault == "add-twice" else row for row in matrix.rows)
    said = "measured of other faults or tests: add-twice (defect) has changed; run `rlverify matrix --update`"
    assert gate_problems(matrix_plan, replace(matrix, rows=rows)) == {"matrix.json": said}


def test_the_gate_names_every_test_that_is_gone_with_its_claim(tmp_path: Path) -> None:
    toy_digests(tmp_path)
    matrix = toy_matrix(MatrixPlan(open_project(tmp_path)))
    path = tmp_path / "tests" / "test_toy.py"
    path.write_text(TOY_TESTS.replace("test_low", "test_other"), encoding="utf-8")
    os.utime(path, (1, 1))
    gone = f"killed_by: {CLIP} is not a test: no definition of test_low; correct the id"
    assert gate_problems(MatrixPlan(open_project(tmp_path)), matrix, exit_code=2) == {"TOY-02": gone}
    shutil.rmtree(tmp_path / "tests")
    found = gate_problems(MatrixPlan(open_project(tmp_path)), matrix, exit_code=2)
    assert found == {
        claim: f"killed_by: {test} is not a test: no such file; correct the id"
        for claim, test in (("TOY-01", RESTORE), ("TOY-02", CLIP), ("TOY-05", COUNT))
    }


def test_a_method_that_is_misspelt_is_no_test_though_its_class_exists(tmp_path: Path) -> None:
    (tmp_path / "test_b.py").write_text("class TestF:\n    def test_f(self):\n        pass\n", encoding="utf-8")
    assert digest_of_test(tmp_path, "test_b.py::TestF::test_f")
    with pytest.raises(
        MatrixError, match=r"test_b.py::TestF::test_fff: is not a test: no definition of TestF.test_fff"
    ):
        digest_of_test(tmp_path, "test_b.py::TestF::test_fff")


def test_a_dotted_package_under_test_counts(tmp_path: Path) -> None:
    for name in ("comp/__init__.py", "comp/rl/__init__.py", "comp/rl/core.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("def clip(value):\n    return value\n", encoding="utf-8")
    catalogue = tmp_path / "claims"
    catalogue.mkdir()
    (catalogue / "one.toml").write_text(
        '[[claim]]\nid = "A-1"\ntitle = "t"\nstatement = "s"\nkind = "assurance"\nprobe = "mean-is-largest"\n'
        'expected = "REFUTED"\nmodules = ["comp.rl.core"]\n',
        encoding="utf-8",
    )
    project = project_in(tmp_path, under_test=["comp.rl"], catalogue="claims")
    before = under_test_digest(MatrixPlan(project))
    (tmp_path / "comp" / "rl" / "core.py").write_text("def clip(value):\n    return 0\n", encoding="utf-8")
    assert under_test_digest(MatrixPlan(open_project(tmp_path))) != before
