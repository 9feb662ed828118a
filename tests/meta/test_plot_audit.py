"""The plots of a report: measured when the code that gives them has changed, and otherwise kept as they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import pytest

from rlverify.evidence.lock_file import NAME as LOCK_FILE
from rlverify.evidence.lock_file import Lock, lock_json
from rlverify.evidence.plot_files import from_json, load_plots, to_json
from rlverify.evidence.seals import sealed
from rlverify.gating import plot_audit
from rlverify.gating.committed_evidence import Committed
from rlverify.gating.plot_audit import AGREEMENT, check_plots, replace_plots
from rlverify.project.content import Project
from rlverify.project.current_code import CurrentCode
from rlverify.project.settings import ReportPaths
from rlverify.records.code_records import Executed
from rlverify.records.errors import EvidenceError, HarnessError
from rlverify.records.plot_points import Line, Plot
from rlverify.records.problems import Problem
from rlverify.running.executor import Executor
from rlverify.running.executors import ProcessExecutor
from rlverify.running.repeated_runs import MeasuredPlot
from rlverify.running.runner import Progress

ONE = ProcessExecutor(1)

NAME = "toy-squares"
PART = "toyproject.plots.squares:squares"
ANOTHER = "toyproject.target:clip"
IMPORTED = "toyproject.target:Average.add"


class Measuring:
    """Measures plots in this process, which is quick; what was asked for is in the list."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[str], frozenset[str]]] = []
        self.executed = Executed((PART,))
        self.error = ""
        self.values: tuple[float | None, ...] = (0.0, 1.0, 4.0, 9.0)

    def measure_plots(
        self, project: Project, names: Collection[str], *, executor: Executor, on_progress: Progress,
        recorded: frozenset[str],
    ) -> dict[str, MeasuredPlot]:  # fmt: skip
        assert executor.jobs == 1
        self.asked.append((sorted(names), recorded))
        on_progress(len(names), len(names))
        if self.error:
            return {name: MeasuredPlot(None, error=self.error) for name in names}
        return {name: MeasuredPlot(self.plot(project, name), self._executed(name in recorded)) for name in names}

    def plot(self, project: Project, name: str) -> Plot:
        return replace(project.plots[name](*project.make()), lines=(Line("x^2", self.values),))

    def _executed(self, is_recorded: bool) -> Executed:
        return self.executed if is_recorded else Executed()


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> Measuring:
    made = Measuring()
    monkeypatch.setattr(plot_audit, "measure_plots", made.measure_plots)
    monkeypatch.setattr(plot_audit, "executed_by_imports", lambda _project: Executed((IMPORTED,)))
    return made


@pytest.fixture
def committed(toyproject: Project, tmp_path: Path, measuring: Measuring) -> Committed:
    """The plots of the toy project in a folder of reports, with their lock file."""
    found = committed_in(toyproject, tmp_path)
    lock(found, replace_plots(found, executor=ONE, all_claims=True))
    measuring.asked.clear()
    return committed_in(toyproject, tmp_path)


def committed_in(project: Project, folder: Path) -> Committed:
    return Committed(project, ReportPaths(folder), CurrentCode(project))


def lock(found: Committed, records: object, older: str = "") -> None:
    """Write the lock file; with another digest of a part, if one is named."""
    assert isinstance(records, dict)
    if older:
        parts = {**dict(records[NAME].parts), older: "0" * 16}
        records[NAME] = replace(records[NAME], parts=tuple(sorted(parts.items())))
    (found.paths.reports / LOCK_FILE).write_text(lock_json(Lock({}, records), found.code))


def path_of(found: Committed) -> Path:
    return found.paths.reports / "plots" / f"{NAME}.json"


def problems(found: Committed, *selected: str) -> list[tuple[str, str]]:
    found_wrong = check_plots(found, frozenset(selected), executor=ONE)
    for each in found_wrong:
        remedy = "run `rlverify audit --update`"
        if each.sentence.startswith("measured again"):
            remedy = "" if "crashes" in each.sentence else f"if that is right, {remedy}"
        assert (each.exit_code, each.remedy) == (1, remedy)
    return [(each.subject, each.sentence) for each in found_wrong]


def test_points_are_read_as_they_were_written(toyproject: Project, committed: Committed) -> None:
    plot = load_plots(committed.paths.reports)[NAME]
    assert plot == toyproject.plots[NAME](*toyproject.make())
    assert plot.lines[0].values == (0.0, 1.0, 4.0, 9.0)
    assert problems(committed) == []


def test_a_plot_that_fits_is_not_measured(committed: Committed) -> None:
    """Its points are wrong and stay so, as nothing that gives them has changed; the gate selects it by the diff."""
    plot = load_plots(committed.paths.reports)[NAME]
    path_of(committed).write_text(to_json(replace(plot, lines=(Line("x^2", (0.0, 1.0, 4.0, 10.0)),))))
    before = path_of(committed).read_bytes()
    assert problems(committed) == []
    replace_plots(committed, executor=ONE, all_claims=True)
    assert path_of(committed).read_bytes() == before
    assert problems(committed, NAME) == [
        (f"plots/{NAME}.json", "measured again, line 'x^2' is 9.0 at 3, committed 10.0")
    ]


def test_each_plot_that_is_measured_is_told(toyproject: Project, committed: Committed, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []

    def tell(done: int, total: int) -> None:
        told.append((done, total))

    check_plots(committed, frozenset({NAME}), executor=ONE, on_progress=tell)
    assert (told[-1], {*told} <= {(0, 1), (1, 1)}) == ((1, 1), True)
    told.clear()
    replace_plots(committed_in(toyproject, tmp_path / "new"), executor=ONE, all_claims=True, on_progress=tell)
    assert told == [(1, 1)]


def test_a_plot_of_other_code_is_measured_again(toyproject: Project, committed: Committed) -> None:
    plot = load_plots(committed.paths.reports)[NAME]
    before = path_of(committed).read_bytes()
    path_of(committed).write_text(to_json(replace(plot, lines=(Line("x^2", (0.0, 1.0, 4.0, 10.0)),))))
    lock(committed, dict(committed.lock.plots), older="toyproject.plots.squares:squares")
    again = committed_in(toyproject, committed.paths.reports)
    assert [name for name, _ in problems(again)] == [f"plots/{NAME}.json"]
    records = replace_plots(again, executor=ONE, all_claims=True)
    assert path_of(again).read_bytes() == before
    assert again.code.changed(records[NAME]) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda plot: replace(plot, note="Another."), "its texts, lines or positions differ"),
        (
            lambda plot: replace(plot, log_x=True, positions=(1.0, 2.0, 3.0, 4.0)),
            "its texts, lines or positions differ",
        ),
        (
            lambda plot: replace(plot, lines=(Line("x^3", plot.lines[0].values),)),
            "its texts, lines or positions differ",
        ),
        (
            lambda plot: replace(plot, positions=(0.0, 1.0, 2.0, 3.1)),
            "its texts, lines or positions differ",
        ),
        (lambda plot: replace(plot, positions=(0.0, 1.0, 2.0, 3.02)), ""),  # as another machine may give
        (lambda plot: replace(plot, positions=(AGREEMENT * 3.0, 1.0, 2.0, 3.0)), ""),
        (
            lambda plot: replace(plot, lines=(Line("x^2", (0.0, 1.0, None, 9.0)),)),
            "line 'x^2' is 4.0 at 2, committed None",
        ),
        (
            lambda plot: replace(plot, lines=(Line("x^2", (0.0, 1.0, 4.0, 9.2)),)),
            "line 'x^2' is 9.0 at 3, committed 9.2",
        ),
        (lambda plot: replace(plot, lines=(Line("x^2", (0.0, 1.0, 4.0, 9.1)),)), ""),  # as another machine may give
    ],
)
def test_every_difference_is_told(committed: Committed, change: Callable[[Plot], Plot], told: str) -> None:
    path_of(committed).write_text(to_json(change(load_plots(committed.paths.reports)[NAME])))
    expected = [(f"plots/{NAME}.json", f"measured again, {told}")] if told else []
    assert problems(committed, NAME) == expected


@pytest.mark.parametrize(
    ("was", "now", "agree"),
    [
        ((0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0), True),
        ((None, 0.0, 0.0, 0.1), (None, 0.0, 0.0, 0.101), True),
        ((None, 0.0, 0.0, 0.1), (None, 0.0, 0.0, 0.11), False),
        ((None, 0.0, 0.0, -0.1), (None, 0.0, 0.0, -0.11), False),
    ],
)
def test_values_agree_to_a_part_of_the_largest_of_their_line(
    committed: Committed, measuring: Measuring, toyproject: Project, was: tuple[float | None, ...],
    now: tuple[float | None, ...], agree: bool,
) -> None:  # fmt: skip
    measuring.values = was
    path_of(committed).write_text(to_json(measuring.plot(toyproject, NAME)))
    measuring.values = now
    assert (problems(committed, NAME) == []) == agree


def test_missing_and_orphaned_plots_are_told_and_replaced(committed: Committed) -> None:
    folder = path_of(committed).parent
    path_of(committed).rename(folder / "gone.json")
    (folder / "gone.svg").touch()
    assert problems(committed) == [
        ("plots/gone.json", "nothing measures this plot any more"),
        (f"plots/{NAME}.json", "is missing"),
    ]
    replace_plots(committed, executor=ONE, all_claims=True)
    assert {path.name for path in folder.iterdir()} == {f"{NAME}.json"}


def test_an_update_of_some_claims_measures_no_plot(committed: Committed) -> None:
    path_of(committed).unlink()
    assert replace_plots(committed, executor=ONE, all_claims=False) == committed.lock.plots
    assert not path_of(committed).exists()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"schema_version": 2', '"schema_version": 1', "schema_version: Input should be 2"),
        ('"note": "Exact."', '"note": "Roughly."', "was edited after it was measured"),
        ('"title": ', '"headline": ', "title: Field required"),
        ('"x^2"', "7", "lines.0.label: Input should be a valid string"),
        ('"digest"', "digest", "Invalid JSON"),
    ],
)
def test_a_broken_file_is_an_error_and_an_update_replaces_it(
    committed: Committed, old: str, new: str, told: str
) -> None:
    before = path_of(committed).read_text()
    assert before.count(old) == 1
    path_of(committed).write_text(before.replace(old, new))
    for read in (
        lambda: from_json(path_of(committed).read_text(), path_of(committed)),
        lambda: check_plots(committed, frozenset(), executor=ONE),
    ):
        with pytest.raises(EvidenceError) as caught:
            read()
        assert str(caught.value).startswith(f"evidence {path_of(committed)}: ")
        assert told in str(caught.value)
        assert str(caught.value).count("evidence ") == 1
    replace_plots(committed, executor=ONE, all_claims=True)
    assert path_of(committed).read_text() == before


def test_a_plot_that_crashes_is_a_problem_and_replaces_nothing(committed: Committed, measuring: Measuring) -> None:
    measuring.error = "ValueError: boom"
    (problem,) = check_plots(committed, frozenset({NAME}), executor=ONE)
    assert problem == Problem(f"plots/{NAME}.json", 1, "measured again, crashes: ValueError: boom")
    path_of(committed).unlink()
    with pytest.raises(HarnessError, match=f"plot '{NAME}': ValueError: boom; nothing was replaced"):
        replace_plots(committed, executor=ONE, all_claims=True)
    assert not path_of(committed).exists()


def test_what_a_plot_executes_is_compared_with_the_lock_file_where_it_is_asked(
    committed: Committed, measuring: Measuring
) -> None:
    """After what is wrong with its points; of a plot that is not measured nothing is known."""
    measuring.executed = Executed((PART, ANOTHER))
    asked, path = frozenset({NAME}), path_of(committed)
    assert check_plots(committed, frozenset(), executor=ONE, recorded=asked) == []
    told = [each.sentence for each in check_plots(committed, asked, executor=ONE, recorded=asked)]
    assert told == [f"does not list {ANOTHER}, which runs of {NAME} executed or read"]
    plot = load_plots(committed.paths.reports)[NAME]
    path.write_text(to_json(replace(plot, lines=(Line("x^2", (0.0, 2.0, 4.0, 10.0)),))))
    found = check_plots(committed, asked, executor=ONE, recorded=asked)
    assert [each.subject for each in found] == [f"plots/{NAME}.json", LOCK_FILE]
    assert found[0].sentence == "measured again, line 'x^2' is 1.0 at 1, committed 2.0"
    assert problems(committed, NAME) == [(found[0].subject, found[0].sentence)]
    assert measuring.asked == [([], asked), ([NAME], asked), ([NAME], asked), ([NAME], frozenset())]


def test_an_update_measures_and_records_what_does_not_fit(committed: Committed, measuring: Measuring) -> None:
    """With what imports execute."""
    assert replace_plots(committed, executor=ONE, all_claims=True) == committed.lock.plots
    assert {PART, IMPORTED} <= {*dict(committed.lock.plots[NAME].parts)}
    path_of(committed).unlink()
    replace_plots(committed, executor=ONE, all_claims=True)
    assert measuring.asked == [([], frozenset()), ([NAME], frozenset({NAME}))]


def test_a_plot_that_cannot_be_drawn_is_an_error_even_if_it_is_sealed(committed: Committed) -> None:
    path = path_of(committed)
    content = json.loads(path.read_text())
    del content["digest"], content["lines"][0]["values"][0]
    with pytest.raises(EvidenceError) as caught:
        from_json(sealed(content), path)
    assert str(caught.value) == (
        f"evidence {path}: 'Squares': every line needs one value or None for each of 4; measure it again"
    )


def test_an_edited_plot_names_the_command_that_replaces_it(committed: Committed) -> None:
    path = path_of(committed)
    with pytest.raises(EvidenceError, match=r"was edited after it was measured.* run `rlverify audit --update`"):
        from_json(path.read_text().replace("9.0", "18.0"), path)


def test_an_update_records_what_a_plot_executed(toyproject: Project, tmp_path: Path) -> None:
    """In a process of its own."""
    record = replace_plots(committed_in(toyproject, tmp_path), executor=ONE, all_claims=True)[NAME]
    assert PART in record.executed.functions
    assert record.settings == ""
