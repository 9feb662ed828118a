"""Whatever goes wrong while measuring becomes a verdict that never counts as passed."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import pytest
from troubleproject.limited import ends_in_time_and_lives_on

from rlverify.evidence.evidence_files import to_json
from rlverify.evidence.files import write_files
from rlverify.gating.audit import audit
from rlverify.gating.committed_evidence import Committed
from rlverify.project.content import Project
from rlverify.project.settings import ReportPaths
from rlverify.records.attempts import Crash, attempt
from rlverify.records.claims import Claim
from rlverify.records.errors import EvidenceError
from rlverify.records.measured import Evidence, Run, SymptomEvidence, VariantEvidence
from rlverify.running.executors import InlineExecutor, Job, ProcessExecutor
from rlverify.running.runner import run_claims
from tests.engine.project_folders import run_here

ONE = ProcessExecutor(1)
TWO = ProcessExecutor(2)

REASONS = {
    "STALE": ("STALE", 1, "fault stale is stale"),
    "UNREACHED": ("UNREACHED", 2, "faulty: the planted fault was never executed"),
    "UNDECIDED": ("UNDECIDED", 2, "faulty held in 1 of 3 runs (95 % interval 0.01 to 0.91)"),
    "REGRESSED": ("REGRESSED", 1, "expected CONFIRMED"),
    "CRASH": ("ERROR", 2, "healthy, seed 0: ZeroDivisionError: on purpose (probes/trouble.py:"),
    "LEAVE": ("ERROR", 2, "SystemExit: leaving"),
    "DIE": ("ERROR", 2, "the process of this run exited with code 3 before the run ended"),
    "NOTHING": ("ERROR", 2, "probe 'nothing' observed nothing"),
    "TWICE": ("ERROR", 2, "probe 'twice' names one symptom twice"),
    "SWALLOWED": ("ERROR", 2, "a mistake in fault crashing: TypeError: object of type 'int' has no len() (line "),
    "WRONG-FAULT": ("ERROR", 2, "faulty, seed 1: TypeError: object of type 'int' has no len() (faults/trouble.py:"),
}
AS_EXPECTED = {"SLOW": "CONFIRMED", "DEAF": "CONFIRMED", "DIE-ONCE": "CONFIRMED"}  # unless a test asks for more
KEPT = Evidence("CRASH", (7, 8), (VariantEvidence("healthy", 2, 2, None, (SymptomEvidence("old", 2, 2, "", ""),)),))
"""Of other seeds than the claim asks for."""


def test_every_kind_of_trouble_gets_its_verdict(troubleproject: Project, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    paths = ReportPaths(tmp_path / "reports")
    write_files(paths.evidence, {"CRASH.json": to_json(KEPT)})
    result = audit(troubleproject, paths, update=True, executor=TWO, on_progress=lambda *step: steps.append(step))
    verdicts = {claim: verdict for claim, (verdict, _, _) in REASONS.items()} | AS_EXPECTED
    assert {record.claim.id: record.verdict for record in result.records} == verdicts
    problems = {problem.subject: problem for problem in result.problems}
    for claim, (verdict, exit_code, reason) in REASONS.items():
        assert problems[claim].exit_code == exit_code
        assert verdict in problems[claim].sentence
        assert reason in problems[claim].sentence
    assert result.exit_code == 1  # as the claim REGRESSED fell
    assert steps == sorted(steps)
    assert [steps[0], steps[-1]] == [(0, steps[0][1]), (steps[0][1],) * 2]
    measured = {"UNREACHED", "UNDECIDED", "REGRESSED", *AS_EXPECTED}
    assert {path.stem for path in paths.evidence.iterdir()} == {"CRASH", *measured}
    assert (paths.evidence / "CRASH.json").read_text(encoding="utf-8") == to_json(KEPT)
    assert "trouble of one kind: **STALE** (expected CONFIRMED)." in (paths.reports / "claims.md").read_text()
    assert Committed(troubleproject, paths).check_report() == []
    again = audit(troubleproject, paths, update=False, executor=TWO, on_progress=lambda *_: None)
    assert {problem.subject for problem in again.problems} == {*REASONS}
    kinds = {problem.subject: (problem.kind, problem.exit_code) for problem in again.problems}
    assert kinds["CRASH"] == ("healthy", 1)  # its committed evidence is as expected
    assert kinds["LEAVE"] == ("other", 2)  # there is no committed evidence


@pytest.mark.parametrize("claim", ["SLOW", "DEAF"])
def test_a_probe_that_does_not_end_is_an_error_and_takes_no_other_run_with_it(
    troubleproject: Project, claim: str
) -> None:
    claims = [replace(troubleproject.claim(claim), seeds=(2, 1, 4)), troubleproject.claim("UNREACHED")]
    runs = run_claims(troubleproject, claims, executor=ONE, on_progress=lambda *_: None, limit=0.25)
    reasons = {
        "SLOW": "TimeLimitError: did not end within 0.25 seconds and stood at probes/trouble.py:",
        "DEAF": "the process of this run did not end within 0.5 seconds",
    }
    first, second, third = runs[claim]
    assert (first.error, third.error) == (None, None)
    assert str(second.error).startswith(reasons[claim])
    assert [run.error for run in runs["UNREACHED"]] == [None, None]
    assert min(run.seconds for run in (first, second, third)) > 0.0


@pytest.mark.parametrize(("claim", "crashes"), [("UNREACHED", False), ("CRASH", True)])
def test_a_run_has_the_seconds_that_it_took(
    claim: str, crashes: bool, troubleproject: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter((10.0, 12.5))
    monkeypatch.setattr("rlverify.running.runner.time", SimpleNamespace(perf_counter=lambda: next(clock)))
    (run,) = run_here(troubleproject, replace(troubleproject.claim(claim), fault=None), [0])
    assert (run.error is not None, run.seconds) == (crashes, 2.5)


def test_a_probe_that_does_not_end_is_an_error_in_this_process_too(troubleproject: Project) -> None:
    before = signal.getsignal(signal.SIGALRM)
    slow, fast = run_here(troubleproject, troubleproject.claim("SLOW"), [1, 2], limit=0.1)
    assert str(slow.error).startswith("TimeLimitError: did not end within 0.1 seconds")
    assert fast.error is None
    assert (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)) == (before, (0.0, 0.0))


def test_a_worker_that_ended_in_time_lives_on() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        assert executor.submit(ends_in_time_and_lives_on, 0.1, 0.3).result()


def test_a_run_in_another_thread_has_no_limit(troubleproject: Project) -> None:
    with ThreadPoolExecutor(1) as executor:
        (run,) = executor.submit(run_here, troubleproject, troubleproject.claim("SLOW"), [2], limit=0.1).result()
    assert run.error is None


@pytest.mark.parametrize("update", [True, False])
def test_nothing_is_measured_that_could_not_be_kept(toyproject: Project, tmp_path: Path, update: bool) -> None:
    (tmp_path / "file").touch()
    steps: list[tuple[int, int]] = []
    paths = ReportPaths(tmp_path / "file" / "reports")
    with pytest.raises(EvidenceError, match="cannot be written"):
        audit(toyproject, paths, update=update, executor=ONE, on_progress=lambda *step: steps.append(step))
    assert steps == []


def test_a_run_whose_process_died_is_not_run_again(
    troubleproject: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TROUBLEPROJECT_DIES_ONCE", str(tmp_path / "died"))
    claims = [troubleproject.claim(name) for name in ("DIE-ONCE", "UNREACHED", "DIE")]
    runs = run_claims(troubleproject, claims, executor=ONE, on_progress=lambda *_: None)
    assert [run.error is None for name in runs for run in runs[name]] == [False, True, True, False]


def test_broken_evidence_of_a_claim_that_cannot_be_measured_is_named_and_nothing_replaced(
    troubleproject: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = ReportPaths(tmp_path / "reports")
    write_files(paths.evidence, {"CRASH.json": "{}"})
    monkeypatch.setattr(
        "rlverify.gating.audit.run_claims",
        lambda _, claims, **__: {each.id: (Run("healthy", 0, error="boom"),) for each in claims},
    )
    with pytest.raises(EvidenceError, match=r"CRASH\.json: .*; measure it again"):
        audit(troubleproject, paths, update=True, executor=ONE, on_progress=lambda *_: None)
    assert [path.read_text() for path in paths.reports.rglob("*.*")] == ["{}"]


def test_a_run_in_this_process_is_the_run_of_the_pool(toyproject: Project) -> None:
    claim = toyproject.claim("TOY-01")
    here = run_here(toyproject, claim, claim.seeds)
    assert run_claims(toyproject, [claim], executor=ONE, on_progress=lambda *_: None) == {"TOY-01": here}
    assert [(run.variant, run.seed, run.executions) for run in here] == [
        ("healthy", 0, None), ("healthy", 1, None), ("faulty", 0, 1), ("faulty", 1, 1),
        ("documented_fix", 0, 1), ("documented_fix", 1, 1),
    ]  # fmt: skip


def test_what_two_claims_need_is_measured_once(toyproject: Project) -> None:
    """The second calls a documented fix what the first calls the fault, and has a seed more."""
    first = toyproject.claim("TOY-01")
    other = replace(first, id="OTHER", fault=first.documented_fix, documented_fix=first.fault, seeds=(*first.seeds, 5))
    counts: list[tuple[int, int]] = []
    runs = run_claims(toyproject, [first, other], executor=ONE, on_progress=lambda *count: counts.append(count))
    assert runs == {claim.id: run_here(toyproject, claim, claim.seeds) for claim in (first, other)}
    assert counts[-1] == (len(runs["OTHER"]), len(runs["OTHER"]))


@pytest.mark.parametrize("stop", [None, lambda *_: False])
def test_other_jobs_start_first_and_last_where_they_may_be_needless(
    toyproject: Project, stop: Callable[[Claim, Sequence[Run]], bool] | None
) -> None:
    done: list[int] = []
    other: Job[float, float] = Job(abs, -1.0, lambda *_: done.append(len(counts)))
    counts: list[tuple[int, int]] = []
    claim = toyproject.claim("TOY-01")
    given = {"executor": InlineExecutor(), "on_progress": lambda *count: counts.append(count), "stop": stop}
    (runs,) = run_claims(toyproject, [claim], beside=[other], **given).values()  # type: ignore[arg-type]
    assert counts == [(n, len(runs) + 1) for n in range(len(runs) + 2)]
    assert done == [len(runs) + 1 if stop else 1]


def test_what_a_probe_prints_stays_out_of_the_output(toyproject: Project, capsys: pytest.CaptureFixture[str]) -> None:
    run_here(toyproject, toyproject.claim("TOY-02"), [0])
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("a probe may print")) == ("", 2)


def test_an_attempt_returns_the_result_or_the_crash_in_one_line() -> None:
    assert attempt(lambda: 3) == 3
    crash = attempt(lambda: int("x\ny"))
    assert isinstance(crash, Crash)
    assert crash.line.startswith("ValueError: invalid literal for int() with base 10: 'x\\ny' (running/test_runner.py:")
    assert crash.traceback.startswith("Traceback")


def test_an_interrupt_is_not_swallowed() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attempt(interrupt)
