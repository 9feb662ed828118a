"""Figures that no run gives are detected by repeating runs: of those that a diff touches, and of a sample."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Container
from pathlib import Path

import pytest

from rlverify.evidence.evidence_files import load_file, to_json
from rlverify.evidence.files import sealed
from rlverify.evidence.summarising import measured_figure
from rlverify.project.fingerprint import source_digest
from tests.engine.checkouts import answer, commit, commit_of_words, gate, git, replace
from tests.engine.project_folders import once_in_a_process

FAULT_OF_MIDDLE = """
from rlverify import fault


@fault("low-only", target="figureproject.target:middle", pins="PIN")
def low_only(low, high):
    return low
"""
FULL = "run `rlverify audit --level full --update`"


@pytest.fixture
def checkout(figures: Path, tmp_path: Path) -> Path:
    """A copy of the project with figures to be changed."""
    return shutil.copytree(figures, tmp_path / "checkout")


@pytest.fixture(scope="module")
@once_in_a_process
def measured_again(figures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = shutil.copytree(figures, tmp_path_factory.mktemp("measured") / "again")
    not_repeating(made, "FIG-GAIN")
    return made


@pytest.fixture
def drifting(measured_again: Path, tmp_path: Path) -> Path:
    """A copy in which single runs of one figure do not repeat."""
    return shutil.copytree(measured_again, tmp_path / "drifting")


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


def not_repeating(checkout: Path, *claims: str) -> None:
    """Figures of which single runs differ between machines, measured again."""
    path = checkout / "figureproject/catalogue/figures.toml"
    for claim in claims:
        head, found, tail = path.read_text().partition(f'id = "{claim}"')
        path.write_text(head + found + tail.replace("power = 0.8\n", "power = 0.8\nrepeats = false\n", 1))
    assert answer(checkout, "audit", *claims, "--level", "full", "--update").returncode == 0
    shutil.rmtree(checkout / ".rlverify")
    path = checkout / "reports/full_audit.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "machine": "another"}))
    commit(checkout, "do not repeat")


def runs_made(log: Path) -> list[str]:
    """Experiment and seed of each run that was made."""
    return [line.rpartition(" ")[0] for line in log.read_text().splitlines()] if log.exists() else []


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FIGURELAB_LOG", str(tmp_path / "log"))
    return tmp_path / "log"


def test_one_run_of_each_experiment_checks_all_its_figures(checkout: Path, log: Path) -> None:
    code, said = gate(checkout)
    assert (code, "of 4 of 4 figures, a run was repeated" in said) == (0, True), said
    assert {each.partition(" ")[0] for each in runs_made(log)} == {"same-arms", "transfer"}
    assert len(runs_made(log)) <= 3  # two figures of the experiment ask for eight runs, and one for six


def test_the_same_revision_repeats_the_same_runs_and_another_one_others(checkout: Path, log: Path) -> None:
    made = set()
    for times in (2, 1, 1):
        assert [gate(checkout)[0] for _ in range(times)] == [0] * times
        runs = Counter(runs_made(log))
        assert {*runs.values()} == {times}
        made |= {*runs}
        log.unlink()
        commit_of_words(checkout)
    assert len(made) > 2


def test_without_git_a_sample_is_repeated_as_well(checkout: Path, log: Path) -> None:
    shutil.rmtree(checkout / ".git")
    assert gate(checkout)[0] == 0
    assert len(runs_made(log)) in (2, 3)
    forge(checkout, "FIG-GAIN", 2.0)
    assert gate(checkout)[0] == 1


@pytest.mark.parametrize(
    ("seeds", "is_committed"), [(range(8), False), ((0,), True), ((5,), False), ((1, 3, 5, 7), True)], ids=str
)
def test_forged_figures_are_detected(checkout: Path, seeds: Container[int], is_committed: bool) -> None:
    """Inside the claimed interval, so that the verdict stays as it is expected."""
    forge(checkout, "FIG-GAIN", 2.0, seeds)
    if is_committed:
        commit(checkout, "forged")
    for arguments in ((), ("FIG-GAIN",), ("--level", "full"))[: 1 if is_committed else 3]:
        code, said = gate(checkout, *arguments)
        assert (code, "FIG-GAIN" in said, "seed" in said) == (1, True, True), said
        assert f"if that is right, {FULL}" in said


def test_a_run_that_is_asked_for_is_made_next_to_the_sample(checkout: Path, log: Path) -> None:
    """The forged seed differs from that of the sample, or is the same: it is made in either case."""
    for seed in range(2):
        git(checkout, "checkout", "--quiet", ".")
        forge(checkout, "FIG-GAIN", 2.0, (seed,))
        assert gate(checkout)[0] == 1
        assert f"transfer {seed}" in runs_made(log)


def test_evidence_that_was_judged_by_another_criterion_is_stale(checkout: Path) -> None:
    path = checkout / "figureproject/catalogue/figures.toml"
    text, another = path.read_text(), "judged by another criterion: the claim now names another "
    for old, new, told in (
        ("runs = 8\n", "runs = 9\n", "measured in 8 runs, the claim asks for 9"),
        ("power = 0.8\n", "power = 0.8\ntolerance = 0.5\n", another),
        ('quantity = "gain"', 'quantity = "spike"', another),
        ("[15.0, 25.0]", "[16.0, 25.0]", "measured against 15 to 25, the claim says 16 to 25"),
    ):
        path.write_text(text.replace(old, new, 1))
        done = answer(checkout, "audit", "FIG-GAIN")
        assert (done.returncode, f"FIG-GAIN: STALE, {told}" in done.stdout, FULL in done.stdout) == (1, True, True)
    assert answer(checkout, "report").returncode == 1
    assert told in (checkout / "reports/claims.md").read_text()


def test_the_mean_of_repeated_runs_decides_where_single_runs_do_not_repeat(drifting: Path) -> None:
    forge(drifting, "FIG-GAIN", 0.3)  # as another machine might give
    assert gate(drifting)[0] == 0
    forge(drifting, "FIG-GAIN", 1.7)
    code, said = gate(drifting)
    assert (code, "FIG-GAIN" in said, "a mean of 20" in said) == (1, True, True), said


def test_a_crash_among_repeated_runs_is_a_problem_whatever_the_others_give(drifting: Path) -> None:
    forge(drifting, "FIG-GAIN", 0.3)
    path = drifting / "figureproject/experiments/values.py"
    replace(path, '    _behave("transfer", seed)\n', "    assert seed != 3, 'boom'\n")
    code, said = gate(drifting)
    assert (code, "a repeated run crashes\n  seed 3: AssertionError: boom" in said) == (1, True), said


def test_of_a_figure_that_repeats_one_run_is_enough(checkout: Path, log: Path) -> None:
    forge(checkout, "FIG-GAIN", 1.7)
    assert gate(checkout, "FIG-GAIN")[0] == 1
    assert len([each for each in runs_made(log) if each.startswith("transfer ")]) <= 2  # forged and sampled seed


def test_a_crash_of_one_figure_leaves_the_others_to_be_compared(drifting: Path) -> None:
    forge(drifting, "FIG-GAIN", 1.7)
    path = drifting / "figureproject/experiments/values.py"
    replace(path, '    _behave("same-arms", seed)\n', "    raise ValueError\n")
    code, said = gate(drifting)
    assert (code, "a repeated run crashes" in said, "repeated runs differ\n  a mean of 20" in said) == (1, True, True)


def test_after_a_crash_no_further_run_is_made(drifting: Path, log: Path) -> None:
    path = drifting / "figureproject/experiments/values.py"
    replace(path, '    _behave("transfer", seed)\n', '    _behave("transfer", seed)\n    raise ValueError\n')
    assert gate(drifting)[0] == 1
    made = [each for each in runs_made(log) if each.startswith("transfer ")]
    assert 1 <= len({*made}) <= 2  # one for the figures of eight runs, and one for that of six


def test_figures_of_one_experiment_may_ask_for_different_numbers_of_runs(checkout: Path) -> None:
    not_repeating(checkout, "FIG-GAIN", "FIG-SPIKE")
    replace(checkout / "figureproject/experiments/values.py", "random.Random(seed).uniform(-1, 1)", "9.0 + seed")
    code, said = gate(checkout)
    assert (code, "FIG-GAIN" in said, "FIG-SPIKE" in said) == (1, True, True), said


def test_no_run_is_repeated_twice(drifting: Path, log: Path) -> None:
    forge(drifting, "FIG-GAIN", 1.7)
    assert gate(drifting)[0] == 1
    made = runs_made(log)
    twice = [run for run, times in Counter(made).items() if times > 1]
    assert twice == ["transfer 0"]  # to find what it executes
    assert {f"transfer {seed}" for seed in range(8)} <= {*made}


def test_a_change_that_moves_a_figure_is_detected_with_its_place(checkout: Path) -> None:
    replace(checkout / "figureproject/target.py", "(low + high) / 2", "(low + high) / 2.2")
    code, said = gate(checkout)
    assert (code, "FIG-GAIN" in said, "first suspect: figureproject/target.py:6 (changed)" in said) == (1, True, True)
    assert FULL not in said.split("LAB-01")[0]


def test_a_change_that_moves_no_value_asks_for_nothing(checkout: Path) -> None:
    replace(checkout / "figureproject/target.py", "return (low + high) / 2", "total = low + high\n    return total / 2")
    code, said = gate(checkout)
    assert (code, "update" in said) == (0, False), said
    before = {path: path.read_bytes() for path in sorted((checkout / "reports").rglob("*.*"))}
    assert answer(checkout, "audit", "--update").returncode == 0
    assert {path: path.read_bytes() for path in sorted((checkout / "reports").rglob("*.*"))} == before


def test_an_experiment_may_plant_a_fault_by_name(checkout: Path) -> None:
    """It is repeated in a process of its own, in which no claim has asked for the faults before."""
    pin = source_digest((checkout / "figureproject/target.py").read_text(), "middle")
    (checkout / "figureproject/faults/middles.py").write_text(FAULT_OF_MIDDLE.replace("PIN", pin))
    path = checkout / "figureproject/experiments/values.py"
    replace(path, "from rlverify import experiment", "from rlverify import experiment, get_fault, plant")
    replace(path, '    _behave("transfer", seed)\n', '    with plant(get_fault("low-only")):\n        pass\n')
    code, said = gate(checkout)
    assert code == 0, said


def test_a_full_audit_notes_its_day_and_revision_until_the_code_changes(checkout: Path) -> None:
    path = checkout / "reports/full_audit.json"
    first = json.loads(path.read_text())
    assert (first["revision"], first["seconds"].keys()) == ("", {"transfer", "same-arms"})
    path.write_text(path.read_text().replace(first["date"], "2000-01-02"))
    full = ("audit", "--level", "full", "--update")
    assert answer(checkout, *full).returncode == 0
    assert json.loads(path.read_text())["date"] == "2000-01-02"
    assert "- Last measured in full on 2000-01-02." in (checkout / "reports/index.md").read_text()
    replace(checkout / "figureproject/target.py", "return (low + high) / 2", "return (high + low) / 2")
    assert answer(checkout, "audit", "--update").returncode == 0
    assert json.loads(path.read_text())["date"] == "2000-01-02"
    head = git(checkout, "rev-parse", "--short=10", "HEAD")
    assert answer(checkout, *full).returncode == 0
    assert json.loads(path.read_text())["revision"] == f"{head}-dirty"
    assert f"on {first['date']}, at revision {head}-dirty." in (checkout / "reports/index.md").read_text()
