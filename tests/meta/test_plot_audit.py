"""The plots of a report: measured when the code that gives them has changed, and compared byte by byte."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rlverify.evidence.plot_files import Points, from_json, load_plots, to_json
from rlverify.gating.plot_audit import plot_problems, replace_plots
from rlverify.project.content import Project
from rlverify.records.errors import EvidenceError
from rlverify.records.plot_points import Plot

NAME = "toy-squares"


@pytest.fixture
def reports(toyproject: Project, tmp_path: Path) -> Path:
    """A folder with the plots of the toy project."""
    replace_plots(toyproject, tmp_path)
    return tmp_path


def _committed(reports: Path) -> Path:
    return reports / "plots" / f"{NAME}.json"


def _never(*_arguments: object) -> Plot:
    raise AssertionError("measured again")


def _rewrite(reports: Path, digest: str) -> None:
    points = load_plots(reports)[NAME]
    _committed(reports).write_text(to_json(replace(points, digest=digest)), encoding="utf-8")


def test_points_are_read_as_they_were_written(toyproject: Project, reports: Path) -> None:
    points = load_plots(reports)[NAME]
    assert points == Points(toyproject.plots[NAME](*toyproject.make()), toyproject.plot_digest(NAME))
    assert points.plot.lines[0].values == (0.0, 1.0, 4.0, 9.0)
    assert plot_problems(toyproject, reports) == []


def test_points_that_fit_are_kept_as_they_are(
    toyproject: Project, reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _committed(reports).read_bytes()
    monkeypatch.setitem(toyproject.plots, NAME, _pretending_to_be_in(toyproject))
    replace_plots(toyproject, reports)
    assert _committed(reports).read_bytes() == before


def _pretending_to_be_in(toyproject: Project) -> object:
    def measure(*arguments: object) -> Plot:
        return _never(*arguments)

    measure.__module__ = toyproject.plots[NAME].__module__
    return measure


def test_points_of_other_code_are_told_and_measured_again(toyproject: Project, reports: Path) -> None:
    before = _committed(reports).read_bytes()
    _rewrite(reports, digest="0" * 16)
    assert plot_problems(toyproject, reports) == [(f"plots/{NAME}.json", "was measured of other code")]
    replace_plots(toyproject, reports)
    assert _committed(reports).read_bytes() == before


def test_missing_and_orphaned_plots_are_told_and_mended(toyproject: Project, reports: Path) -> None:
    folder = _committed(reports).parent
    _committed(reports).rename(folder / "gone.json")
    (folder / "gone.svg").touch()
    assert plot_problems(toyproject, reports) == [
        ("plots/gone.json", "nothing measures this plot any more"),
        (f"plots/{NAME}.json", "is missing"),
    ]
    replace_plots(toyproject, reports)
    assert {path.name for path in folder.iterdir()} == {f"{NAME}.json"}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"schema_version": 1', '"schema_version": 2', "schema_version"),
        ('"title"', '"name"', "title"),
        ('"log_y": false', '"log_y": true', "not above 0 on a logarithmic axis"),
        ("{", "", "measure it again"),
    ],
)
def test_broken_points_are_one_line_and_an_update_mends_them(
    toyproject: Project, reports: Path, old: str, new: str, told: str
) -> None:
    path = _committed(reports)
    before = path.read_text(encoding="utf-8")
    path.write_text(before.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(EvidenceError) as raised:
        load_plots(reports)
    assert told in str(raised.value)
    assert f"{NAME}.json" in str(raised.value)
    assert "\n" not in str(raised.value)
    replace_plots(toyproject, reports)
    assert from_json(path.read_text(encoding="utf-8"), path) == from_json(before, path)
