"""Figures from the command line: measured at the full level, taken as they are committed at the quick one."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rlverify.cli.app import run
from rlverify.evidence.files import sealed
from rlverify.evidence.summarising import measured_figure
from tests.engine.in_process import measured_here
from tests.engine.project_folders import once_in_a_process, write_settings

CONTENT = Path(__file__).parents[1] / "projects" / "figureproject"
Command = Callable[..., tuple[int, str, str]]
STALE = "4 committed results are out of date (FIG-GAIN, FIG-SPIKE, FIG-DRIFT, FIG-BETTER): STALE, "
UNDECIDED = "FIG-DRIFT: UNDECIDED, which is allowed for at most 2 figures"


@pytest.fixture
def project(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs one command on the project of figures in this process: exit code, output, errors without prints."""

    def command(*arguments: str | Path) -> tuple[int, str, str]:
        code = run(["--project", str(CONTENT), *measured_here(arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err.replace("an experiment may print\n", "")

    return command


@pytest.fixture(scope="module")
@once_in_a_process
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of reports, freshly updated at the full level, with its kept runs beside it; treat as read-only."""
    reports = tmp_path_factory.mktemp("audited") / "reports"
    before = dict(os.environ)
    full = ["audit", "--level", "full", "--update", "--reports", str(reports)]
    assert run(["--project", str(CONTENT), *measured_here(full)]) == 0
    os.environ.clear()
    os.environ.update(before)
    return reports


@pytest.fixture
def reports(audited: Path, tmp_path: Path) -> Path:
    """A copy of both to be changed."""
    shutil.copytree(audited.parent, tmp_path / "copy")
    return tmp_path / "copy" / "reports"


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    """The figures of a copy of the catalogue, to be changed; its project is in `variation_of`."""
    return shutil.copytree(CONTENT / "catalogue", tmp_path / "variation" / "catalogue") / "figures.toml"


def variation_of(catalogue: Path) -> Path:
    """The project of figures with another catalogue: its folder."""
    folder = catalogue.parent.parent
    return write_settings(folder, "figureproject", catalogue=catalogue.parent, libraries=["torch", "numpy"])


@pytest.fixture
def changed(catalogue: Path) -> Path:
    """The project, with figures that claim what the committed evidence was not measured against."""
    text = catalogue.read_text().replace("[15.0, 25.0]", "[15.0, 24.0]").replace("[5.0, 10.0]", "[5.0, 11.0]")
    catalogue.write_text(text.replace("runs = 5", "runs = 6"))
    return variation_of(catalogue)


@pytest.fixture
def log(reports: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which every run is a line."""
    monkeypatch.setenv("FIGURELAB_LOG", str(reports / "log"))
    return reports / "log"


def test_an_audit_shows_claimed_beside_measured(project: Command, audited: Path) -> None:
    _, output, _ = project("audit", "--reports", audited)
    (line,) = [line for line in output.splitlines() if line.startswith("FIG-BETTER") and "than" in line]
    assert line.split("  ")[-1].strip().startswith("0 % (95 % interval 0 to 0), all runs alike, 5 runs")
    assert "REFUTED     said: more than 0 %" in line


def _with_our_criterion(text: str) -> str:
    text = text.replace("claimed =", 'document_gives = "statement"\nclaimed =', 1)
    return text.replace('id = "FIG-GAIN"\n', 'id = "FIG-GAIN"\nbasis = "implied"\n')


def test_a_criterion_of_ours_is_shown_as_ours(project: Command, reports: Path, catalogue: Path) -> None:
    catalogue.write_text(_with_our_criterion(catalogue.read_text()))
    shown = project("--project", variation_of(catalogue), "show", "FIG-GAIN")[1]
    assert re.search(r"^claimed +criterion, ours: 15 to 25 %$", shown, re.MULTILINE)
    assert re.search(r"^statement +Implied, not stated in this form: What is claimed", shown, re.MULTILINE)
    run = project("--project", variation_of(catalogue), "reproduce", "FIG-GAIN", "--reports", reports)[1]
    assert re.search(r"^gain .* criterion, ours: 15 to 25 % *$", run, re.MULTILINE)
    assert re.search(r"^claimed +said: 15 to 25 steps$", project("show", "FIG-DRIFT")[1], re.MULTILINE)


def test_the_full_level_measures_what_does_not_fit(project: Command, reports: Path, changed: Path) -> None:
    full = ("--level", "full", "--reports", reports)
    code, output, _ = project("--project", changed, "gate", *full, "--json", reports / "run.json")
    assert (code, output.count("  for the same reason: ")) == (1, 1)
    fallen = {each["claim"]: each["reason"] for each in json.loads((reports / "run.json").read_text())["fallen"]}
    assert fallen["FIG-BETTER"] == "differs from the committed evidence: 6 runs instead of 5"
    assert project("--project", changed, "audit", "--update", *full)[0] == 0
    assert project("--project", changed, "gate", "--reports", reports)[1].splitlines()[0] == UNDECIDED


def test_a_quick_update_does_not_drop_evidence_that_it_cannot_replace(project: Command, reports: Path) -> None:
    path = reports / "evidence" / "FIG-SPIKE.json"
    path.write_text("{")
    code, output, errors = project("audit", "--update", "--reports", reports)
    assert (code, output, path.read_text()) == (2, "", "{")
    assert errors.startswith("rlverify: evidence ")
    assert "FIG-SPIKE.json: " in errors
    assert project("audit", "--level", "full", "--update", "--reports", reports)[0] == 0


def test_a_figure_that_is_not_as_expected_fails_without_being_measured(
    project: Command, reports: Path, catalogue: Path
) -> None:
    catalogue.write_text(catalogue.read_text().replace('"REFUTED"', '"CONFIRMED"'))
    code, output, _ = project("--project", variation_of(catalogue), "gate", "--reports", reports)
    assert code == 1
    told = [line for line in output.splitlines() if "REFUTED (expected CONFIRMED)" in line]
    assert [line.split()[0] for line in told] == ["FIG-SPIKE", "FIG-BETTER"]


def test_one_run_is_shown_beside_what_is_claimed_and_committed(project: Command, audited: Path) -> None:
    code, output, _ = project("reproduce", "FIG-GAIN", "--seed", "3", "--reports", audited)
    lines = output.splitlines()
    assert (code, lines[0]) == (0, "FIG-GAIN: the gain of transfer (seed 3)")
    (gain,) = [line.split() for line in lines if line.startswith("gain")]
    # 20 + random.Random(3).uniform(-1, 1)
    assert (gain[1], gain[2], " ".join(gain[3:])) == ("19.4759", "19.476", "said: 15 to 25 %")
    assert lines[-2].startswith("committed: 20")
    assert lines[-1] == "verdict: CONFIRMED (expected CONFIRMED)"
    other = project("reproduce", "FIG-GAIN", "--seed", "4", "--reports", audited)[1]
    assert other.splitlines()[-2:] == lines[-2:]
    assert other != output


def test_one_run_without_committed_evidence_says_so(project: Command, tmp_path: Path) -> None:
    code, output, _ = project("reproduce", "FIG-GAIN", "--reports", tmp_path / "reports")
    assert (code, output.splitlines()[-1]) == (0, "committed: NO EVIDENCE")


def committed_as(reports: Path, claim: str, values: list[float]) -> None:
    """Evidence of a figure that consists of other values, with all that follows from them."""
    path = reports / "evidence" / f"{claim}.json"
    content = json.loads(path.read_text())
    found = measured_figure(values, tuple(content["figure"]["claimed"]))
    content["figure"] |= {name: getattr(found, name) for name in ("values", "mean", "low", "high", "effect_size")}
    del content["digest"]
    path.write_text(sealed(content))


def test_one_run_that_does_not_give_its_committed_value_makes_the_claim_fall(
    project: Command, reports: Path, catalogue: Path
) -> None:
    committed_as(reports, "FIG-GAIN", [20.0, 20.5, 19.5, 19.0, 20.0, 20.5, 19.5, 20.0])
    one_run = ("reproduce", "FIG-GAIN", "--seed", "3", "--reports", reports)
    code, output, _ = project(*one_run)
    differs = "FIG-GAIN: repeated runs differ: seed 3 gives 19.476 %, committed 19"
    assert (code, output.splitlines()[-1].startswith(f"{differs}; if that is right, run")) == (1, True)
    assert json.loads(project(*one_run, "--json")[1])["exit_code"] == 1
    assert project("reproduce", "FIG-GAIN", "--seed", "8", "--reports", reports)[0] == 0  # not one of its eight runs
    catalogue.write_text(catalogue.read_text().replace("claimed =", "repeats = false\nclaimed =", 1))
    assert project("--project", variation_of(catalogue), *one_run)[0] == 0


def test_a_quantity_that_a_run_does_not_give_is_an_error(project: Command, reports: Path, catalogue: Path) -> None:
    catalogue.write_text(
        catalogue.read_text().replace('"gain"', '"gained"').replace("claimed =", "repeats = false\nclaimed =", 1)
    )
    changed = ("--project", variation_of(catalogue), "reproduce", "FIG-GAIN", "--reports")
    code, output, _ = project(*changed, reports)
    told = "FIG-GAIN: seed 0: gives no quantity 'gained', but 'gain', 'spike', 'drift'"
    assert (code, output.splitlines()[-1]) == (2, told)  # nothing was committed for this quantity
    assert project(*changed, reports, "--seed", "99")[0] == 2  # a seed of no run


def test_one_run_prints_json_only(project: Command, audited: Path) -> None:
    content = json.loads(
        project("reproduce", "FIG-BETTER", "--json", "--reports", audited)[1], parse_constant=pytest.fail
    )
    assert (content["run"]["quantities"], content["verdict"], content["exit_code"]) == (
        {"improvement": 0},
        "REFUTED",
        0,
    )
    assert content["claim"]["figure"]["claimed"] == [0.0, "inf"]


def test_a_crashed_run_answers_with_its_exit_code(
    project: Command, audited: Path, changed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIGURELAB_CRASH", "0")
    code, output, _ = project("reproduce", "FIG-GAIN", "--reports", audited)
    assert code == 1
    assert output.splitlines()[-1].startswith("FIG-GAIN: a repeated run crashes: seed 0: ZeroDivisionError: on purpose")
    assert project("reproduce", "FIG-GAIN", "--reports", tmp_path / "no-reports")[0] == 2
    # The evidence is STALE for another claimed interval; `gate` repeats no run of it.
    assert project("--project", changed, "reproduce", "FIG-GAIN", "--reports", audited)[0] == 2
    # FIG-DRIFT is UNDECIDED as committed. `gate` repeats one of its runs, and this one crashes.
    assert project("reproduce", "FIG-DRIFT", "--reports", audited)[0] == 1


def test_all_runs_answer_a_crash_as_the_gate_does(
    project: Command, reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash makes a claim fall if its committed evidence is as expected; else the harness failed."""
    monkeypatch.setenv("FIGURELAB_CRASH", "3")
    shutil.rmtree(reports.parent / ".rlverify")
    every = ("reproduce", "FIG-GAIN", "--all", "--json", "--reports", reports)
    code, output, _ = project(*every)
    assert code == json.loads(output)["exit_code"] == 1
    (reports / "evidence" / "FIG-GAIN.json").unlink()
    assert project(*every)[0] == 2


def test_a_run_whose_process_dies_answers_with_its_exit_code(
    project: Command, audited: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIGURELAB_DIE", "0")
    code, output, _ = project("reproduce", "FIG-GAIN", "--reports", audited)
    assert code == 1
    killed = "the process of this run was killed by signal 9 (Killed)"
    assert output.splitlines()[-1] == f"FIG-GAIN: a repeated run crashes: seed 0: {killed}"


def test_all_runs_resume_from_those_that_are_kept(project: Command, reports: Path, log: Path) -> None:
    (kept,) = (reports.parent / ".rlverify" / "runs").glob("transfer/5.json")
    kept.unlink()
    code, output, _ = project("reproduce", "FIG-GAIN", "--all", "--reports", reports)
    assert (code, log.read_text().split()[:2]) == (0, ["transfer", "5"])
    assert len(log.read_text().splitlines()) == 1
    measured, _, committed, _ = output.splitlines()[2:]
    assert measured.removeprefix("measured") == committed.removeprefix("committed")


def test_all_runs_are_for_figures(project: Command) -> None:
    code, _, errors = project("reproduce", "LAB-01", "--all")
    assert code == 2
    assert "--all is for figures, and LAB-01 is a assurance" in " ".join(errors.replace("│", " ").split())
    assert project("reproduce", "LAB-01")[0] == 0


def test_a_pilot_plans_with_seeds_of_its_own(project: Command, reports: Path, log: Path) -> None:
    pilot = ("pilot", "FIG-DRIFT", "--seeds", "4", "--reports", reports)
    code, output, _ = project(*pilot)
    assert code == 0
    assert {line.split()[1] for line in log.read_text().splitlines()} == {"1000", "1001", "1002", "1003"}
    told = ("15 to 25 steps", "4 seeds (1000..1003): mean ", "in the 8 runs of the catalogue", "for a power of 0.8")
    for words in told:
        assert words in output
    content = json.loads(project(*pilot, "--json")[1])
    assert len(log.read_text().splitlines()) == 4
    assert content["mean"] == pytest.approx(sum(content["values"]) / 4)
    assert 0 <= content["power"] <= 1


def test_a_pilot_needs_a_figure_that_is_measured(
    project: Command, reports: Path, catalogue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert project("pilot", "LAB-01")[0] == 2
    catalogue.write_text(catalogue.read_text().replace('"gain"', '"gian"'))
    code, output, errors = project(
        "--project", variation_of(catalogue), "pilot", "FIG-GAIN", "--seeds", "2", "--reports", reports
    )
    assert (code, output) == (2, "")
    assert errors.splitlines()[-1] == (
        "rlverify: experiment 'transfer' gives no quantity 'gian', but 'gain', 'spike', 'drift'"
    )
    monkeypatch.setenv("FIGURELAB_CRASH", "1002")
    code, _, errors = project("pilot", "FIG-GAIN", "--seeds", "3", "--reports", reports)
    assert (code, "seed 1002 of the pilot: ZeroDivisionError" in errors) == (2, True)


def test_show_and_list_tell_of_figures(project: Command) -> None:
    assert "FIG-BETTER   figure" in project("list")[1]
    output = project("show", "FIG-BETTER")[1]
    for words in ("more than 0 %", "same-arms", "8 seeds (1000..1007)", "improvement"):
        assert words in output
    assert json.loads(project("show", "FIG-BETTER", "--json")[1])["figure"]["claimed"] == [0.0, "inf"]


def test_a_plot_of_a_figure_shows_its_committed_values(reports: Path) -> None:
    assert "<title>Gains</title>" in (reports / "plots" / "gains.svg").read_text()
    assert not (reports / "plots" / "gains.json").exists()


def test_a_plot_of_a_figure_is_left_out_where_the_figure_has_no_values(reports: Path, project: Command) -> None:
    (reports / "evidence" / "FIG-GAIN.json").unlink()
    (reports / "plots" / "gains.svg").unlink()
    project("report", "--reports", reports, "--output", reports.parent / "pages")
    assert not (reports.parent / "pages" / "plots").exists()
