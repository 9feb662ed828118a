"""A repeated run that gives exactly the committed value makes a figure one of the code of today; no other does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rlverify.evidence.figure_evidence import is_committed_value, measured_figure
from tests.meta.project_folders import once_in_a_process
from tests.meta.test_changes import answer, commit, copy_project, gate, git, replace

TARGET = "figureproject/target.py"
HALVES = ("(low + high) / 2", "low / 2 + high / 2")
"""The same number, computed in another way."""
STALE = "kept, though code that they executed has changed, and no repeated run gives exactly the committed value"
CONFIRMED = "kept, as a repeated run of the code of today gives exactly the committed value"
IMPORT = "from figureproject.probes.make import Make"
OF_TRANSFER = ["FIG-DRIFT", "FIG-GAIN", "FIG-SPIKE"]


@pytest.fixture(scope="module")
@once_in_a_process
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Git checkout of the project with figures, all measured; treat as read-only."""
    checkout = tmp_path_factory.mktemp("confirmed")
    copy_project("figureproject", checkout)
    (checkout / ".gitignore").write_text(".rlverify\n__pycache__\n")
    values = checkout / "figureproject/experiments/values.py"
    replace(values, "make.middle(19, 21) + noise", "make.middle(19, 21) + noise + (far(seed) if seed == 7 else 0)")
    replace(values, '"drift": 15 + 5 * noise', '"drift": 15 + 5 * noise, "fall": 15 + 5 * noise')
    replace(values, IMPORT, f"{IMPORT}\nfrom figureproject.target import far")
    with (checkout / TARGET).open("a") as file:
        file.write("\n\ndef far(seed: int) -> float:\n    return seed / 100\n")
    done = answer(checkout, "audit", "--level", "full", "--update", "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    git(checkout, "init", "--quiet", "--initial-branch", "main")
    commit(checkout, "figures")
    shutil.rmtree(checkout / ".rlverify")
    return checkout


@pytest.fixture
def checkout(committed: Path, tmp_path: Path) -> Path:
    """A copy of it to be changed."""
    return shutil.copytree(committed, tmp_path / "checkout")


def update(checkout: Path, *arguments: str) -> str:
    done = answer(checkout, "audit", *arguments, "--update", "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())


def outdated(checkout: Path) -> list[str]:
    claims = json.loads((checkout / "reports/digests.json").read_text())["claims"]
    return sorted(name for name, entry in claims.items() if "outdated" in entry)


def changed_files(checkout: Path) -> list[str]:
    return git(checkout, "diff", "--name-only", "HEAD", "--", "reports").split()


def runs_made(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_code_that_gives_the_same_value_confirms_figures_and_changes_the_lock_file_alone(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs of FIG-BETTER all have the same value, so that one of them tells nothing."""
    replace(checkout / TARGET, *HALVES)
    monkeypatch.setenv("FIGURELAB_LOG", str(tmp_path / "log"))
    said = update(checkout)
    assert f"FIG-GAIN, FIG-SPIKE, FIG-DRIFT: {CONFIRMED}" in said
    assert f"FIG-BETTER: {STALE}" in said
    assert (outdated(checkout), changed_files(checkout)) == (["FIG-BETTER"], ["reports/digests.json"])
    assert 1 <= runs_made(tmp_path / "log") <= 3
    commit(checkout, "other code")
    (tmp_path / "log").unlink()
    assert CONFIRMED not in update(checkout)
    code, told = gate(checkout, "--base", "HEAD")
    assert (code, "measured 1 of 5" in told, runs_made(tmp_path / "log")) == (0, True, 1), told


def test_a_confirmed_entry_is_checked_by_the_gate_that_sees_it_in_the_difference(checkout: Path) -> None:
    replace(checkout / TARGET, *HALVES)
    update(checkout)
    commit(checkout, "other code")
    code, said = gate(checkout)
    assert (code, "measured 4 of 5" in said, "measured 5 of 5" in said) == (0, False, True), said


def test_a_value_that_differs_in_its_last_digit_confirms_nothing(checkout: Path) -> None:
    """The gate would take it for that of another machine."""
    replace(checkout / TARGET, HALVES[0], "(low + high) / 2 + 0.002")
    said = update(checkout, "FIG-GAIN")
    assert f"FIG-GAIN: {STALE}" in said
    assert ("FIG-GAIN" in outdated(checkout), changed_files(checkout)) == (True, ["reports/digests.json"])


def test_a_run_that_crashes_confirms_nothing(checkout: Path) -> None:
    replace(checkout / TARGET, f"return {HALVES[0]}", "raise ValueError")
    assert f"FIG-GAIN: {STALE}" in update(checkout, "FIG-GAIN")


def test_a_change_that_the_repeated_run_does_not_execute_is_not_confirmed_by_it(checkout: Path) -> None:
    replace(checkout / TARGET, "seed / 100", "seed / 90")
    assert f"FIG-GAIN: {STALE}" in update(checkout, "FIG-GAIN")


def test_what_other_runs_executed_stays_in_the_entry(checkout: Path) -> None:
    replace(checkout / TARGET, *HALVES)
    update(checkout, *OF_TRANSFER)
    executed = json.loads((checkout / "reports/digests.json").read_text())["executed"]["figureproject.target"]
    assert [sorted(each["claims"].split()) for each in executed if "far" in each["functions"].split()] == [OF_TRANSFER]


def test_a_claim_with_other_settings_is_not_confirmed(checkout: Path) -> None:
    replace(checkout / "figureproject/catalogue/figures.toml", 'quantity = "drift"', 'quantity = "fall"')
    assert f"FIG-DRIFT: {STALE}" in update(checkout, "FIG-DRIFT")


@pytest.mark.parametrize(
    ("value", "same"), [(10.12344, True), (10.1234, True), (10.12251, True), (10.1224, False), (10.1236, False)]
)
def test_a_value_is_compared_to_the_digits_that_are_kept(value: float, same: bool) -> None:
    figure = measured_figure((10.123, -2.0), (0.0, 1.0))
    assert is_committed_value(figure, 0, value) is same
