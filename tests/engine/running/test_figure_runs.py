"""Paired runs are made once, whatever interrupts them, and what goes wrong in one is an error of its claims alone."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from rlverify.evidence.evidence_files import load_folder
from rlverify.gating.audit import audit
from rlverify.project.code import CurrentCode
from rlverify.project.content import Project, open_project
from rlverify.project.settings import ReportPaths
from rlverify.records.claims import Verdict
from rlverify.records.errors import HarnessError
from rlverify.records.measured import PairedRun
from rlverify.running import paired_runs
from rlverify.running.executors import Ended, ProcessExecutor
from rlverify.running.paired_runs import (
    FigureRuns,
    PairedTask,
    ended_run,
    run_figure_once,
    run_paired,
    seconds_of_claims,
    seeds_of,
)
from tests.engine.project_folders import project_in
from tests.support.processes import is_running, wait_until

FIGUREPROJECT = Path(__file__).parents[1] / "projects" / "figureproject"
RUNS = {"transfer": 8, "same-arms": 5}
SECONDS = 60.0
"""After which a test gives up waiting for another process."""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which every execution is a line."""
    path = tmp_path / "log"
    path.touch()
    monkeypatch.setenv("FIGURELAB_LOG", str(path))
    return path


def _executions(log: Path) -> Counter[str]:
    return Counter(line.rpartition(" ")[0] for line in log.read_text().splitlines())


def _all_once() -> Counter[str]:
    return Counter(f"{name} {seed}" for name, runs in RUNS.items() for seed in range(runs))


def _run(project: Project, root: Path, **settings: object) -> dict[str, tuple[PairedRun, ...]]:
    claims = [claim for claim in project.claims if claim.figure is not None]
    return _run_seeds(project, root, seeds_of(claims), **settings)


def _run_seeds(
    project: Project, root: Path, seeds: Mapping[str, Sequence[int]], **settings: object
) -> dict[str, tuple[PairedRun, ...]]:
    given = {"executor": ProcessExecutor(1), "on_progress": lambda *_: None, "code": CurrentCode(project), **settings}
    where: Any = {name: given.pop(name) for name in ("executor", "on_progress")}
    return FigureRuns(project, root, seeds, **given).run(**where)  # type: ignore[arg-type]


def test_claims_that_share_an_experiment_share_its_runs(figureproject: Project, tmp_path: Path, log: Path) -> None:
    runs = _run(figureproject, tmp_path / "runs")
    assert {name: [run.seed for run in found] for name, found in runs.items()} == {
        name: list(range(count)) for name, count in RUNS.items()
    }
    assert {name for name, _ in runs["transfer"][0].quantities} == {"gain", "spike", "drift"}
    assert _executions(log) == _all_once()


def test_finished_runs_are_not_made_again(figureproject: Project, tmp_path: Path, log: Path) -> None:
    first = _run(figureproject, tmp_path / "runs")
    assert _run(figureproject, tmp_path / "runs") == first
    assert _executions(log) == _all_once()


@pytest.fixture
def copied(tmp_path: Path) -> Project:
    """The project of figures, to be changed; its names are its own, as this process keeps what it has imported."""
    name = tmp_path.name
    copy = tmp_path / "copy" / name
    shutil.copytree(FIGUREPROJECT, copy, ignore=shutil.ignore_patterns("__pycache__", "pyproject.toml"))
    for path in (*copy.rglob("*.py"), *copy.rglob("*.toml")):
        text = path.read_text(encoding="utf-8").replace("figureproject", name)
        for registered in ('"transfer"', '"same-arms"', '"middle"'):
            text = text.replace(registered, f'"{name} {registered[1:]}')
        path.write_text(text, encoding="utf-8")
    return project_in(copy.parent, name, libraries=["numpy"])


def _edit(project: Project, name: str, old: str, new: str) -> None:
    path = project.folder / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_runs_are_made_again_once_any_code_a_data_file_or_a_library_has_changed(
    copied: Project, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def executions() -> int:
        runs = _run_seeds(copied, tmp_path / "runs", {f"{copied.package} same-arms": (0,)})
        assert [run.error for found in runs.values() for run in found] == [None]
        return _executions(log).total()

    assert executions() == 1
    assert executions() == 1
    for folder in ("plots", "catalogue", "__pycache__"):
        (copied.folder / folder).mkdir(exist_ok=True)
        (copied.folder / folder / "new.txt").write_text("no run reads this")
    assert executions() == 1
    _edit(copied, "experiments/values.py", "random.Random(seed)", "random.Random(seed + 0)")
    assert executions() == 2
    (copied.folder / "experiments" / "limits.csv").write_text("1,2")
    assert executions() == 3
    monkeypatch.setattr(metadata, "version", lambda _: "other version")
    assert executions() == 4


def test_code_that_changes_while_it_runs_is_told(copied: Project, tmp_path: Path) -> None:
    code = CurrentCode(copied)
    _edit(copied, "experiments/values.py", "random.Random(seed)", "random.Random(seed + 0)")
    with pytest.raises(HarnessError, match=r"\.experiments\.values was changed while it was measured"):
        _run_seeds(copied, tmp_path / "runs", {f"{copied.package} same-arms": (0,)}, code=code)
    assert list((tmp_path / "runs").rglob("*.json")) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda _: "",
        lambda kept: json.dumps(kept)[:30],
        lambda kept: json.dumps({**kept, "code": "0" * 16}),
    ],
    ids=["empty", "truncated", "code"],
)
def test_a_kept_run_that_cannot_be_believed_is_made_again(
    change: Callable[[dict[str, Any]], str], figureproject: Project, tmp_path: Path, log: Path
) -> None:
    (first,) = _run_seeds(figureproject, tmp_path, {"same-arms": (0,)})["same-arms"]
    path = tmp_path / "same-arms" / "0.json"
    path.write_text(change(json.loads(path.read_text())))
    (again,) = _run_seeds(figureproject, tmp_path, {"same-arms": (0,)})["same-arms"]
    assert (again.quantities, _executions(log)) == (first.quantities, Counter({"same-arms 0": 2}))


def _start(environment: dict[str, str], reports: Path, **settings: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "rlverify.cli.entry", "--project", str(FIGUREPROJECT), "audit"]
    command += ["--level", "full", "--update", "--jobs", "1", "--reports", str(reports)]
    return subprocess.Popen(
        command, env={**environment, **settings}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def test_a_killed_audit_resumes_without_repeating_a_finished_run(
    project_environment: dict[str, str], tmp_path: Path, log: Path
) -> None:
    hold, reports = tmp_path / "hold", tmp_path / "reports"
    hold.touch()
    settings = {"FIGURELAB_LOG": str(log), "FIGURELAB_HOLD": str(hold), "FIGURELAB_HOLD_FROM": "3"}
    started = _start(project_environment, reports, **settings)
    wait_until(lambda: any(line.split()[1] == "3" for line in log.read_text().splitlines()))
    started.send_signal(signal.SIGKILL)
    started.wait()
    *before, (name, seed, pid) = (line.split() for line in log.read_text().splitlines())
    wait_until(lambda: not is_running(int(pid)))
    hold.unlink()
    assert {int(each[1]) for each in before} == {0, 1, 2}
    assert load_folder(reports / "evidence") == {}
    assert _start(project_environment, reports, **settings).wait(SECONDS) == 0
    assert _executions(log) == _all_once() + Counter({f"{name} {seed}": 1})
    assert load_folder(reports / "evidence").keys() >= {"FIG-GAIN", "FIG-SPIKE", "FIG-DRIFT", "FIG-BETTER"}


def test_a_crash_is_an_error_of_the_claims_that_need_the_run(
    figureproject: Project, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIGURELAB_CRASH", "6")
    paths = ReportPaths(tmp_path / "reports")
    settings = {"update": True, "executor": ProcessExecutor(1), "on_progress": lambda *_: None, "level": "full"}
    result = audit(figureproject, paths, **settings)  # type: ignore[arg-type]
    assert {record.claim.id: record.verdict for record in result.records} == {
        "FIG-GAIN": Verdict.ERROR,
        "FIG-SPIKE": Verdict.REFUTED,
        "FIG-DRIFT": Verdict.ERROR,
        "FIG-BETTER": Verdict.REFUTED,
        "LAB-01": Verdict.CONFIRMED,
    }
    assert [problem.subject for problem in result.problems] == ["FIG-GAIN", "FIG-DRIFT"]
    assert result.exit_code == 2
    assert result.seconds.keys() == {"FIG-GAIN", "FIG-SPIKE", "FIG-DRIFT", "FIG-BETTER"}
    assert "seed 6: ZeroDivisionError: on purpose (experiments/values.py:" in result.problems[0].sentence
    assert load_folder(paths.evidence).keys() == {"FIG-SPIKE", "FIG-BETTER", "LAB-01"}
    monkeypatch.delenv("FIGURELAB_CRASH")
    again = audit(figureproject, paths, **settings)  # type: ignore[arg-type]
    assert again.problems == ()
    assert _executions(log) == _all_once() + Counter({"transfer 6": 1})


def test_runs_that_crash_or_die_took_time_too(
    figureproject: Project, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIGURELAB_CRASH", "6")
    seconds = iter((10.0, 11.0, 13.5))
    monkeypatch.setattr(paired_runs, "perf_counter", lambda: next(seconds))
    task = PairedTask(figureproject, "transfer", 6)
    runs = [run_paired(task), ended_run(task, Ended(None, -9, 2.5))]
    assert [(run.seconds, bool(run.error)) for run in runs] == [(3.5, True), (2.5, True)]
    claims = [claim for claim in figureproject.claims if claim.experiment == "transfer"]
    assert seconds_of_claims(claims, runs) == {"FIG-GAIN": 2.0, "FIG-SPIKE": 2.0, "FIG-DRIFT": 2.0}
    assert _executions(log) == Counter({"transfer 6": 1})


@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_whose_process_dies_takes_no_other_with_it(
    processes: int, figureproject: Project, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIGURELAB_DIE", "4")
    runs = _run(figureproject, tmp_path, executor=ProcessExecutor(processes))
    errors = {(run.experiment, run.seed): run.error for found in runs.values() for run in found if run.error}
    assert errors.keys() == {("transfer", 4), ("same-arms", 4)}
    assert set(errors.values()) == {"the process of this run was killed by signal 9 (Killed)"}
    assert _executions(log) == _all_once()


def test_a_run_that_does_not_end_is_an_error(
    figureproject: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIGURELAB_HOLD", str(tmp_path))
    run = run_figure_once(figureproject, "same-arms", 0, limit=0.2)
    assert str(run.error).startswith("TimeLimitError: did not end within 0.2 seconds")


@pytest.mark.parametrize(
    ("quantities", "words"),
    [({}, "measured nothing"), ({"a": float("nan")}, "measured nan as 'a'"), ({"a": float("inf")}, "measured inf")],
)
def test_what_has_no_mean_is_an_error(quantities: dict[str, float], words: str) -> None:
    project = open_project(FIGUREPROJECT)
    project.__dict__["experiments"] = {"broken": lambda _make, _seed: quantities}
    run = run_paired(PairedTask(project, "broken", 0))
    assert words in str(run.error)
    assert run.quantities == ()


def test_what_an_experiment_prints_stays_out_of_the_output(
    figureproject: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    run_figure_once(figureproject, "transfer", 0)
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "an experiment may print\n")


def test_progress_counts_kept_runs_as_done(figureproject: Project, tmp_path: Path) -> None:
    def steps(seeds: range) -> list[tuple[int, int]]:
        told: list[tuple[int, int]] = []
        _run_seeds(
            figureproject,
            tmp_path,
            {"same-arms": seeds},
            on_progress=lambda done, total: told.append((done, total)),
        )
        return [*dict.fromkeys(told)]  # a long run is told every second

    assert steps(range(2)) == [(0, 2), (1, 2), (2, 2)]
    assert steps(range(3)) == [(2, 3), (3, 3)]
