"""The kill matrix on paper: what is planned, what a file may say, and what is wrong with a matrix."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rlverify.evidence.files import canonical_json
from rlverify.kill_matrix.committed import load_matrix, matrix_json, problems_of, undetected
from rlverify.kill_matrix.plan import MatrixPlan, require_test
from rlverify.project.content import Project, open_project
from rlverify.records.errors import MatrixError
from rlverify.records.matrix import Fate, FaultPlan, FaultResult, FaultRole, Matrix, NamedSuite, is_of
from tests.engine.project_folders import planned, toy_plan

ROOT = Path(__file__).parents[3]
REAL = MatrixPlan(open_project(ROOT))
BUG = FaultPlan("forgets", "defect", ("TOY-1",), "state", ("t.py::test_a",), ("t.py::test_a", "t.py::test_b"))
NULL = FaultPlan("null-forgets", "null", ("NULL-1",), "state", (), ("t.py::test_a", "t.py::test_b"))
KILLED = FaultResult(BUG, "killed", True, ("t.py::test_a",), "1")
SURVIVED = FaultResult(NULL, "survived", reached=True)
MATRIX = Matrix(
    "core",
    (KILLED, SURVIVED),
    {"t.py::test_a": "passed", "t.py::test_b": "passed"},
    (NamedSuite("002", "t.py", ("t.py::test_b",)),),
)


ADVICE = 'add killed_by = ["tests/..."] to TOY-1, with a test that fails when it is planted'


def file_of(test: str) -> str:
    return test.partition("::")[0]


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


def test_a_bug_that_never_was_is_not_asked_of_the_tests_that_detect_it_in_another_claim(tmp_path: Path) -> None:
    plans = planned(toy_plan(tmp_path, {'fault = "clip-other-order"': 'fault = "restored-forgets"'}))
    never, defect = plans["restored-forgets", "never a bug"], plans["restored-forgets", "defect"]
    assert defect.checks == ("tests/test_toy.py::test_restore",)
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
    assert all((REAL.root / test.partition("::")[0]).is_file() for plan in REAL.plans for test in plan.tests)


def test_a_file_says_what_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "matrix.json"
    path.write_text(matrix_json(MATRIX), encoding="utf-8")
    assert load_matrix(path) == MATRIX
    assert load_matrix(Path("no-such-file.json")) is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"fate": "killed"', '"fate": "died"', "fate"),
        ('"schema_version": 4', '"schema_version": 1', "schema_version"),
        ('"reached": true', '"reached": 1', "or was edited"),
        ('"measured": "core"', '"measured": "core", "host": "here"', "holds what no measurement writes"),
        ("{", "", "Invalid JSON"),
    ],
)
def test_a_file_that_was_edited_by_hand_is_not_believed(old: str, new: str, words: str, tmp_path: Path) -> None:
    text = matrix_json(MATRIX)
    assert old in text
    path = tmp_path / "matrix.json"
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(MatrixError) as error:
        load_matrix(path)
    assert words in str(error.value)
    assert "rlverify matrix --update" in str(error.value)


def told(matrix: Matrix) -> list[tuple[str, int]]:
    return [(problem.subject, problem.exit_code) for problem in problems_of(matrix)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ((KILLED, SURVIVED), []),
        ((replace(KILLED, fate="survived", killers=()),), [("forgets", 1)]),
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


@pytest.mark.parametrize(
    ("checks", "fate", "sentence"),
    [
        ((), "unreached", f"UNREACHED: no test of area 'state' runs it; {ADVICE}"),
        ((), "survived", f"SURVIVED: no test of area 'state' detects it; {ADVICE}"),
        (
            ("t.py::test_a",),
            "unreached",
            "UNREACHED: t.py::test_a should have detected it, but no test runs it; "
            "call the code that it replaces in the test, or correct its target",
        ),
    ],
)
def test_a_fault_that_no_test_runs_or_detects_asks_for_one(checks: tuple[str, ...], fate: Fate, sentence: str) -> None:
    row = FaultResult(replace(BUG, fault="half-forgets", checks=checks), fate, fate == "survived")
    (problem,) = problems_of(replace(MATRIX, rows=(KILLED, row)))
    assert str(problem) == f"half-forgets: (defect) {sentence}"


def test_checks_that_stay_silent_are_told_by_name() -> None:
    plan = replace(BUG, checks=("t.py::test_a[case]", "t.py::test_b", "u.py"))
    row = FaultResult(plan, "killed", True, ("t.py::test_a", "u.py::test_c"))
    assert row.blind == ("t.py::test_b",)


def test_a_fate_that_was_edited_by_hand_is_refused(tmp_path: Path) -> None:
    """One that fits all other fields, as whoever wants a fault to count as detected would write it."""
    content = json.loads(matrix_json(MATRIX))
    survivor = next(row for row in content["rows"] if row["fate"] == "survived")
    survivor.update(fate="killed", killers=[min(content["tests"])])
    path = tmp_path / "matrix.json"
    path.write_text(canonical_json(content), encoding="utf-8")
    with pytest.raises(MatrixError, match="or was edited; measure it again"):
        load_matrix(path)


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


ABOUT_THE_HARNESS = ("benchmarks", "content", "engine", "mutation")
KILLING = sorted({file_of(test) for plan in REAL.plans for test in plan.checks})


def helper_files() -> list[str]:
    """What the killing tests import: every file below tests that is no test, apart from those about the engine."""
    found = [path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("*.py")]
    helping = [path for path in found if path.parts[0] not in ABOUT_THE_HARNESS and not path.name.startswith("test_")]
    return sorted(f"tests/{path.as_posix()}" for path in helping)


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
    assert {"BUG-06", "PPO-06-2"} <= {
        claim for plan in REAL.plans if plan.kind == "never a bug" for claim in plan.claims
    }
    for test in {test for plan in REAL.plans for test in plan.tests}:
        require_test(ROOT, test)
    assert all(plan.checks for plan in REAL.plans if not plan.must_survive)
    assert all(plan.tests for plan in REAL.plans)


def test_every_test_that_a_claim_names_detects_its_fault_in_the_committed_matrix() -> None:
    """A documented fix is partial, so that one of the tests is enough."""
    content = json.loads((ROOT / "reports" / "matrix.json").read_text(encoding="utf-8"))
    killers = {(row["plan"]["fault"], row["plan"]["kind"]): row["killers"] for row in content["rows"]}
    named = [plan for plan in REAL.plans if plan.kind in ("defect", "named")]
    results = [FaultResult(plan, "killed", True, tuple(killers[plan.fault, plan.kind])) for plan in named]
    assert {row.plan.fault: row.blind for row in results if row.blind} == {}


@pytest.mark.parametrize(("kind", "told"), [("defect", True), ("named", True), ("fix", False)])
def test_every_named_test_must_detect_its_fault(kind: FaultRole, told: bool) -> None:
    plan = FaultPlan(
        "forgets", kind, ("TOY-1",), "state", ("t.py::test_a", "t.py::test_b"), ("t.py::test_a", "t.py::test_b")
    )
    row = FaultResult(plan, "killed", True, ("t.py::test_a",))
    matrix = Matrix("code", (row,), {"t.py::test_a": "passed", "t.py::test_b": "passed"})
    sentence = f"({kind}) named as a test that detects it, but does not: t.py::test_b"
    assert [problem.sentence for problem in problems_of(matrix)] == [sentence] * told
