"""The kill matrix on paper: what is planned, what a file may say, and what is wrong with a matrix."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rlverify.kill_matrix.committed import compare, few, problems_of
from rlverify.kill_matrix.matrix_file import from_json, load, to_json
from rlverify.kill_matrix.plan import MatrixPlan
from rlverify.project.content import Project
from rlverify.records.errors import MatrixError
from rlverify.records.matrix import FaultPlan, FaultResult, Matrix, MatrixDigests, NamedSuite, WeakTest, WeakTestResult

REAL = MatrixPlan(Project())
PATH = Path("matrix.json")
BUG = FaultPlan("forgets", "defect", ("TOY-1",), "state", ("t.py::test_a",), ("t.py::test_a", "t.py::test_b"))
NULL = FaultPlan("null-forgets", "null", ("NULL-1",), "state", (), ("t.py::test_a", "t.py::test_b"))
KILLED = FaultResult(BUG, "killed", True, ("t.py::test_a",))
SURVIVED = FaultResult(NULL, "survived", reached=True)
WEAK = WeakTest("w.py::test_w", "forgets", "told", "blind")
MATRIX = Matrix(
    MatrixDigests("core", {"faults": "1"}, {"t.py": "2"}),
    (KILLED, SURVIVED),
    {"t.py::test_a": "passed", "t.py::test_b": "passed"},
    (NamedSuite("002", "t.py", ("t.py::test_b",)),),
    (WeakTestResult(WEAK, "passed", "passed", reached=False),),
)


def planned(matrix_plan: MatrixPlan) -> dict[tuple[str, str], FaultPlan]:
    return {(plan.fault, plan.kind): plan for plan in matrix_plan.plans}


def test_every_fault_is_planned_in_each_of_its_roles(toyproject: Project, tmp_path: Path) -> None:
    names = tmp_path / "tests" / "meta" / "named_tests.toml"
    names.parent.mkdir(parents=True)
    names.write_text(
        '[[suite]]\ndocument = "002"\nfile = "tests/a.py"\n[suite.tests]\n'
        '"test_mean" = ["mean-of-nothing", "add-twice"]\n',
        encoding="utf-8",
    )
    matrix_plan = MatrixPlan(toyproject, tmp_path)
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


def test_a_documented_fix_that_cures_is_not_planted(toyproject: Project, tmp_path: Path) -> None:
    for path in (toyproject.folder / "catalogue").iterdir():
        text = path.read_text(encoding="utf-8").replace('"PARTIAL"', '"CURED"')
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    kinds = {plan.kind for plan in MatrixPlan(replace(toyproject, catalogue=tmp_path)).plans}
    assert kinds == {"defect", "never a bug", "null"}


@pytest.mark.parametrize(("grade", "kind"), [("NO EFFECT", "never a bug"), ("HARMFUL", "fix")])
def test_the_fix_of_a_bug_that_never_was_must_survive_unless_it_harms(
    grade: str, kind: str, toyproject: Project, tmp_path: Path
) -> None:
    for path in (toyproject.folder / "catalogue").iterdir():
        text = path.read_text(encoding="utf-8")
        fix = f'documented_fix = "clip-one-sided"\nfix_statement = "-"\nexpected_fix_grade = "{grade}"'
        fixed = text.replace('fault = "clip-other-order"', f'fault = "clip-other-order"\n{fix}')
        (tmp_path / path.name).write_text(fixed, encoding="utf-8")
    plans = planned(MatrixPlan(replace(toyproject, catalogue=tmp_path)))
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


def test_where_an_area_has_no_tests_those_of_all_areas_may_cry_wolf(toyproject: Project, tmp_path: Path) -> None:
    for path in (toyproject.folder / "catalogue").iterdir():
        before, null, after = path.read_text(encoding="utf-8").partition('id = "NULL-TOY"')
        text = before + null + after.replace('"arithmetic"', '"elsewhere"', 1) if null else before
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    plan = planned(MatrixPlan(replace(toyproject, catalogue=tmp_path)))["null-add-twice", "null"]
    assert (plan.area, plan.tests) == ("elsewhere", ("tests/test_toy.py", "tests/test_toy.py::test_restore"))


def test_every_fault_of_the_real_laboratory_is_planned() -> None:
    """But for documented fixes that cure, which must be noticed by nobody and fail no test."""
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
        (replace(MATRIX, rows=(KILLED, KILLED)), "forgets (defect) stands in it twice"),
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
        ('"schema_version": 1', '"schema_version": 2', "schema_version"),
        ('"reached": true', '"reached": 1', "not as it is written"),
        ('"core": "core"', '"core": "core", "host": "here"', "holds what no measurement writes"),
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
        ((KILLED, FaultResult(replace(BUG, fault="half-forgets", kind="fix"), "survived", True)), [("half-forgets", 1)]),
        ((KILLED, FaultResult(replace(BUG, fault="unseen", kind="named"), "unreached", False)), [("unseen", 1)]),
        ((KILLED, FaultResult(NULL, "killed", True, ("t.py::test_b",))), [("null-forgets", 1)]),
        ((KILLED, FaultResult(NULL, "unreached", False)), [("null-forgets", 2)]),
        ((KILLED, FaultResult(replace(NULL, kind="never a bug"), "killed", True, ("t.py::test_b",))), [("null-forgets", 1)]),
    ],
)
def test_a_fault_that_does_not_meet_its_fate_is_a_problem(rows: tuple[FaultResult, ...], expected: list[object]) -> None:
    assert told(replace(MATRIX, rows=rows)) == expected


def test_a_survivor_names_who_should_have_noticed() -> None:
    (problem, _) = problems_of(replace(MATRIX, rows=(replace(KILLED, fate="survived", killers=()),)))
    assert str(problem) == "forgets: (defect) SURVIVED: t.py::test_a should have noticed"
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
        (replace(MATRIX, digests=replace(MATRIX.digests, core="another")), []),
        (replace(MATRIX, digests=replace(MATRIX.digests, tests={"t.py": "3"})), ["t.py has changed"]),
        (replace(MATRIX, digests=replace(MATRIX.digests, faults={})), ["faults is gone"]),
        (
            replace(MATRIX, rows=(replace(KILLED, fate="survived", killers=()), SURVIVED)),
            ["forgets (defect): survived instead of killed by 1 tests"],
        ),
        (replace(MATRIX, rows=(KILLED,)), ["null-forgets (null) is gone"]),
        (replace(MATRIX, tests={**MATRIX.tests, "t.py::test_c": "passed"}), ["t.py::test_c is new"]),
        (replace(MATRIX, suites=()), ["the tests that the documents name have changed"]),
        (
            replace(MATRIX, history=(replace(MATRIX.history[0], faulty="failed"),)),
            ["w.py::test_w under forgets has changed"],
        ),
    ],
)
def test_a_fresh_matrix_is_compared_in_all_but_the_core(fresh: Matrix, words: list[str]) -> None:
    assert [*compare(MATRIX, fresh)] == words


def test_long_lists_are_cut() -> None:
    assert few("abcd") == "a, b, c, d"
    assert few("abcde") == "a, b, c, and 2 more"


def test_json_keeps_no_times_and_no_paths() -> None:
    assert set(json.loads(to_json(MATRIX))) == {"digests", "history", "rows", "schema_version", "suites", "tests"}
