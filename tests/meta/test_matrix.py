"""The kill matrix on paper: what is planned, what a file may say, and what is wrong with a matrix."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from rlverify.kill_matrix.committed import committed_status, compare, few, problems_of, undetected
from rlverify.kill_matrix.digests import digest_of_test, row_digest, under_test_digest, weak_test_digest
from rlverify.kill_matrix.matrix_file import from_json, load, to_json
from rlverify.kill_matrix.plan import MatrixPlan
from rlverify.project.content import Project, open_project
from rlverify.records.errors import MatrixError
from rlverify.records.matrix import (
    FaultPlan,
    FaultResult,
    FaultRole,
    Matrix,
    NamedSuite,
    WeakTest,
    WeakTestResult,
    is_of,
)
from tests.meta.project_folders import PROJECTS, project_in

ROOT = Path(__file__).parents[2]
REAL = MatrixPlan(open_project(ROOT))
PATH = Path("matrix.json")
BUG = FaultPlan("forgets", "defect", ("TOY-1",), "state", ("t.py::test_a",), ("t.py::test_a", "t.py::test_b"))
NULL = FaultPlan("null-forgets", "null", ("NULL-1",), "state", (), ("t.py::test_a", "t.py::test_b"))
KILLED = FaultResult(BUG, "killed", True, ("t.py::test_a",), "1")
SURVIVED = FaultResult(NULL, "survived", reached=True, digest="2")
WEAK = WeakTest("w.py::test_w", "forgets", "told", "blind")
MATRIX = Matrix(
    "core",
    (KILLED, SURVIVED),
    {"t.py::test_a": "passed", "t.py::test_b": "passed"},
    (NamedSuite("002", "t.py", ("t.py::test_b",)),),
    (WeakTestResult(WEAK, "passed", "passed", reached=False, digest="3"),),
)


def file_of(test: str) -> str:
    return test.partition("::")[0]


def planned(matrix_plan: MatrixPlan) -> dict[tuple[str, str], FaultPlan]:
    return {(plan.fault, plan.kind): plan for plan in matrix_plan.plans}


def toy_catalogue(folder: Path, changes: Mapping[str, str]) -> Path:
    """A copy of the catalogue of the toy project with each text replaced by another."""
    folder.mkdir(parents=True)
    found = set()
    for path in (PROJECTS / "toyproject" / "catalogue").iterdir():
        text = path.read_text(encoding="utf-8")
        for old, new in changes.items():
            found |= {old} if old in text else set()
            text = text.replace(old, new)
        (folder / path.name).write_text(text, encoding="utf-8")
    assert found == set(changes)
    return folder


def toy_plan(folder: Path, changes: Mapping[str, str]) -> MatrixPlan:
    """The matrix plan of the toy project with another catalogue."""
    return MatrixPlan(project_in(folder, catalogue=toy_catalogue(folder / "catalogue", changes)))


def test_every_fault_is_planned_in_each_of_its_roles(
    toyproject: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = tmp_path / "named_tests.toml"
    names.write_text(
        '[[suite]]\ndocument = "002"\nfile = "tests/a.py"\n[suite.tests]\n'
        '"test_mean" = ["mean-of-nothing", "add-twice"]\n',
        encoding="utf-8",
    )
    monkeypatch.setattr("rlverify.kill_matrix.plan.NAMED_TESTS", str(names))
    matrix_plan = MatrixPlan(toyproject)
    plans = planned(matrix_plan)
    assert {role: plan.claims for role, plan in plans.items()} == {
        ("restored-forgets", "defect"): ("TOY-01",),
        ("restored-keeps-total", "fix"): ("TOY-01",),
        ("clip-one-sided", "defect"): ("TOY-02",),
        ("clip-other-order", "never a bug"): ("TOY-03",),
        ("add-twice", "defect"): ("TOY-05",),
        ("null-add-twice", "null"): ("NULL-TOY",),
        ("mean-of-nothing", "named"): (),
    }
    assert {role: plan.expected for role, plan in plans.items() if plan.expected == "survived"} == {
        ("clip-other-order", "never a bug"): "survived",
        ("null-add-twice", "null"): "survived",
    }
    assert plans["restored-forgets", "defect"].tests == ("tests/test_toy.py::test_restore",)
    assert plans["add-twice", "defect"].checks == ("tests/a.py::test_mean", "tests/test_toy.py")
    assert plans["null-add-twice", "null"].tests == ("tests/test_toy.py",)
    assert plans["mean-of-nothing", "named"].tests == ("tests/a.py::test_mean", "tests/test_toy.py")
    assert matrix_plan.suites == (NamedSuite("002", "tests/a.py", ("tests/a.py::test_mean",)),)


def test_the_named_tests_are_in_the_content_package(toyproject: Project) -> None:
    assert MatrixPlan(toyproject).suites == ()
    assert {suite.document for suite in REAL.suites} >= {"001", "002"}


def test_a_documented_fix_that_cures_is_not_planted(tmp_path: Path) -> None:
    kinds = {plan.kind for plan in toy_plan(tmp_path, {'"PARTIAL"': '"CURED"'}).plans}
    assert kinds == {"defect", "never a bug", "null"}


@pytest.mark.parametrize(("grade", "kind"), [("NO EFFECT", "never a bug"), ("HARMFUL", "fix")])
def test_the_fix_of_a_bug_that_never_was_must_survive_unless_it_harms(grade: str, kind: str, tmp_path: Path) -> None:
    fix = f'documented_fix = "clip-one-sided"\nfix_statement = "-"\nexpected_fix_grade = "{grade}"'
    plans = planned(toy_plan(tmp_path, {'fault = "clip-other-order"': f'fault = "clip-other-order"\n{fix}'}))
    assert [role for role, plan in plans.items() if plan.claims == ("TOY-03",)] == [
        ("clip-other-order", "never a bug"),
        ("clip-one-sided", kind),
    ]


def test_a_bug_that_never_was_is_not_asked_of_the_tests_that_see_it_elsewhere() -> None:
    """BUG-04 and FND-16 plant the same fault, which breaks nothing in the case of the one."""
    seen, unseen = REAL.project.claim("FND-16"), REAL.project.claim("BUG-04")
    assert seen.fault == unseen.fault is not None
    plans = planned(REAL)
    never, defect = plans[unseen.fault, "never a bug"], plans[unseen.fault, "defect"]
    assert set(seen.killed_by) <= set(defect.checks)
    assert never.tests
    assert not set(never.tests) & set(defect.checks)


def test_where_an_area_has_no_tests_those_of_all_areas_may_give_a_false_alarm(tmp_path: Path) -> None:
    was = 'kind = "null"\narea = "arithmetic"'
    plan = planned(toy_plan(tmp_path, {was: was.replace("arithmetic", "elsewhere")}))["null-add-twice", "null"]
    assert (plan.area, plan.tests) == ("elsewhere", ("tests/test_toy.py", "tests/test_toy.py::test_restore"))


def test_every_fault_of_this_repository_is_planned() -> None:
    """Except for documented fixes that cure, which no test has to detect."""
    cures = {claim.documented_fix for claim in REAL.project.claims if claim.expected_fix_grade == "CURED"}
    assert REAL.has_tests
    assert {fault for fault, _ in planned(REAL)} | (cures - {None}) == set(REAL.project.faults)
    assert all((REAL.root / test.partition("::")[0]).is_file() for test in REAL.columns)


def test_a_file_says_what_was_measured() -> None:
    assert from_json(to_json(MATRIX), PATH) == MATRIX
    assert load(Path("no-such-file.json")) is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (replace(MATRIX, rows=(replace(KILLED, killers=()), SURVIVED)), "forgets: killed, with 0 killers"),
        (replace(MATRIX, rows=(KILLED, replace(SURVIVED, killers=("t.py::test_b",)))), "survived, with 1 killers"),
        (replace(MATRIX, rows=(KILLED, replace(SURVIVED, reached=False))), "survived, but never executed"),
        (replace(MATRIX, rows=(KILLED, KILLED)), "forgets (defect) is in it twice"),
        (replace(MATRIX, tests={"t.py::test_b": "passed"}), "of which nothing is known on healthy code"),
        (replace(MATRIX, tests={"t.py::test_a": "passed"}), "t.py::test_b is named by a document and was not run"),
        (replace(MATRIX, tests={**MATRIX.tests, "t.py::test_c": "skipped"}), "test_c skipped on healthy code"),
        (replace(MATRIX, history=(replace(MATRIX.history[0], healthy="failed"),)), "w.py::test_w failed on healthy"),
    ],
)
def test_what_no_measurement_gives_is_not_believed(changed: Matrix, words: str) -> None:
    with pytest.raises(MatrixError, match=r"matrix\.json") as error:
        from_json(to_json(changed), PATH)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"fate": "killed"', '"fate": "died"', "fate"),
        ('"schema_version": 2', '"schema_version": 1', "schema_version"),
        ('"reached": true', '"reached": 1', "not as it is written"),
        ('"under_test": "core"', '"under_test": "core", "host": "here"', "holds what no measurement writes"),
        ("{", "", "Invalid JSON"),
    ],
)
def test_a_file_that_was_edited_by_hand_is_not_believed(old: str, new: str, words: str, tmp_path: Path) -> None:
    text = to_json(MATRIX)
    assert old in text
    path = tmp_path / "matrix.json"
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(MatrixError) as error:
        load(path)
    assert words in str(error.value)
    assert "rlverify matrix --update" in str(error.value)


def told(matrix: Matrix) -> list[tuple[str, int]]:
    return [(problem.subject, problem.exit_code) for problem in problems_of(matrix)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ((KILLED, SURVIVED), []),
        ((replace(KILLED, fate="survived", killers=()),), [("forgets", 1), ("w.py::test_w", 1)]),
        (
            (KILLED, FaultResult(replace(BUG, fault="half-forgets", kind="fix"), "survived", True)),
            [("half-forgets", 1)],
        ),
        ((KILLED, FaultResult(replace(BUG, fault="unseen", kind="named"), "unreached", False)), [("unseen", 1)]),
        ((KILLED, FaultResult(NULL, "killed", True, ("t.py::test_b",))), [("null-forgets", 1)]),
        ((KILLED, FaultResult(NULL, "unreached", False)), [("null-forgets", 2)]),
        (
            (KILLED, FaultResult(replace(NULL, kind="never a bug"), "killed", True, ("t.py::test_b",))),
            [("null-forgets", 1)],
        ),
    ],
)
def test_a_fault_that_does_not_meet_its_fate_is_a_problem(
    rows: tuple[FaultResult, ...], expected: list[object]
) -> None:
    assert told(replace(MATRIX, rows=rows)) == expected


def test_a_survivor_names_the_test_that_should_have_detected_it() -> None:
    (problem, _) = problems_of(replace(MATRIX, rows=(replace(KILLED, fate="survived", killers=()),)))
    assert str(problem) == "forgets: (defect) SURVIVED: t.py::test_a should have detected it"
    (alarm,) = problems_of(replace(MATRIX, rows=(KILLED, FaultResult(NULL, "killed", True, ("t.py::test_b",)))))
    assert str(alarm) == "null-forgets: (null) a false alarm: t.py::test_b failed"


def test_checks_that_stay_silent_are_told_by_name() -> None:
    plan = replace(BUG, checks=("t.py::test_a[case]", "t.py::test_b", "u.py"))
    row = FaultResult(plan, "killed", True, ("t.py::test_a", "u.py::test_c"))
    assert row.blind == ("t.py::test_b",)


@pytest.mark.parametrize(
    ("fresh", "words"),
    [
        (MATRIX, []),
        (replace(MATRIX, under_test="another"), []),
        (replace(MATRIX, rows=(replace(KILLED, digest="9"), SURVIVED)), ["forgets (defect) has changed"]),
        (
            replace(MATRIX, rows=(replace(KILLED, plan=replace(BUG, claims=("TOY-2",))), SURVIVED)),
            ["forgets (defect) has changed"],
        ),
        (
            replace(MATRIX, rows=(replace(KILLED, fate="survived", killers=()), SURVIVED)),
            ["forgets (defect): survived, committed: killed by 1 tests"],
        ),
        (
            replace(MATRIX, rows=(replace(KILLED, digest="9"), replace(SURVIVED, digest="9"))),
            ["forgets (defect) has changed", "null-forgets (null) has changed"],
        ),
        (replace(MATRIX, rows=(KILLED,)), ["null-forgets (null) is gone"]),
        (replace(MATRIX, tests={**MATRIX.tests, "t.py::test_c": "passed"}), []),
        (replace(MATRIX, suites=()), ["the tests that the documents name have changed"]),
        (
            replace(MATRIX, history=(replace(MATRIX.history[0], faulty="failed"),)),
            ["w.py::test_w under forgets has changed"],
        ),
        (
            replace(MATRIX, history=(replace(MATRIX.history[0], digest="9"),)),
            ["w.py::test_w under forgets has changed"],
        ),
    ],
)
def test_a_fresh_matrix_is_compared_in_all_but_the_code_under_test(fresh: Matrix, words: list[str]) -> None:
    assert [*compare(MATRIX, fresh)] == words


def test_long_lists_are_cut() -> None:
    assert few("abcd") == "a, b, c, d"
    assert few("abcde") == "a, b, c, and 2 more"


def test_json_keeps_no_times_and_no_paths() -> None:
    assert set(json.loads(to_json(MATRIX))) == {"history", "rows", "schema_version", "suites", "tests", "under_test"}


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
        ("tests/bytes.py", "'utf-8' codec can't decode"),
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
    return {problem.subject: problem.sentence for problem in found if problem.subject != "kill-matrix.md"}


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


@pytest.mark.parametrize(
    ("test", "asked"),
    [
        ("a.py::one", "a.py::one"),
        ("a.py::one[x y]", "a.py::one"),
        ("a.py::one", "a.py"),
        ("a.py::One::two[1]", "a.py::One"),
    ],
)
def test_a_case_belongs_to_its_test_and_a_test_to_its_class_and_file(test: str, asked: str) -> None:
    assert is_of(test, asked)
    assert not is_of(test.replace("one", "one_more").replace("One", "OneMore").replace("a.py", "aa.py"), asked)


ABOUT_THE_HARNESS = ("meta", "mutation", "report")
KILLING = sorted({file_of(test) for plan in REAL.plans for test in plan.checks})


def helper_files() -> list[str]:
    """What the killing tests import: every file below tests that is no test, apart from those about the engine."""
    found = [path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("*.py")]
    helping = [path for path in found if path.parts[0] not in ABOUT_THE_HARNESS and not path.name.startswith("test_")]
    return sorted({f"tests/{path.as_posix()}" for path in helping} - {"tests/benchmarks/bench_harness.py"})


def test_the_files_that_tests_import_are_found() -> None:
    assert {"tests/conftest.py", "tests/support/training.py"} <= set(helper_files())


@pytest.mark.parametrize("file", [*KILLING, *helper_files()])
def test_killing_tests_know_nothing_of_faults(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    assert [word for word in ("verification", "rlverify") if word in text] == []


def test_every_confirmed_claim_of_this_repository_names_tests_that_exist() -> None:
    assert [*undetected(REAL)] == []
    bugs = {plan.fault for plan in REAL.plans if plan.kind == "defect"}
    assert {"bug-01-padding-kept-in-predictions", "bug-10-scaler-state-not-saved"} <= bugs
    assert {"BUG-04", "BUG-06"} <= {claim for plan in REAL.plans if plan.kind == "never a bug" for claim in plan.claims}
    assert all(digest_of_test(ROOT, test) for test in REAL.columns)
    assert all(plan.checks for plan in REAL.plans if not plan.must_survive)
    assert all(plan.tests for plan in REAL.plans)


def test_every_test_that_a_claim_names_detects_its_fault_in_the_committed_matrix() -> None:
    """A documented fix is partial, so that one of the tests is enough."""
    content = json.loads((ROOT / "reports" / "matrix.json").read_text(encoding="utf-8"))
    killers = {(row["plan"]["fault"], row["plan"]["kind"]): row["killers"] for row in content["rows"]}
    named = [plan for plan in REAL.plans if plan.kind in ("defect", "named")]
    results = [FaultResult(plan, "killed", True, tuple(killers[plan.fault, plan.kind])) for plan in named]
    assert {row.plan.fault: row.blind for row in results if row.blind} == {}


def test_a_method_that_is_misspelt_is_no_test_though_its_class_exists(tmp_path: Path) -> None:
    (tmp_path / "test_b.py").write_text("class TestF:\n    def test_f(self):\n        pass\n", encoding="utf-8")
    assert digest_of_test(tmp_path, "test_b.py::TestF::test_f")
    with pytest.raises(
        MatrixError, match=r"test_b.py::TestF::test_fff: is not a test: no definition of TestF.test_fff"
    ):
        digest_of_test(tmp_path, "test_b.py::TestF::test_fff")


@pytest.mark.parametrize(("kind", "told"), [("defect", True), ("named", True), ("fix", False)])
def test_every_named_test_must_detect_its_fault(kind: FaultRole, told: bool) -> None:
    plan = FaultPlan(
        "forgets", kind, ("TOY-1",), "state", ("t.py::test_a", "t.py::test_b"), ("t.py::test_a", "t.py::test_b")
    )
    row = FaultResult(plan, "killed", True, ("t.py::test_a",))
    matrix = Matrix("code", (row,), {"t.py::test_a": "passed", "t.py::test_b": "passed"})
    sentence = f"({kind}) named as a test that detects it, but does not: t.py::test_b"
    assert [problem.sentence for problem in problems_of(matrix)] == [sentence] * told


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
