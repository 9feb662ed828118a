"""Which runs of figures a gate repeats: the sample moves on with each commit, and a change asks for its own."""

from __future__ import annotations

import shutil
from dataclasses import replace as changed
from pathlib import Path

import pytest

from rlverify.evidence.summarising import measured_figure
from rlverify.gating.git_base import Base
from rlverify.gating.replay import RUNS, SECONDS, Revision, forced_by, seeds_to_repeat
from rlverify.project.content import Project, open_project
from rlverify.records.claims import Claim
from rlverify.records.measured import Evidence
from tests.engine.checkouts import commit, replace
from tests.engine.in_process import fresh_projects
from tests.engine.reporting.records import figure

HEAD = Revision("0123", 0)


def figures(number: int, runs: int = 8) -> list[tuple[Claim, Evidence]]:
    """Figures that each have an experiment of their own."""
    claim = figure(15.0, 25.0).claim
    own = [changed(claim, id=f"F-{n}", experiment=f"e-{n}", seeds=tuple(range(runs))) for n in range(number)]
    return [(each, Evidence(each.id, each.seeds, (), figure=measured_figure([1.0] * runs, (0, 1)))) for each in own]


def sample(number: int, commits: int, seconds: dict[str, float] | None = None) -> set[str]:
    return {*seeds_to_repeat(figures(number), Revision("0123", commits), {}, seconds or {})}


@pytest.mark.parametrize("number", [1, 10, 25, 32])
def test_every_experiment_has_its_turn_once_in_a_round(number: int) -> None:
    rounds = -(-number // RUNS)
    samples = [sample(number, commits) for commits in range(rounds)]
    assert sum(map(len, samples)) == len(set().union(*samples)) == number
    assert max(map(len, samples)) <= RUNS
    assert sample(number, rounds) == samples[0]


def test_slow_experiments_are_few_at_a_time() -> None:
    seconds = {f"e-{n}": (20.0 if n % 2 else 1.0) for n in range(12)}
    samples = [sample(12, commits, seconds) for commits in range(12)]
    assert set().union(*samples) == {*seconds}
    assert max(sum(seconds[each] for each in one) for one in samples) <= SECONDS
    alone = [sample(3, commits, dict.fromkeys(("e-0", "e-1", "e-2"), 2 * SECONDS)) for commits in range(3)]
    assert sorted(map(len, alone)) == [1, 1, 1]  # one that is too slow has a turn as well


def test_nothing_is_repeated_without_figures() -> None:
    assert seeds_to_repeat([], HEAD, {}, {}) == {}


def test_seeds_follow_from_the_commit_and_the_experiment() -> None:
    seeds = {
        commit: seeds_to_repeat(figures(4, runs=80), Revision(commit, 0), {}, {}) for commit in ("a", "b", "c", "d")
    }
    assert len({str(each) for each in seeds.values()}) == 4
    assert len({seed for each in seeds.values() for own in each.values() for seed in own}) > 8
    assert seeds["a"] == seeds_to_repeat(figures(4, runs=80), Revision("a", 0), {}, {})


def test_what_is_forced_comes_on_top_with_the_seed_that_is_asked_for() -> None:
    many = figures(30)
    first = sample(30, 0)
    inside, outside = next(iter(first)), next(f"e-{n}" for n in range(30) if f"e-{n}" not in first)
    forced = {inside.replace("e", "F"): 3, outside.replace("e", "F"): None}
    found = seeds_to_repeat(many, HEAD, forced, {})
    assert found.keys() == {*first, outside}
    assert found[inside] == [3]
    assert len(found[outside]) == 1


def test_every_figure_of_an_experiment_is_checked_though_it_asks_for_fewer_runs() -> None:
    (long, evidence), (short, other) = figures(2, runs=80)
    short = changed(short, experiment=long.experiment, seeds=tuple(range(6)))
    for commit_ in "abcdefgh":
        seeds = seeds_to_repeat([(long, evidence), (short, other)], Revision(commit_, 0), {}, {})[long.experiment]
        assert set(seeds) & set(short.seeds)


CATALOGUE, TRANSFER = "figureproject/catalogue/figures.toml", {"FIG-GAIN", "FIG-SPIKE", "FIG-DRIFT"}


@pytest.mark.parametrize(
    ("file", "old", "new", "forced"),
    [
        ("README.md", "figures\n", "more\n", set()),
        ("figureproject/target.py", "/ 2", "/ 2.0", set()),
        (CATALOGUE, 'document = "figures"', 'document = "figures"  # words', set()),
        (CATALOGUE, "the gain of transfer", "the gain", {"FIG-GAIN"}),
        (CATALOGUE, "claimed = [5.0, 10.0]", "claimed = [5.0, 11.0]", {"FIG-SPIKE"}),
        ("figureproject/experiments/values.py", "    print(", "    # words\n    print(", {*TRANSFER, "FIG-BETTER"}),
        ("reports/evidence/FIG-GAIN.json", "\n", "\n\n", {"FIG-GAIN"}),
        (CATALOGUE, 'document = "figures"', "document =", {*TRANSFER, "FIG-BETTER"}),
    ],
    ids=["words", "code", "comment", "title", "interval", "experiment", "evidence", "broken before"],
)
def test_a_change_of_claim_experiment_or_evidence_asks_for_a_run(
    file: str, old: str, new: str, forced: set[str], figures: Path, tmp_path: Path
) -> None:
    checkout = shutil.copytree(figures, tmp_path / "checkout")
    path = checkout / file
    healthy = path.read_text()
    path.write_text(healthy.replace(old, new, 1))
    if new == "document =":  # a catalogue that was broken, and is mended now
        commit(checkout, "broken")
        path.write_text(healthy)
    with fresh_projects():
        project = open_project(checkout)
        assert forced_since_head(project, "FIG-") == forced


def forced_since_head(project: Project, ids: str) -> set[str]:
    own = [
        (claim, Evidence(claim.id, claim.seeds, (), figure=measured_figure([1.0] * 8, (0, 1))))
        for claim in project.claims
        if claim.id.startswith(ids)
    ]
    return {*forced_by(Base(project.root, "HEAD"), project, project.paths, own)}


def test_a_condition_is_compared_by_itself(figures: Path, tmp_path: Path) -> None:
    checkout = shutil.copytree(figures, tmp_path / "checkout")
    table = '\n[[claim.condition]]\nname = "NAME"\ntitle = "t"\nexperiment = "transfer"\nruns = 8\n'
    table += 'expected = "REFUTED"\n'
    path, pilot = checkout / CATALOGUE, 'pilot = "8 seeds (1000..1007)"\n'
    path.write_text(path.read_text().replace(pilot, pilot + "".join(table.replace("NAME", n) for n in ("a", "b")), 1))
    commit(checkout, "conditions")
    replace(path, 'name = "b"\ntitle = "t"', 'name = "b"\ntitle = "other"')
    with fresh_projects():
        assert forced_since_head(open_project(checkout), "FIG-GAIN") == {"FIG-GAIN@b"}
    replace(path, "the gain of transfer", "the gain")
    with fresh_projects():
        assert forced_since_head(open_project(checkout), "FIG-GAIN") == {"FIG-GAIN", "FIG-GAIN@b"}
