"""Which runs of figures are repeated, and what is found in them, with runs whose values are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rlverify.evidence.figure_evidence import measured_figure
from rlverify.gating import replay as replaying
from rlverify.gating.committed_evidence import Committed
from rlverify.gating.replay import Replayed, repeated_seed, replay
from rlverify.project.content import Project
from rlverify.project.current_code import CurrentCode
from rlverify.project.settings import ReportPaths
from rlverify.records.claims import Claim
from rlverify.records.code_records import Executed
from rlverify.records.measured import Evidence
from rlverify.records.runs import PairedRun
from rlverify.running.executor import Executor
from rlverify.running.executors import ProcessExecutor
from rlverify.running.runner import Progress

MIDDLE = "figureproject.target:middle"
MEANS = {"gain": 20.0, "spike": 7.0, "drift": 18.0, "improvement": 3.0}
SHIFT = 5.0
"""More than other machines explain, for every quantity."""
EXECUTED = Executed((MIDDLE,))

Figures = list[tuple[Claim, Evidence]]


def quantities(seed: int) -> dict[str, float]:
    return {name: mean + 0.01 * seed for name, mean in MEANS.items()}


class Runs:
    """Replays of the project of figures, in which no run is made; what was asked for is in the lists."""

    def __init__(self, project: Project, folder: Path) -> None:
        self.committed = Committed(project, ReportPaths(folder / "reports", folder), CurrentCode(project))
        self.shifted: set[tuple[str, int]] = set()
        self.crashed: set[tuple[str, int]] = set()
        self.asked: list[dict[str, list[int]]] = []
        self.recorded: list[frozenset[str]] = []
        self.progress: list[tuple[int, int]] = []

    def repeat(
        self, project: Project, root: Path, seeds: Mapping[str, Sequence[int]], code: CurrentCode, *,
        executor: Executor, on_progress: Progress, recorded: frozenset[str] = frozenset(),
    ) -> dict[tuple[str, int], PairedRun]:  # fmt: skip
        """In place of `repeat_runs`."""
        assert (project, root, code) == (self.committed.project, self.committed.paths.runs, self.committed.code)
        assert executor.jobs == 3
        self.asked.append({name: [*each] for name, each in seeds.items()})
        self.recorded.append(recorded)
        keys = [(name, seed) for name in seeds for seed in seeds[name]]
        for done in range(len(keys)):
            on_progress(done + 1, len(keys))
        return {key: self.run(*key, recorded) for key in keys}

    def run(self, experiment: str, seed: int, recorded: frozenset[str]) -> PairedRun:
        if (experiment, seed) in self.crashed:
            return PairedRun(experiment, seed, seconds=3.0, error="ValueError: boom")
        shift = SHIFT if (experiment, seed) in self.shifted else 0.0
        values = tuple((name, value + shift) for name, value in quantities(seed).items())
        return PairedRun(experiment, seed, values, 3.0, executed=EXECUTED if experiment in recorded else None)

    def replay(self, figures: Figures, before: Mapping[str, Evidence] | None = None, *recorded: str) -> Replayed:
        return replay(
            self.committed,
            figures,
            before=before or {},
            recorded=frozenset(recorded),
            executor=ProcessExecutor(3),
            on_progress=lambda *each: self.progress.append(each),
        )

    def figures(self, *claims: str | Claim, repeats: bool = True) -> Figures:
        """These claims, with evidence of the very runs that are made again."""
        found = []
        for each in claims:
            claim = self.committed.project.claim(each) if isinstance(each, str) else each
            assert claim.figure is not None
            values = [quantities(seed)[claim.figure.quantity] for seed in claim.seeds]
            evidence = Evidence(claim.id, claim.seeds, (), figure=measured_figure(values, claim.figure.claimed))
            found.append((replace(claim, figure=replace(claim.figure, repeats=repeats)), evidence))
        return found


@pytest.fixture
def runs(figureproject: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    made = Runs(figureproject, tmp_path)
    monkeypatch.setattr(replaying, "repeat_runs", made.repeat)
    return made


def told(found: Replayed) -> list[tuple[str, str]]:
    """Each claim with a problem, and the start of its sentence."""
    return [(each.subject, each.sentence.partition(":")[0]) for each in found.problems]


def test_one_run_of_each_figure_is_repeated_and_shared_within_an_experiment(runs: Runs) -> None:
    figures = runs.figures("FIG-GAIN", "FIG-SPIKE", "FIG-DRIFT", "FIG-BETTER")
    first = {claim.id: repeated_seed(evidence) for claim, evidence in figures}
    found = runs.replay(figures)
    (asked, more), transfer = runs.asked, {first[name] for name in ("FIG-GAIN", "FIG-SPIKE", "FIG-DRIFT")}
    assert (sorted(asked["transfer"]), asked["same-arms"], more) == (sorted(transfer), [first["FIG-BETTER"]], {})
    assert (found.problems, found.code, runs.recorded) == ((), {}, [frozenset(), frozenset()])
    share = float(len(transfer))
    assert found.seconds == {"FIG-GAIN": share, "FIG-SPIKE": share, "FIG-DRIFT": share, "FIG-BETTER": 3.0}


def test_the_run_is_repeated_that_a_change_of_the_evidence_moves_most(runs: Runs) -> None:
    """The evidence of another claim says nothing."""
    figures = runs.figures("FIG-GAIN", "FIG-DRIFT")
    (_, gain), (_, drift) = figures
    assert gain.figure is not None
    for moved in (seed for seed in range(8) if seed != repeated_seed(gain)):
        values = [value - 0.5 * (seed == moved) for seed, value in enumerate(gain.figure.values)]
        before = {"FIG-GAIN": replace(gain, figure=replace(gain.figure, values=tuple(values)))}
        runs.asked.clear()
        runs.replay(figures, before)
        assert runs.asked[0] == {"transfer": list(dict.fromkeys((moved, repeated_seed(drift))))}


def test_what_a_run_executes_is_recorded_of_the_claims_for_which_it_is_asked(runs: Runs) -> None:
    figures = runs.figures("FIG-GAIN", "FIG-DRIFT", "FIG-BETTER")
    found = runs.replay(figures, None, "FIG-GAIN")
    assert runs.recorded == [frozenset({"transfer"}), frozenset()]
    (claim, _), code, project = figures[0], runs.committed.code, runs.committed.project
    record = code.record(project.settings_digest(claim), project.sources(claim), EXECUTED, Executed())
    assert found.code == {"FIG-GAIN": record}
    runs.crashed = {("transfer", seed) for seed in range(8)}
    assert runs.replay(figures, None, "FIG-GAIN").code == {}


def test_where_runs_do_not_repeat_and_one_differs_those_that_are_left_are_made(runs: Runs) -> None:
    figures = runs.figures("FIG-GAIN", "FIG-BETTER", repeats=False)
    first = repeated_seed(figures[0][1])
    runs.shifted = {("transfer", first)}
    found = runs.replay(figures)
    assert runs.asked[1] == {"transfer": [seed for seed in range(8) if seed != first]}
    assert told(found) == []  # the mean decides
    assert runs.progress == [*((done, 2) for done in (1, 2)), *((done, 9) for done in range(3, 10))]
    assert found.seconds == {"FIG-GAIN": 24.0, "FIG-BETTER": 3.0}
    runs.shifted = {("transfer", seed) for seed in range(8)}
    (problem,) = runs.replay(figures).problems
    assert problem.sentence.startswith("repeated runs differ: a mean of 25 (")


def test_eight_runs_are_enough_for_the_mean_of_more(runs: Runs) -> None:
    """That they are fewer than those committed is no difference."""
    many = replace(runs.committed.project.claim("FIG-GAIN"), seeds=tuple(range(12)))
    figures = runs.figures(many, repeats=False)
    first = repeated_seed(figures[0][1])
    runs.shifted = {("transfer", first)}
    assert told(runs.replay(figures)) == []
    assert {*runs.asked[1]["transfer"]} == {*range(8)} - {first}


@pytest.mark.parametrize("ids", [("FIG-GAIN", "FIG-SPIKE"), ("FIG-SPIKE", "FIG-GAIN")])
def test_figures_of_one_experiment_never_ask_for_a_run_twice(runs: Runs, ids: tuple[str, str]) -> None:
    """One has eight runs and the other six."""
    runs.shifted = {("transfer", seed) for seed in range(8)}
    assert told(runs.replay(runs.figures(*ids, repeats=False))) == [(name, "repeated runs differ") for name in ids]
    made = [seed for asked in runs.asked for seed in asked["transfer"]]
    assert sorted(made) == list(range(8))


def test_a_figure_that_repeats_is_judged_by_one_run(runs: Runs) -> None:
    runs.shifted = {("transfer", seed) for seed in range(8)}
    assert told(runs.replay(runs.figures("FIG-GAIN"))) == [("FIG-GAIN", "repeated runs differ")]
    assert len(runs.asked[0]["transfer"]) == 1
    assert runs.asked[1] in ({}, {"transfer": []})


def test_after_a_crash_of_one_figure_the_next_is_compared(runs: Runs) -> None:
    runs.crashed = {("same-arms", seed) for seed in range(5)}
    runs.shifted = {("transfer", seed) for seed in range(8)}
    found = runs.replay(runs.figures("FIG-BETTER", "FIG-GAIN", repeats=False))
    assert told(found) == [("FIG-BETTER", "a repeated run crashes"), ("FIG-GAIN", "repeated runs differ")]
    assert "same-arms" not in runs.asked[1]


def test_a_crash_among_the_runs_that_are_left_is_the_answer(runs: Runs) -> None:
    figures = runs.figures("FIG-GAIN", repeats=False)
    first = repeated_seed(figures[0][1])
    runs.shifted, crashed = {("transfer", first)}, (first + 1) % 8
    runs.crashed = {("transfer", crashed)}
    (problem,) = runs.replay(figures).problems
    assert problem.sentence == f"a repeated run crashes: seed {crashed}: ValueError: boom"
