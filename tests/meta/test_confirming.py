"""A repeated run that gives exactly the committed value confirms a figure of changed code; no other does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rlverify.evidence.evidence_files import load_file
from rlverify.evidence.figure_evidence import is_committed_value, measured_figure
from rlverify.gating.committed_evidence import Committed
from rlverify.gating.confirming import can_be_confirmed, told_by
from rlverify.gating.replay import repeated_seed
from rlverify.project.content import open_project
from rlverify.project.current_code import CurrentCode
from rlverify.records.measured import Evidence
from rlverify.reporting.record import Record
from tests.meta.in_process import fresh_projects
from tests.meta.project_folders import once_in_a_process
from tests.meta.test_changes import answer, commit, copy_project, gate, git, replace

TARGET = "figureproject/target.py"
VALUES = "figureproject/experiments/values.py"
HALVES = ("(low + high) / 2", "low / 2 + high / 2")
"""The same number, computed in another way."""
STALE = "kept, though code that they executed has changed, and no repeated run confirms them"
CONFIRMED = "kept, as a repeated run of the code of today gives exactly the committed value"
NOISE = "make.middle(19, 21) + noise"
IMPORT = "from figureproject.probes.make import Make"
OF_TRANSFER = ["FIG-DRIFT", "FIG-GAIN", "FIG-SPIKE"]
FAR = """

def far(seed: int) -> float:
    return further(seed) / 100


def further(seed: int) -> int:
    return seed


def not_called() -> None: ...
"""
OTHER_SEED = 7
"""One that is not repeated."""


@pytest.fixture(scope="module")
@once_in_a_process
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Git checkout of the project with figures, all measured; treat as read-only."""
    checkout = tmp_path_factory.mktemp("confirmed")
    copy_project("figureproject", checkout)
    (checkout / ".gitignore").write_text(".rlverify\n__pycache__\n")
    replace(checkout / VALUES, '"drift": 15 + 5 * noise', '"drift": 15 + 5 * noise, "fall": 15 + 5 * noise')
    replace(checkout / VALUES, IMPORT, f"{IMPORT}\nfrom figureproject import target")
    with (checkout / TARGET).open("a") as file:
        file.write(FAR)
    git(checkout, "init", "--quiet", "--initial-branch", "main")
    measure_all(checkout)
    assert all(
        repeated_seed(load_file(checkout / f"reports/evidence/{each}.json")) != OTHER_SEED for each in OF_TRANSFER
    )
    return checkout


def measure_all(checkout: Path) -> None:
    done = answer(checkout, "audit", "--level", "full", "--update", "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    commit(checkout, "figures")
    shutil.rmtree(checkout / ".rlverify")


@pytest.fixture
def checkout(committed: Path, tmp_path: Path) -> Path:
    """A copy of it to be changed."""
    return shutil.copytree(committed, tmp_path / "checkout")


def update(checkout: Path, *arguments: str) -> tuple[int, str]:
    done = answer(checkout, "audit", *arguments, "--update", "--jobs", "1")
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def lock_of(checkout: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((checkout / "reports/digests.json").read_text())
    return found


def marked(checkout: Path, mark: str) -> list[str]:
    return sorted(name for name, entry in lock_of(checkout)["claims"].items() if mark in entry)


def of_target(checkout: Path, kind: str) -> set[str]:
    """Functions of the target that runs of FIG-GAIN executed, or may execute."""
    groups = lock_of(checkout).get(kind, {}).get("figureproject.target", [])
    return {name for each in groups if "FIG-GAIN" in each["claims"].split() for name in each["functions"].split()}


def changed_files(checkout: Path) -> list[str]:
    return git(checkout, "diff", "--name-only", "HEAD", "--", "reports").split()


def runs_made(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_code_that_gives_the_same_value_confirms_figures_and_changes_no_evidence(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs of FIG-BETTER all have the same value, so that one of them tells nothing."""
    replace(checkout / TARGET, *HALVES)
    monkeypatch.setenv("FIGURELAB_LOG", str(tmp_path / "log"))
    code, said = update(checkout)
    assert code == 0
    assert f"FIG-GAIN, FIG-SPIKE, FIG-DRIFT: {CONFIRMED}" in said
    assert f"FIG-BETTER: {STALE}" in said
    assert (marked(checkout, "outdated"), marked(checkout, "repeated")) == (["FIG-BETTER"], OF_TRANSFER)
    assert changed_files(checkout) == ["reports/digests.json", "reports/index.md"]
    index = (checkout / "reports/index.md").read_text()
    assert "with older code, of which one run was repeated with this code: 3." in index
    assert 1 <= runs_made(tmp_path / "log") <= 3
    commit(checkout, "other code")
    (tmp_path / "log").unlink()
    assert CONFIRMED not in update(checkout)[1]
    code, told = gate(checkout, "--base", "HEAD")
    assert (code, "measured 1 of 5" in told, runs_made(tmp_path / "log")) == (0, True, 1), told


def test_a_confirmed_figure_is_repeated_by_the_gate_that_sees_it_in_the_difference(checkout: Path) -> None:
    replace(checkout / TARGET, *HALVES)
    update(checkout)
    assert marked(checkout, "outdated") == ["FIG-BETTER"]
    commit(checkout, "other code")
    code, said = gate(checkout)
    assert (code, "measured 5 of 5" in said) == (0, True), said


def test_a_full_audit_ends_the_mark_and_has_its_own_day(checkout: Path) -> None:
    path = checkout / "reports/digests.json"
    day = lock_of(checkout)["full_audit"]
    path.write_text(path.read_text().replace(day, "2000-01-02"))
    replace(checkout / TARGET, *HALVES)
    update(checkout)
    assert (lock_of(checkout)["full_audit"], marked(checkout, "repeated")) == ("2000-01-02", OF_TRANSFER)
    measure_all(checkout)
    assert (lock_of(checkout)["full_audit"], marked(checkout, "repeated")) == (day, [])


def test_a_value_that_differs_in_its_last_digit_confirms_nothing(checkout: Path) -> None:
    """The gate takes it for that of another machine."""
    replace(checkout / TARGET, HALVES[0], "(low + high) / 2 + 0.002")
    code, said = update(checkout, "FIG-GAIN")
    assert (code, f"FIG-GAIN: {STALE}" in said, "FIG-GAIN" in marked(checkout, "outdated")) == (0, True, True)


def test_another_value_or_a_crash_is_a_problem(checkout: Path) -> None:
    replace(checkout / TARGET, HALVES[0], "(low + high) / 2.2")
    code, said = update(checkout, "FIG-GAIN")
    assert (code, "repeated runs differ seed 6 gives 18.7" in said, f"FIG-GAIN: {STALE}" in said) == (1, True, True), (
        said
    )
    replace(checkout / TARGET, "return (low + high) / 2.2", "raise ValueError(low)")
    code, said = update(checkout, "FIG-GAIN")
    assert (code, "a repeated run crashes seed 6: ValueError: 19" in said, f"FIG-GAIN: {STALE}" in said) == (
        1,
        True,
        True,
    ), said


@pytest.mark.parametrize(
    "more", ["target.far(seed)", "len(Path(__file__).with_name('data.txt').read_text())"], ids=["function", "file"]
)
def test_a_run_confirms_nothing_if_others_executed_or_read_more(checkout: Path, more: str) -> None:
    (checkout / "figureproject/experiments/data.txt").write_text("1234")
    replace(checkout / VALUES, NOISE, f"{NOISE} + ({more} if seed == {OTHER_SEED} else 0)")
    measure_all(checkout)
    assert ("far" in of_target(checkout, "executed")) == ("far" in more)
    replace(checkout / TARGET, *HALVES)
    code, said = update(checkout, *OF_TRANSFER)
    assert (code, f"FIG-GAIN, FIG-SPIKE, FIG-DRIFT: {STALE}" in said) == (0, True), said


def test_a_run_that_starts_another_process_confirms_nothing(checkout: Path) -> None:
    replace(checkout / VALUES, f"{IMPORT}\n", f"import subprocess\n{IMPORT}\n")
    replace(checkout / VALUES, '    print("an', '    subprocess.run(["true"], check=True)\n    print("an')
    measure_all(checkout)
    replace(checkout / TARGET, *HALVES)
    assert f"FIG-GAIN: {STALE}" in update(checkout, "FIG-GAIN")[1]
    assert f"FIG-GAIN: {STALE}" in update(checkout, "FIG-GAIN")[1], "the run that is kept"


def test_a_run_that_is_kept_confirms_and_is_made_again_if_no_cache_is_to_be_used(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace(checkout / TARGET, *HALVES)
    update(checkout, "FIG-GAIN")
    monkeypatch.setenv("FIGURELAB_LOG", str(tmp_path / "log"))
    for arguments, runs in (((), 0), (("--ignore-cache",), 1)):
        git(checkout, "checkout", "--quiet", "--", "reports")
        assert f"FIG-GAIN: {CONFIRMED}" in update(checkout, "FIG-GAIN", *arguments)[1]
        assert runs_made(tmp_path / "log") == runs, arguments


def test_the_run_that_confirms_has_a_value_of_its_own(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate would repeat another, whose value six of the eight runs have."""
    replace(checkout / VALUES, "random.Random(seed)", "random.Random(min(seed, 2))")
    measure_all(checkout)
    assert repeated_seed(load_file(checkout / "reports/evidence/FIG-GAIN.json")) >= 2
    replace(checkout / TARGET, *HALVES)
    monkeypatch.setenv("FIGURELAB_LOG", str(tmp_path / "log"))
    assert f"FIG-GAIN: {CONFIRMED}" in update(checkout, "FIG-GAIN")[1]
    (run,) = (tmp_path / "log").read_text().splitlines()
    assert int(run.split()[1]) < 2


def test_the_gate_advises_the_update_that_suffices(checkout: Path) -> None:
    replace(checkout / VALUES, '"drift": 15 + 5 * noise', '"drift": 5 * noise + 15')
    assert "measured again agrees; run `rlverify audit --update`" in gate(checkout)[1]
    git(checkout, "checkout", "--quiet", "--", ".")
    replace(checkout / VALUES, "seed * 1e-17", "1e-17 * seed")
    assert "measured again agrees; run `rlverify audit --level full --update`" in gate(checkout)[1]


@pytest.fixture
def confirmed(checkout: Path) -> Path:
    """Its figures are confirmed; a seed that was not repeated executes now what no recorded run executed."""
    replace(checkout / VALUES, NOISE, f"{NOISE} + (target.far(seed) if seed == {OTHER_SEED} else 0)")
    assert f"FIG-GAIN, FIG-SPIKE, FIG-DRIFT: {CONFIRMED}" in update(checkout)[1]
    return checkout


def test_what_other_seeds_may_execute_now_is_in_the_entry(confirmed: Path) -> None:
    """So that a later change of it is seen."""
    assert of_target(confirmed, "executed") == {"middle"}
    assert of_target(confirmed, "mentioned") == {"far", "further"}


def test_what_other_seeds_may_execute_through_a_function_that_is_new_is_in_the_entry(checkout: Path) -> None:
    replace(checkout / VALUES, NOISE, f"{NOISE} + target.helper(seed)")
    with (checkout / TARGET).open("a") as file:
        file.write(f"\n\ndef helper(seed: int) -> float:\n    return far(seed) if seed == {OTHER_SEED} else 0\n")
    assert f"FIG-GAIN, FIG-SPIKE, FIG-DRIFT: {CONFIRMED}" in update(checkout)[1]
    assert of_target(checkout, "executed") == {"middle", "helper"}
    assert of_target(checkout, "mentioned") == {"far", "further"}


def test_the_index_does_not_count_a_confirmed_figure_whose_code_changed_since(confirmed: Path) -> None:
    assert "of which one run was repeated with this code: 3." in (confirmed / "reports/index.md").read_text()
    replace(confirmed / TARGET, "return seed", "return seed + 1000")
    assert f"FIG-GAIN, FIG-SPIKE, FIG-DRIFT: {STALE}" in update(confirmed)[1]
    assert "repeated with this code" not in (confirmed / "reports/index.md").read_text()


def test_a_figure_is_confirmed_again_after_a_change_that_its_runs_execute(confirmed: Path) -> None:
    replace(confirmed / TARGET, *HALVES)
    assert f"FIG-GAIN, FIG-SPIKE, FIG-DRIFT: {CONFIRMED}" in update(confirmed)[1]
    assert of_target(confirmed, "mentioned") == {"far", "further"}


def test_a_change_of_what_only_other_seeds_may_execute_is_not_confirmed(confirmed: Path) -> None:
    replace(confirmed / TARGET, "return seed", "return seed + 1000")
    assert f"FIG-GAIN, FIG-SPIKE, FIG-DRIFT: {STALE}" in update(confirmed, *OF_TRANSFER)[1]
    assert marked(confirmed, "outdated") == OF_TRANSFER


def test_what_a_repeated_run_executes_is_no_longer_what_others_may_execute(confirmed: Path) -> None:
    replace(confirmed / VALUES, f"(target.far(seed) if seed == {OTHER_SEED} else 0)", "0 * target.far(seed)")
    assert f"FIG-GAIN, FIG-SPIKE, FIG-DRIFT: {CONFIRMED}" in update(confirmed, *OF_TRANSFER)[1]
    assert (of_target(confirmed, "executed"), of_target(confirmed, "mentioned")) == (
        {"middle", "far", "further"},
        set(),
    )


def test_what_other_seeds_may_execute_leaves_the_entry_with_its_code(confirmed: Path) -> None:
    replace(confirmed / VALUES, f" + (target.far(seed) if seed == {OTHER_SEED} else 0)", "")
    replace(confirmed / TARGET, FAR, "")
    assert f"FIG-GAIN, FIG-SPIKE, FIG-DRIFT: {CONFIRMED}" in update(confirmed, *OF_TRANSFER)[1]
    assert of_target(confirmed, "mentioned") == set()


def test_a_claim_with_other_settings_is_not_confirmed(checkout: Path) -> None:
    replace(checkout / "figureproject/catalogue/figures.toml", 'quantity = "drift"', 'quantity = "fall"')
    assert f"FIG-DRIFT: {STALE}" in update(checkout, "FIG-DRIFT")[1]


def test_a_broken_lock_file_is_replaced_and_confirms_nothing(checkout: Path) -> None:
    (checkout / "reports/digests.json").write_text("<<<<<<< HEAD\n")
    code, said = update(checkout)
    assert (code, marked(checkout, "repeated")) == (0, [])
    assert "FIG-GAIN, FIG-SPIKE, FIG-DRIFT and 1 more: kept" in said


@pytest.mark.parametrize(
    ("values", "misfits", "enough"),
    [
        ((1.0099, 1.0, 1.001, 1.002, 1.003, 1.004, 1.005, 1.006), (), True),
        ((1.0098, 1.0, 1.001, 1.002, 1.003, 1.004, 1.005, 1.006), (), False),
        ((100.0, 1.0, 1.0, 20.0, 31.0, 33.0, 40.0, 52.0), (), True),
        ((99.0, 1.0, 1.0, 20.0, 31.0, 33.0, 40.0, 52.0), (), False),
        ((0.0, 0.0, 0.25, 0.5, 0.5, 0.5, 1.0, 1.0), (), False),
        ((1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0), (), False),
        ((1.0099, 1.0, 1.001, 1.002, 1.003, 1.004, 1.005, 1.006), ("of another version",), False),
    ],
)
def test_few_different_values_tell_nothing(
    checkout: Path, values: tuple[float, ...], misfits: tuple[str, ...], enough: bool
) -> None:
    """From the smallest to the largest value there are 100 or 99, in the steps in which they occur."""
    replace(checkout / TARGET, *HALVES)
    with fresh_projects():
        project = open_project(checkout)
        committed, claim = Committed(project, project.paths, CurrentCode(project)), project.claim("FIG-GAIN")
        assert claim.figure is not None
        evidence = Evidence(claim.id, claim.seeds, (), figure=measured_figure(values, claim.figure.claimed))
        assert can_be_confirmed(committed, Record(claim, evidence, misfits)) is enough


def test_the_repeated_run_has_a_value_of_its_own() -> None:
    figure = measured_figure((1.0, 2.0, 1.0, 3.0), (0.0, 1.0))
    assert [told_by(figure, seed) for seed in range(4)] == [1, 1, 1, 3]


@pytest.mark.parametrize(
    ("value", "same"), [(10.12344, True), (10.1234, True), (10.12251, True), (10.1224, False), (10.1236, False)]
)
def test_a_value_is_compared_to_the_digits_that_are_kept(value: float, same: bool) -> None:
    figure = measured_figure((10.123, -2.0), (0.0, 1.0))
    assert is_committed_value(figure, 0, value) is same
