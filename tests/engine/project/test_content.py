"""A project finds its folders, its files, and what its content package registers."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rlverify.project.content import Project, open_project
from rlverify.project.registry import FIGURE_PLOTS, FigurePlot
from rlverify.records.errors import RegistrationError, SettingsError, UnknownNameError
from tests.engine.project_folders import project_in

PRINTING = "print('made')\n\n\nclass Make:\n    def __init__(self):\n        print('called')\n"


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        open_project(tmp_path / "typo")
    assert str(caught.value) == f"settings {tmp_path / 'typo'}: there is no such folder; name one with --project"
    assert (caught.value.path, caught.value.key) == (tmp_path / "typo", "")


def test_the_folders_of_a_project_come_before_all_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (str((tmp_path / name).resolve()) for name in ("first", "second"))
    for name in (first, second):
        Path(name).mkdir()
    monkeypatch.setattr(sys, "path", ["before", second, "after"])
    project_in(tmp_path, pythonpath=["first", "second"])
    assert sys.path == [first, second, "before", "after"]


def test_the_catalogue_file_of_a_claim_is_named_as_its_document(toyproject: Project, tmp_path: Path) -> None:
    claim = toyproject.claim("NULL-TOY")
    (tmp_path / "claims").mkdir()
    assert toyproject.catalogue_file(claim) == toyproject.folder / "catalogue" / "nulls.toml"
    assert project_in(tmp_path, catalogue="claims").catalogue_file(claim) == tmp_path / "claims" / "nulls.toml"


def test_a_claim_is_found_by_its_id_in_any_case(toyproject: Project) -> None:
    assert [toyproject.claim(name).id for name in ("TOY-02", "toy-02", "Toy-02")] == ["TOY-02"] * 3


@pytest.mark.parametrize(
    ("kind", "name", "told"),
    [
        ("claim", "xyz", "no claim named 'xyz'"),
        ("claim", "Toy-1", "no claim named 'Toy-1'; did you mean 'TOY-01'?"),
        ("fault", "add-twise", "no fault named 'add-twise'; did you mean 'add-twice'?"),
        ("probe", "xyz", "no probe named 'xyz'"),
        ("probe", "restart", "no probe named 'restart'; did you mean 'restore'?"),
        ("experiment", "same-harms", "no experiment named 'same-harms'; did you mean 'same-arms'?"),
    ],
)
def test_an_unknown_name_is_an_error_with_a_suggestion(
    kind: str, name: str, told: str, toyproject: Project, figureproject: Project
) -> None:
    project = figureproject if kind == "experiment" else toyproject
    with pytest.raises(UnknownNameError) as caught:
        getattr(project, kind)(name)
    assert str(caught.value).startswith(told)
    assert ("did you mean" in str(caught.value)) == ("did you mean" in told)


def test_probes_are_given_what_the_project_makes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = {"makesnothing": None, "makesprobes": "", "makesmake": PRINTING}
    made = {}
    for name, text in texts.items():
        folder = tmp_path / name if text is None else tmp_path / name / "probes"
        folder.mkdir(parents=True)
        (tmp_path / name / "__init__.py").touch()
        if text is not None:
            (folder / ("make.py" if text else "other.py")).write_text(text, encoding="utf-8")
        made[name] = project_in(tmp_path, name).make()
    assert (made["makesnothing"], made["makesprobes"]) == ((), ())
    assert [type(each).__name__ for each in made["makesmake"]] == ["Make"]
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "made\ncalled\n")


def test_the_warning_lists_every_probe_that_no_claim_uses(toyproject: Project) -> None:
    project = Project(toyproject.settings)
    probe = toyproject.probe("count")
    project.__dict__["probes"] = {**toyproject.probes, "zero": probe, "another": probe}
    assert project.check() == ("no claim uses the probe another, zero; write a claim, or remove it",)


@pytest.mark.parametrize(
    ("name", "claim", "told"),
    [
        ("other", "LAB-01", "plot 'other' names LAB-01, which is no figure of the catalogue"),
        ("other", "FIG-99", "plot 'other' names FIG-99, which is no figure of the catalogue"),
    ],
)
def test_a_plot_of_figures_names_known_figures(
    name: str, claim: str, told: str, figureproject: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ = figureproject.figure_plots
    monkeypatch.setattr(FIGURE_PLOTS, "entries", {name: FigurePlot((claim,), lambda values: values)})
    monkeypatch.setattr(FIGURE_PLOTS, "_modules", {name: "figureproject.plots.gains"})
    with pytest.raises(RegistrationError) as caught:
        _ = replace(figureproject).figure_plots
    assert str(caught.value) == told


def test_a_plot_of_figures_is_found_in_its_project_only(figureproject: Project, toyproject: Project) -> None:
    assert {name: each.claims for name, each in figureproject.figure_plots.items()} == {"gains": ("FIG-GAIN",)}
    assert toyproject.figure_plots == {}
