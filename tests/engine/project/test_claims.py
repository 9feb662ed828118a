"""A broken catalogue gives one error that names file, claim and field, and nothing is measured with it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from rlverify.evidence.summarising import criterion_digest
from rlverify.project.catalogue import load
from rlverify.project.citations import Documents
from rlverify.project.content import Project
from rlverify.records.claims import Claim, Figure, FixGrade, Verdict
from rlverify.records.errors import CatalogueError, SettingsError
from tests.engine.project_folders import project_in

DOCUMENTS = Documents.read(Path(__file__).parents[3] / "verification" / "documents")
HEAD = 'document = "toy"\n'
CLAIM = """
[[claim]]
id = "TOY-01"
title = "a title"
kind = "defect"
area = "state"
section = "Bug 1"
statement = "a statement"
if_true = "a symptom"
documented_status = "fixed"
expected = "CONFIRMED"
probe = "restore"
modules = ["toyproject.target"]
seeds = [0, 1]
fault = "restored-forgets"
killed_by = ["tests/test_toy.py::test_restore"]
"""
FIGURE = """
[[claim]]
id = "FIG-01"
title = "a title"
kind = "figure"
area = "state"
section = "Figure 1"
statement = "a statement"
if_true = "a mean"
documented_status = "asserted"
expected = "REFUTED"
experiment = "transfer"
modules = ["toyproject.target"]
[claim.figure]
quantity = "gain"
unit = "%"
claimed = [15.0, inf]
runs = 24
power = 0.85
pilot = "8 seeds (1000..1007): mean 1, sd 6"
"""
FIX = 'documented_fix = "restored-keeps-total"\nfix_statement = "The total is kept."\n'
SILENT_FIX = 'documented_fix = "restored-keeps-total"\nexpected_fix_grade = "CURED"\n'


def _catalogue(folder: Path, text: str, name: str = "toy.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder


def _claims(folder: Path) -> tuple[Claim, ...]:
    return load(folder, DOCUMENTS)


def _toy_with(folder: Path, text: str, name: str = "toy.toml", *, content: str = "toyproject") -> Project:
    """A tiny project in a folder, with another catalogue."""
    return project_in(folder, content, catalogue=_catalogue(folder / "catalogue", text, name))


def test_a_claim_keeps_every_field(tmp_path: Path) -> None:
    (claim,) = _claims(_catalogue(tmp_path, HEAD + CLAIM + FIX + 'expected_fix_grade = "NO EFFECT"\n'))
    assert (claim.id, claim.document, claim.seeds) == ("TOY-01", "toy", (0, 1))
    assert (claim.expected_verdict, claim.expected_fix_grade) == (Verdict.CONFIRMED, FixGrade.NO_EFFECT)
    assert (claim.root_cause, claim.killed_by, claim.fix_statement) == (
        "",
        ("tests/test_toy.py::test_restore",),
        "The total is kept.",
    )
    assert claim.variants == ("healthy", "faulty", "documented_fix")


def test_a_figure_keeps_every_field(tmp_path: Path) -> None:
    (claim,) = _claims(_catalogue(tmp_path, HEAD + FIGURE + "tolerance = 0.5\n"))
    assert claim.figure == Figure("gain", "%", (15.0, math.inf), 24, 0.85, "8 seeds (1000..1007): mean 1, sd 6", 0.5)
    assert (claim.experiment, claim.probe, claim.seeds, claim.variants) == ("transfer", "", tuple(range(24)), ())


MINIMAL = """
[[claim]]
id = "TOY-01"
title = "a title"
statement = "a statement"
probe = "restore"
fault = "restored-forgets"
expected = "CONFIRMED"
"""


def test_a_claim_needs_only_what_cannot_be_guessed(tmp_path: Path) -> None:
    (claim,) = _claims(_catalogue(tmp_path, MINIMAL))
    assert (claim.kind, claim.area, claim.document, claim.seeds) == ("defect", "toy", "toy", (0,))
    assert (claim.modules, claim.killed_by, claim.section) == ((), (), "")


@pytest.mark.parametrize("field", ["id", "title", "statement", "probe", "fault", "expected"])
def test_what_cannot_be_guessed_is_asked_for(field: str, tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="is missing") as caught:
        _claims(_catalogue(tmp_path, MINIMAL.replace(f"{field} =", "#")))
    assert caught.value.field == field


def test_claims_come_in_the_order_of_files_and_entries(tmp_path: Path) -> None:
    _catalogue(tmp_path, 'document = "b"\n' + CLAIM, "b.toml")
    _catalogue(tmp_path, 'document = "a"\n' + CLAIM.replace("-01", "-03") + CLAIM.replace("-01", "-02"), "a.toml")
    assert [claim.id for claim in _claims(tmp_path)] == ["TOY-03", "TOY-02", "TOY-01"]


BROKEN = {
    "bool as seed": (CLAIM.replace("[0, 1]", "[true]"), "TOY-01", "seeds.0", "valid integer"),
    "no seeds": (CLAIM.replace("[0, 1]", "[]"), "TOY-01", "seeds", "at least 1 item"),
    "one seed and no list": (CLAIM.replace("[0, 1]", "3"), "TOY-01", "seeds", "valid tuple, got 3"),
    "empty text": (CLAIM.replace("a statement", " "), "TOY-01", "statement", "at least 1"),
    "unsafe id": (CLAIM.replace("TOY-01", "../X"), "../X", "id",
        "got '../X'"),
    "unknown verdict": (CLAIM.replace("CONFIRMED", "MAYBE"), "TOY-01", "expected", "got 'MAYBE'"),
    "verdict of a failure": (CLAIM.replace("CONFIRMED", "ERROR"), "TOY-01", "expected", "with a fault"),
    "refuted fault": (CLAIM.replace("CONFIRMED", "REFUTED"), "TOY-01", "expected", "NOT REPRODUCED"),
    "defect without fault": (CLAIM.replace("fault =", "#"), "TOY-01", "fault", "a defect needs the fault"),
    "fix without fault": (
        CLAIM.replace("fault =", "#").replace("defect", "fix") + FIX, "TOY-01", "documented_fix", "name the fault"),
    "fix without grade": (CLAIM + FIX, "TOY-01", "expected_fix_grade", "goes with documented_fix"),
    "fix that says nothing": (CLAIM + SILENT_FIX, "TOY-01", "fix_statement", "goes with documented_fix"),
    "alarming null": (CLAIM.replace("defect", "null"), "TOY-01", "expected", "expect NOT REPRODUCED"),
    "experiment of a defect": (CLAIM + 'experiment = "transfer"', "TOY-01", "experiment", "leave this out"),
    "a figure that is no figure": (
        CLAIM.replace('"defect"', '"figure"'), "TOY-01", "experiment", "is missing; a figure is measured by"),
    "figure with a probe": (FIGURE.replace("modules", 'probe = "count"\nmodules'), "FIG-01", "probe", "leave this out"),
    "figure with seeds": (FIGURE.replace("modules", "seeds = [0]\nmodules"), "FIG-01", "seeds", "leave this out"),
    "figure with a fault": (FIGURE.replace("modules", 'fault = "f"\nmodules'), "FIG-01", "fault", "leave this out"),
    "figure of nothing": (FIGURE.partition("[claim.figure]")[0], "FIG-01", "figure", "is missing"),
    "undecided on purpose": (FIGURE.replace("REFUTED", "UNDECIDED"), "FIG-01", "expected", "CONFIRMED or"),
    "ends in the wrong order": (FIGURE.replace("[15.0, inf]", "[25, 15]"), "FIG-01", "figure.claimed", "lower end"),
    "no interval": (FIGURE.replace("[15.0, inf]", "[15, 15]"), "FIG-01", "figure.claimed", "holds no interval"),
    "no number": (FIGURE.replace("[15.0, inf]", "[nan, 15]"), "FIG-01", "figure.claimed", "holds no interval"),
    "nothing is claimed": (FIGURE.replace("15.0", "-inf"), "FIG-01", "figure.claimed", "nothing could refute it"),
    "too few runs": (FIGURE.replace("runs = 24", "runs = 4"), "FIG-01", "figure.runs", "greater than or equal to 5"),
    "too little power": (FIGURE.replace("0.85", "0.7"), "FIG-01", "figure.power", "greater than or equal to 0.8"),
    "figure without pilot": (FIGURE.replace("pilot", "#"), "FIG-01", "figure.pilot", "is missing"),
    "nobody's interval": (FIGURE + 'document_gives = "numbers"', "FIG-01", "figure.document_gives", "'interval'"),
    "unknown basis": (CLAIM + 'basis = "guess"', "TOY-01", "basis", "'implied'"),
    "unknown scale": (CLAIM + 'scale = "large"', "TOY-01", "scale", "'training'"),
    "severity in capitals": (CLAIM + 'assessed = "HIGH"', "TOY-01", "assessed", "'high'"),
    "endless tolerance": (FIGURE + "tolerance = inf", "FIG-01", "figure.tolerance", "finite"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_entry_is_named(case: str, tmp_path: Path) -> None:
    text, claim, field, reason = BROKEN[case]
    with pytest.raises(CatalogueError, match=r"catalogue toy\.toml") as caught:
        _claims(_catalogue(tmp_path, HEAD + text))
    assert (caught.value.file, caught.value.claim, caught.value.field) == ("toy.toml", claim, field)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_documents_of_the_catalogue_are_the_ones_that_are_cited(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="there is no document 003"):
        load(_catalogue(tmp_path, CLAIM + 'cites = ["003:1"]'), Documents())


def test_an_id_is_given_once_over_all_files(tmp_path: Path) -> None:
    _catalogue(tmp_path, HEAD + CLAIM)
    with pytest.raises(CatalogueError, match=r"toy\.toml, TOY-01, id: already used in again\.toml"):
        _claims(_catalogue(tmp_path, 'document = "again"\n' + CLAIM, "again.toml"))


def test_a_sound_project_passes_its_check_without_a_warning(toyproject: Project) -> None:
    assert toyproject.check() == ()
    assert len(toyproject.claims) == 6


@pytest.mark.parametrize(
    ("field", "old", "new"),
    [
        ("probe", "restore", "restart"),
        ("fault", "restored-forgets", "restored-forgot"),
        ("documented_fix", "restored-keeps-total", "restored-keeps-totals"),
        ("modules", "toyproject.target", "toyproject.nothing"),
    ],
)
def test_a_name_that_does_not_exist_is_found(field: str, old: str, new: str, tmp_path: Path) -> None:
    fixed = f'{HEAD}{CLAIM}{FIX}expected_fix_grade = "PARTIAL"'
    project = _toy_with(tmp_path, fixed.replace(f'"{old}"', f'"{new}"'))
    with pytest.raises(CatalogueError, match=new) as caught:
        project.check()
    assert (caught.value.file, caught.value.claim, caught.value.field) == ("toy.toml", "TOY-01", field)


def _toy_file(toyproject: Project, name: str) -> str:
    return (toyproject.folder / "catalogue" / name).read_text(encoding="utf-8")


def test_faults_and_probes_that_no_claim_uses_are_warnings(tmp_path: Path, toyproject: Project) -> None:
    text = _toy_file(toyproject, "toy.toml").replace('"mean-is-largest"', '"count"')
    assert _toy_with(tmp_path, text).check() == (
        "no claim uses the fault null-add-twice; write a claim, or remove it",
        "no claim uses the probe mean-is-largest; write a claim, or remove it",
    )


def test_a_fault_that_is_not_to_be_claimed_needs_no_claim(tmp_path: Path, toyproject: Project) -> None:
    project = _toy_with(tmp_path, _toy_file(toyproject, "toy.toml"))
    unclaimed = {
        name: replace(fault, claimed=fault.claimed and not name.startswith("null-"))
        for name, fault in toyproject.faults.items()
    }
    assert len(project.check()) == 1
    project.__dict__["faults"] = unclaimed
    assert project.check() == ()


def test_the_experiment_that_a_claim_names_exists(figureproject: Project, tmp_path: Path) -> None:
    assert figureproject.check() == ()
    text = _toy_file(figureproject, "figures.toml").replace('"same-arms"', '"same-harms"')
    with pytest.raises(
        CatalogueError, match=r"FIG-BETTER, experiment: there is no 'same-harms'; did you mean 'same-arms'"
    ):
        _toy_with(tmp_path, text, "figures.toml", content="figureproject").check()


def test_an_experiment_that_no_claim_uses_is_a_warning(figureproject: Project, tmp_path: Path) -> None:
    text = _toy_file(figureproject, "figures.toml").replace('"same-arms"', '"transfer"')
    _catalogue(tmp_path / "catalogue", _toy_file(figureproject, "values.toml"), "values.toml")
    assert _toy_with(tmp_path, text, "figures.toml", content="figureproject").check() == (
        "no claim uses the experiment same-arms; write a claim, or remove it",
    )


def test_every_part_of_a_figure_but_its_plan_is_in_its_criterion(figureproject: Project, tmp_path: Path) -> None:
    source = (figureproject.folder / "catalogue" / "figures.toml").read_text(encoding="utf-8")
    digest = criterion_digest(figureproject.claim("FIG-GAIN"))

    def is_changed(old: str, new: str) -> bool:
        assert old in source
        other = _toy_with(tmp_path, source.replace(old, new), "figures.toml", content="figureproject")
        return criterion_digest(other.claim("FIG-GAIN")) != digest

    assert is_changed('"gain"', '"drift"')
    assert is_changed('"transfer"', '"same-arms"')
    assert is_changed("runs = 8", "runs = 9")
    assert is_changed("[15.0, 25.0]", "[15.0, 26.0]")
    assert not is_changed("power = 0.8", "power = 0.9")
    assert not is_changed("figureproject.target", "figureproject.probes.make")


def test_an_unknown_package_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"pyproject\.toml, content: no package 'noproject' can be found"):
        _ = project_in(tmp_path, "noproject").folder
