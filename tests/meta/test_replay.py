"""Figures and plots that no run gives are detected by repeating a run of those that a diff touches."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections import Counter
from collections.abc import Container
from pathlib import Path
from typing import Any

import pytest

from rlverify.evidence.evidence_files import load_file, to_json
from rlverify.evidence.figure_evidence import measured_figure
from rlverify.evidence.seals import sealed
from rlverify.gating import replay as replaying
from rlverify.gating.committed_evidence import Committed
from rlverify.gating.replay import replay
from rlverify.project.content import Project, open_project
from rlverify.project.current_code import CurrentCode
from rlverify.running.executors import ProcessExecutor
from rlverify.running.repeated_runs import repeat_runs
from tests.meta.in_process import fresh_projects
from tests.meta.project_folders import once_in_a_process
from tests.meta.test_changes import answer, commit, commit_of_words, copy_project, gate, git, replace

ONE = ProcessExecutor(1)
IGNORED = ".rlverify\n__pycache__\n"
FAULT_OF_MIDDLE = """
from rlverify import fault


@fault("low-only", target="figureproject.target:middle", pins="fccf42d5a485d634")
def low_only(low, high):
    return low
"""


@pytest.fixture(scope="module")
@once_in_a_process
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Git checkout of the project with figures, all measured; treat as read-only."""
    checkout = tmp_path_factory.mktemp("figures")
    copy_project("figureproject", checkout)
    shutil.copytree(
        Path(__file__).parent / "projects/toyproject/plots", checkout / "figureproject/plots", dirs_exist_ok=True
    )
    plots = checkout / "figureproject/plots/squares.py"
    plots.write_text(plots.read_text().replace("toyproject", "figureproject"))
    (checkout / ".gitignore").write_text(IGNORED)
    (checkout / "README.md").write_text("figures\n")
    done = answer(checkout, "audit", "--level", "full", "--update", "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    git(checkout, "init", "--quiet", "--initial-branch", "main")
    commit(checkout, "figures")
    commit_of_words(checkout)
    shutil.rmtree(checkout / ".rlverify")
    return checkout


@pytest.fixture
def checkout(committed: Path, tmp_path: Path) -> Path:
    """A copy of it to be changed."""
    return shutil.copytree(committed, tmp_path / "checkout")


def forge(checkout: Path, claim: str, shift: float, seeds: Container[int] = range(8)) -> None:
    """Other values with the mean, interval, verdict and digest that follow from them, and reports that fit."""
    path = checkout / f"reports/evidence/{claim}.json"
    content = json.loads(path.read_text())
    values = [value + shift * (seed in seeds) for seed, value in enumerate(content["figure"]["values"])]
    found = measured_figure(values, (content["figure"]["claimed"][0], content["figure"]["claimed"][1]))
    content["figure"] |= {name: getattr(found, name) for name in ("values", "mean", "low", "high", "effect_size")}
    content["verdict"] = "CONFIRMED" if found.low >= found.claimed[0] and found.high <= found.claimed[1] else "REFUTED"
    del content["digest"]
    path.write_text(sealed(content))
    assert to_json(load_file(path)) == path.read_text()
    assert answer(checkout, "report").returncode == 0


def full_gate(checkout: Path, *arguments: str) -> tuple[int, str]:
    done = answer(checkout, "gate", "--jobs", "1", *arguments)
    return done.returncode, done.stdout + done.stderr


def test_honest_evidence_in_the_diff_passes(checkout: Path) -> None:
    assert gate(checkout)[0] == 0
    code, said = gate(checkout, "--base", "HEAD")
    assert (code, "measured 0 of 5" in said) == (0, True)


@pytest.mark.parametrize("is_committed", [False, True])
def test_forged_figures_are_detected(checkout: Path, is_committed: bool) -> None:
    """Inside the claimed interval, so that the verdict stays as it is expected."""
    forge(checkout, "FIG-GAIN", 2.0)
    if is_committed:
        commit(checkout, "forged")
    for code, said in (gate(checkout), full_gate(checkout)):
        assert (code, "FIG-GAIN" in said, "repeated runs differ\n  seed" in said) == (1, True, True), said
    assert "measured 1 of 5" in gate(checkout)[1]


@pytest.mark.parametrize("seeds", [(0,), (5,), (1, 3, 5, 7)])
def test_a_figure_of_which_some_runs_are_forged_is_detected(checkout: Path, seeds: tuple[int, ...]) -> None:
    forge(checkout, "FIG-GAIN", 2.0, seeds)
    for arguments in ((), ("--changed",), ("--level", "full"), ("FIG-GAIN", "--level", "full")):
        code, said = full_gate(checkout, *arguments)
        assert (code, "FIG-GAIN" in said, "seed" in said) == (1, True, True), said
        assert "if that is right, run `rlverify audit --level full --update`" in said


def test_the_full_level_compares_runs_one_by_one_only_where_they_repeat(checkout: Path) -> None:
    not_repeating(checkout, "FIG-GAIN")
    commit(checkout, "does not repeat")
    forge(checkout, "FIG-GAIN", 1.5, (3,))
    code, said = full_gate(checkout, "--level", "full")
    assert code == 0, said


def test_a_number_edited_by_hand_is_refused_whatever_else_fits(checkout: Path) -> None:
    path = checkout / "reports/evidence/FIG-GAIN.json"
    replace(path, '"mean": 20.0', '"mean": 20.1')
    for command in ("gate", "report"):
        done = answer(checkout, command)
        assert (done.returncode, "was edited after it was measured" in done.stderr) == (2, True)


def test_a_mean_that_its_values_do_not_give_is_refused(checkout: Path) -> None:
    path = checkout / "reports/evidence/FIG-GAIN.json"
    content = json.loads(path.read_text())
    content["figure"]["mean"] = 20.1
    del content["digest"]
    path.write_text(sealed(content))
    done = answer(checkout, "gate")
    assert (done.returncode, "says mean 20.1, but its 8 values give 20.0" in done.stderr) == (2, True)


def not_repeating(checkout: Path, claim: str) -> None:
    path = checkout / "figureproject/catalogue/figures.toml"
    text = path.read_text()
    head, found, tail = text.partition(f'id = "{claim}"')
    path.write_text(head + found + tail.replace("power = 0.8\n", "power = 0.8\nrepeats = false\n", 1))


def test_the_mean_of_repeated_runs_decides_where_single_runs_do_not_repeat(checkout: Path) -> None:
    not_repeating(checkout, "FIG-GAIN")
    commit(checkout, "does not repeat")
    forge(checkout, "FIG-GAIN", 0.3)  # as another machine might give
    assert full_gate(checkout)[0] == 0
    forge(checkout, "FIG-GAIN", 1.7)
    code, said = full_gate(checkout)
    assert (code, "FIG-GAIN" in said, "a mean of 20" in said) == (1, True, True), said


def test_a_crash_among_repeated_runs_is_a_problem_whatever_the_others_give(checkout: Path) -> None:
    not_repeating(checkout, "FIG-GAIN")
    forge(checkout, "FIG-GAIN", 0.3)
    path = checkout / "figureproject/experiments/values.py"
    replace(path, '    _behave("transfer", seed)\n', "    assert seed != 3, 'boom'\n")
    code, said = full_gate(checkout)
    assert (code, "a repeated run crashes\n  seed 3: AssertionError: boom" in said) == (1, True), said


def test_of_a_figure_that_repeats_one_run_is_enough(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge(checkout, "FIG-GAIN", 1.7)
    monkeypatch.setenv("FIGURELAB_LOG", str(tmp_path / "log"))
    assert full_gate(checkout)[0] == 1
    made = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("transfer ")]
    assert len(made) == 1


def test_a_function_that_an_import_executes_counts_for_a_figure_that_is_measured_alone(checkout: Path) -> None:
    with (checkout / "figureproject/target.py").open("a") as file:
        file.write("\n\ndef _limit():\n    return 3\n\n\nLIMIT = _limit()\n")
    alone = ("audit", "FIG-GAIN", "--level", "full", "--update", "--jobs", "1")
    assert answer(checkout, *alone).returncode == 0
    executed = json.loads((checkout / "reports/digests.json").read_text())["executed"]["figureproject.target"]
    assert [each["claims"] for each in executed if "_limit" in each["functions"].split()] == ["FIG-GAIN"]


def test_a_crash_of_one_figure_leaves_the_others_to_be_compared(checkout: Path) -> None:
    not_repeating(checkout, "FIG-GAIN")
    forge(checkout, "FIG-GAIN", 1.7)
    replace(
        checkout / "figureproject/experiments/values.py", '    _behave("same-arms", seed)\n', "    raise ValueError\n"
    )
    told: list[tuple[int, int]] = []
    with fresh_projects():
        project = open_project(checkout)
        committed = Committed(project, project.paths, CurrentCode(project))
        figures = [(project.claim(name), committed.evidence[name]) for name in ("FIG-BETTER", "FIG-GAIN")]
        found = replay(committed, figures, executor=ONE, on_progress=lambda *each: told.append(each))
    crashed, differs = found.problems
    assert (crashed.subject, crashed.sentence.partition(": seed")[0]) == ("FIG-BETTER", "a repeated run crashes")
    assert (differs.subject, differs.sentence.startswith("repeated runs differ: a mean of 20")) == ("FIG-GAIN", True)
    assert {(runs, 9) for runs in range(3, 10)} <= {*told}  # the two first runs, and the seven others of FIG-GAIN


def test_after_a_crash_no_further_run_is_made(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    not_repeating(checkout, "FIG-GAIN")
    path = checkout / "figureproject/experiments/values.py"
    replace(path, '    _behave("transfer", seed)\n', '    _behave("transfer", seed)\n    raise ValueError\n')
    monkeypatch.setenv("FIGURELAB_LOG", str(tmp_path / "log"))
    assert full_gate(checkout)[0] == 1
    made = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("transfer ")]
    assert 1 <= len(made) <= 3  # one for each figure of the experiment


def test_figures_of_one_experiment_may_ask_for_different_numbers_of_runs(checkout: Path) -> None:
    """The one with fewer runs is the last that asks."""
    for claim in ("FIG-GAIN", "FIG-SPIKE"):
        not_repeating(checkout, claim)
    commit(checkout, "do not repeat")
    replace(checkout / "figureproject/experiments/values.py", "random.Random(seed).uniform(-1, 1)", "9.0 + seed")
    code, said = full_gate(checkout)
    assert (code, "FIG-GAIN" in said, "FIG-SPIKE" in said) == (1, True, True), said


def test_no_run_is_repeated_twice(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    not_repeating(checkout, "FIG-GAIN")
    commit(checkout, "does not repeat")
    forge(checkout, "FIG-GAIN", 1.7)
    monkeypatch.setenv("FIGURELAB_LOG", str(tmp_path / "log"))
    assert full_gate(checkout)[0] == 1
    made = [line.rpartition(" ")[0] for line in (tmp_path / "log").read_text().splitlines()]
    assert max(Counter(made).values()) == 1
    assert {f"transfer {seed}" for seed in range(8)} <= {*made}


def test_figures_of_one_experiment_share_the_time_of_its_runs(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, int] = {}
    told: list[tuple[int, int]] = []

    def timed(project: Project, root: Path, seeds: dict[str, list[int]], *others: Any, **options: Any) -> Any:
        asked.update({name: len(each) for name, each in seeds.items()})
        runs = repeat_runs(project, root, seeds, *others, **options)
        return {key: dataclasses.replace(run, seconds=3.0) for key, run in runs.items()}

    monkeypatch.setattr(replaying, "repeat_runs", timed)
    with fresh_projects():
        project = open_project(checkout)
        committed = Committed(project, project.paths, CurrentCode(project))
        figures = [(claim, committed.evidence[claim.id]) for claim in project.claims if claim.figure is not None]
        seconds = replay(committed, figures, executor=ONE, on_progress=lambda *each: told.append(each)).seconds
    runs = asked["transfer"] + 1
    assert sorted(told) == told
    assert {(done, runs) for done in range(1, runs + 1)} <= {*told}
    shared = float(asked["transfer"])
    assert seconds == {"FIG-GAIN": shared, "FIG-SPIKE": shared, "FIG-DRIFT": shared, "FIG-BETTER": 3.0}


def test_a_change_that_moves_a_figure_is_detected_at_the_quick_level(checkout: Path) -> None:
    replace(checkout / "figureproject/target.py", "(low + high) / 2", "(low + high) / 2.2")
    code, said = full_gate(checkout)
    assert (code, "FIG-GAIN" in said, "first suspect: figureproject/target.py:6 (changed)" in said) == (1, True, True)
    assert "audit --level full --update" not in said.split("LAB-01")[0]


def test_a_change_that_moves_no_value_is_one_line_and_passes(checkout: Path) -> None:
    replace(checkout / "figureproject/target.py", "return (low + high) / 2", "total = low + high\n    return total / 2")
    code, said = full_gate(checkout)
    told = "digests only: figureproject.target:middle changed since 5 claims were measured, and what was measured again"
    assert (code, told in said) == (0, True), said
    before = {path: path.read_bytes() for path in sorted((checkout / "reports").rglob("*.*"))}
    assert answer(checkout, "audit", "--level", "full", "--update", "--jobs", "1").returncode == 0
    changed = [path.name for path, content in before.items() if path.read_bytes() != content]
    assert changed == ["digests.json"]
    code, said = full_gate(checkout)
    assert (code, "digests only" in said) == (0, False)


def test_a_renamed_local_variable_is_no_line_at_all(checkout: Path) -> None:
    path = checkout / "figureproject/probes/values.py"
    path.write_text(
        path.read_text().replace("found", "number").replace("Observation(", "Observation(  # here\n        ")
    )
    quiet = full_gate(checkout)
    assert (quiet[0], "digests only" in quiet[1]) == (0, False)


def test_an_experiment_that_crashes_when_it_is_repeated_is_told(checkout: Path) -> None:
    path = checkout / "figureproject/experiments/values.py"
    replace(path, '    _behave("transfer", seed)\n', "    raise ZeroDivisionError(seed)\n")
    code, said = full_gate(checkout)
    assert (code, "ZeroDivisionError" in said) == (1, True), said


def test_an_experiment_may_plant_a_fault_by_name(checkout: Path) -> None:
    """It is repeated in a process of its own, in which no claim has asked for the faults before."""
    (checkout / "figureproject/faults/middles.py").write_text(FAULT_OF_MIDDLE)
    path = checkout / "figureproject/experiments/values.py"
    replace(path, "from rlverify import experiment", "from rlverify import experiment, get_fault, plant")
    replace(path, '    _behave("transfer", seed)\n', '    with plant(get_fault("low-only")):\n        pass\n')
    code, said = full_gate(checkout)
    assert (code, "digests only" in said) == (0, True), said


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("x * x for", "x * x / 0 for", "ZeroDivisionError"),
        ("return Plot", "_ = Plot", "ProbeError: plot 'toy-squares' returned None; return a Plot"),
        ("return Plot(", "return Plot and (", "ProbeError: plot 'toy-squares' returned ('Squares', "),
        (
            "    positions =",
            "    __import__('os').kill(__import__('os').getpid(), 9)\n    positions =",
            "the process of this run was killed by signal 9 (Killed)",
        ),
    ],
    ids=["error", "nothing", "no plot", "killed"],
)
def test_a_crash_of_a_plot_is_a_problem_of_the_code(checkout: Path, old: str, new: str, error: str) -> None:
    replace(checkout / "figureproject/plots/squares.py", old, new)
    code, said = full_gate(checkout)
    assert (code, f"plots/toy-squares.json: measured again, crashes: {error}" in said) == (1, True), said
    assert said.splitlines()[-1].endswith("claims as expected; something else failed, see above")
    before = (checkout / "reports/plots/toy-squares.json").read_bytes()
    done = answer(checkout, "audit", "--update", "--jobs", "1")
    assert (done.returncode, f"plot 'toy-squares': {error}" in done.stderr) == (2, True), done.stderr
    assert (checkout / "reports/plots/toy-squares.json").read_bytes() == before


@pytest.mark.parametrize("command", [("gate",), ("audit", "--update")])
def test_code_that_changes_while_a_plot_is_measured_is_told(command: tuple[str, ...], checkout: Path) -> None:
    edit = "target = __import__('pathlib').Path(__file__).parents[1] / 'target.py'\n"
    edit += "    target.write_text(target.read_text() + 'ADDED = 1\\n')\n    positions ="
    replace(checkout / "figureproject/plots/squares.py", "positions =", edit)
    before = (checkout / "reports/plots/toy-squares.json").read_bytes()
    done = answer(checkout, *command, "--jobs", "1")
    assert (done.returncode, "figureproject.target was changed while it was measured" in done.stderr) == (2, True)
    assert (checkout / "reports/plots/toy-squares.json").read_bytes() == before


def test_a_forged_plot_is_detected_once_it_is_in_the_diff(checkout: Path) -> None:
    path = checkout / "reports/plots/toy-squares.json"
    content = json.loads(path.read_text())
    content["lines"][0]["values"][3] = 18.0
    del content["digest"]
    path.write_text(sealed(content))
    assert answer(checkout, "report").returncode == 0
    commit(checkout, "forged")
    for code, said in (gate(checkout), full_gate(checkout)):
        assert (code, "line 'x^2' is 9.0 at 3, committed 18.0" in said) == (1, True), said


def test_an_edited_plot_is_refused(checkout: Path) -> None:
    path = checkout / "reports/plots/toy-squares.json"
    replace(path, "9.0", "18.0")
    done = answer(checkout, "gate")
    assert (done.returncode, "was edited after it was measured" in done.stderr) == (2, True)


def test_a_plot_of_other_code_with_the_same_points_is_kept(checkout: Path) -> None:
    path = checkout / "reports/plots/toy-squares.json"
    before = path.read_bytes()
    replace(checkout / "figureproject/plots/squares.py", "x * x for", "x * x * 1 for")
    assert full_gate(checkout)[0] == 0
    assert answer(checkout, "audit", "--level", "full", "--update", "--jobs", "1").returncode == 0
    assert path.read_bytes() == before
