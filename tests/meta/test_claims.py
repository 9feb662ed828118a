"""A broken catalogue gives one error that names file, claim and field, and nothing is measured with it."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from rlverify.project.catalogue import load_catalogue
from rlverify.project.content import Project
from rlverify.records.claims import Figure, FixGrade, Verdict
from rlverify.records.errors import CatalogueError, UnknownNameError

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
expected_verdict = "CONFIRMED"
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
expected_verdict = "REFUTED"
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
    (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_a_claim_keeps_every_field(tmp_path: Path) -> None:
    (claim,) = load_catalogue(_catalogue(tmp_path, HEAD + CLAIM + FIX + 'expected_fix_grade = "NO EFFECT"\n'))
    assert (claim.id, claim.document, claim.seeds) == ("TOY-01", "toy", (0, 1))
    assert (claim.expected_verdict, claim.expected_fix_grade) == (Verdict.CONFIRMED, FixGrade.NO_EFFECT)
    assert (claim.root_cause, claim.killed_by, claim.fix_statement) == (
        "",
        ("tests/test_toy.py::test_restore",),
        "The total is kept.",
    )
    assert claim.variants == ("healthy", "faulty", "documented_fix")


def test_a_figure_keeps_every_field(tmp_path: Path) -> None:
    (claim,) = load_catalogue(_catalogue(tmp_path, HEAD + FIGURE + "tolerance = 0.5\n"))
    assert claim.figure == Figure("gain", "%", (15.0, math.inf), 24, 0.85, "8 seeds (1000..1007): mean 1, sd 6", 0.5)
    assert (claim.experiment, claim.probe, claim.seeds, claim.variants) == ("transfer", "", tuple(range(24)), ())


def test_claims_come_in_the_order_of_files_and_entries(tmp_path: Path) -> None:
    _catalogue(tmp_path, 'document = "b"\n' + CLAIM, "b.toml")
    _catalogue(tmp_path, 'document = "a"\n' + CLAIM.replace("-01", "-03") + CLAIM.replace("-01", "-02"), "a.toml")
    assert [claim.id for claim in load_catalogue(tmp_path)] == ["TOY-03", "TOY-02", "TOY-01"]


BROKEN = {
    "misspelt field": (CLAIM.replace("seeds", "seed"), "TOY-01", "seed", "did you mean 'seeds'"),
    "unknown field": (CLAIM + "statment = 1", "TOY-01", "statment", "did you mean 'statement'"),
    "wrong type": (CLAIM.replace("[0, 1]", '["0"]'), "TOY-01", "seeds.0", "valid integer, got '0'"),
    "bool as seed": (CLAIM.replace("[0, 1]", "[true]"), "TOY-01", "seeds.0", "valid integer"),
    "no seeds": (CLAIM.replace("[0, 1]", "[]"), "TOY-01", "seeds", "is missing"),
    "a seed twice": (CLAIM.replace("[0, 1]", "[1, 1]"), "TOY-01", "seeds", "each of them once"),
    "a symptom twice": (CLAIM + 'shows = ["a", "a"]', "TOY-01", "shows", "each of them once"),
    "a quiet fault that shows something": (
        CLAIM.replace("CONFIRMED", "NOT REPRODUCED").replace("killed_by", 'shows = ["a"]  #'), "TOY-01", "shows",
        "nothing is expected to notice"),
    "empty text": (CLAIM.replace("a statement", " "), "TOY-01", "statement", "at least 1"),
    "unsafe id": (CLAIM.replace("TOY-01", "../X"), "../X", "id", "pattern"),
    "unknown verdict": (CLAIM.replace("CONFIRMED", "MAYBE"), "TOY-01", "expected_verdict", "got 'MAYBE'"),
    "verdict of a failure": (CLAIM.replace("CONFIRMED", "ERROR"), "TOY-01", "expected_verdict", "with a fault"),
    "refuted fault": (CLAIM.replace("CONFIRMED", "REFUTED"), "TOY-01", "expected_verdict", "NOT REPRODUCED"),
    "defect without fault": (CLAIM.replace("fault =", "#"), "TOY-01", "fault", "a defect needs the fault"),
    "fix without fault": (
        CLAIM.replace("fault =", "#").replace("defect", "fix") + FIX, "TOY-01", "documented_fix", "name the fault"),
    "fix without grade": (CLAIM + FIX, "TOY-01", "expected_fix_grade", "stands with documented_fix"),
    "fix that says nothing": (CLAIM + SILENT_FIX, "TOY-01", "fix_statement", "stands with documented_fix"),
    "alarming null": (CLAIM.replace("defect", "null"), "TOY-01", "expected_verdict", "expect NOT REPRODUCED"),
    "a quiet fault that kills": (
        CLAIM.replace("CONFIRMED", "NOT REPRODUCED"), "TOY-01", "killed_by", "nothing is expected to notice"),
    "killed by nothing": (CLAIM.replace("killed_by", "#"), "TOY-01", "killed_by", "name the tests"),
    "killed by no test": (CLAIM.replace('"tests/test_toy.py::test_restore"', ""), "TOY-01", "killed_by", "name the"),
    "experiment of a defect": (CLAIM + 'experiment = "transfer"', "TOY-01", "experiment", "leave this out"),
    "a figure that is no figure": (
        CLAIM.replace('"defect"', '"figure"'), "TOY-01", "experiment", "is missing; a figure is measured by"),
    "figure with a probe": (FIGURE.replace("modules", 'probe = "count"\nmodules'), "FIG-01", "probe", "leave this out"),
    "figure with seeds": (FIGURE.replace("modules", "seeds = [0]\nmodules"), "FIG-01", "seeds", "leave this out"),
    "figure with a fault": (FIGURE.replace("modules", 'fault = "f"\nmodules'), "FIG-01", "fault", "leave this out"),
    "figure of nothing": (FIGURE.partition("[claim.figure]")[0], "FIG-01", "figure", "is missing"),
    "undecided on purpose": (FIGURE.replace("REFUTED", "UNDECIDED"), "FIG-01", "expected_verdict", "CONFIRMED or"),
    "ends in the wrong order": (FIGURE.replace("[15.0, inf]", "[25, 15]"), "FIG-01", "figure.claimed", "lower end"),
    "no interval": (FIGURE.replace("[15.0, inf]", "[15, 15]"), "FIG-01", "figure.claimed", "holds no interval"),
    "no number": (FIGURE.replace("[15.0, inf]", "[nan, 15]"), "FIG-01", "figure.claimed", "holds no interval"),
    "nothing is claimed": (FIGURE.replace("15.0", "-inf"), "FIG-01", "figure.claimed", "nothing could refute it"),
    "too few runs": (FIGURE.replace("runs = 24", "runs = 4"), "FIG-01", "figure.runs", "greater than or equal to 5"),
    "too little power": (FIGURE.replace("0.85", "0.7"), "FIG-01", "figure.power", "greater than or equal to 0.8"),
    "figure without pilot": (FIGURE.replace("pilot", "#"), "FIG-01", "figure.pilot", "is missing"),
    "an interval that no cited line gives": (
        FIGURE.replace("[claim.figure]", 'cites = ["003:160"]\n[claim.figure]').replace("15.0", "16.0"),
        "FIG-01", "figure.document_gives", "no cited line has 16"),
    "an interval whose ends stand in two lines": (
        FIGURE.replace("[claim.figure]", 'cites = ["003:16-17"]\n[claim.figure]').replace("inf", "200.0"),
        "FIG-01", "figure.document_gives", "no cited line has 15 and 200"),
    "nobody's interval": (FIGURE + 'document_gives = "numbers"', "FIG-01", "figure.document_gives", "'interval'"),
    "endless tolerance": (FIGURE + "tolerance = inf", "FIG-01", "figure.tolerance", "finite"),
    "no id": (CLAIM.replace("id =", "#"), "entry 1", "id", "is missing"),
    "stray field": ('title = "x"\n' + CLAIM, "", "title", "outside every"),
    "no claims": ("", "", "claim", "one or more"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_entry_is_named(case: str, tmp_path: Path) -> None:
    text, claim, field, reason = BROKEN[case]
    with pytest.raises(CatalogueError, match=r"catalogue toy\.toml") as caught:
        load_catalogue(_catalogue(tmp_path, HEAD + text))
    assert (caught.value.file, caught.value.claim, caught.value.field) == ("toy.toml", claim, field)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("claimed", "gives"), [("[15.0, 25.0]", "interval"), ("[10.0, inf]", "statement"), ("[0.0, inf]", "nothing")]
)
def test_an_interval_is_of_the_cited_lines_or_called_our_own(claimed: str, gives: str, tmp_path: Path) -> None:
    text = FIGURE.replace("[claim.figure]", f'cites = ["003:160"]\n[claim.figure]\ndocument_gives = "{gives}"')
    (claim,) = load_catalogue(_catalogue(tmp_path, HEAD + text.replace("[15.0, inf]", claimed)))
    assert claim.figure is not None
    assert claim.figure.document_gives == gives


def test_a_file_is_named_as_its_document(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match=r"other\.toml, document: must be 'other'"):
        load_catalogue(_catalogue(tmp_path, HEAD + CLAIM, "other.toml"))


def test_an_id_is_given_once_over_all_files(tmp_path: Path) -> None:
    _catalogue(tmp_path, HEAD + CLAIM)
    with pytest.raises(CatalogueError, match=r"toy\.toml, TOY-01, id: already used in again\.toml"):
        load_catalogue(_catalogue(tmp_path, 'document = "again"\n' + CLAIM, "again.toml"))


def test_what_is_not_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match=r"toy\.toml: cannot be read"):
        load_catalogue(_catalogue(tmp_path, "[["))


def test_a_missing_or_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="cannot be read: No such file"):
        load_catalogue(tmp_path / "nowhere")
    with pytest.raises(CatalogueError, match=r"holds no \.toml file"):
        load_catalogue(tmp_path)


def test_a_sound_laboratory_passes_its_check(toyproject: Project) -> None:
    toyproject.check()
    assert len(toyproject.claims) == 6


@pytest.mark.parametrize(
    ("field", "old", "new"),
    [
        ("probe", "restore", "restart"),
        ("fault", "restored-forgets", "restored-forgot"),
        ("modules", "toyproject.target", "toyproject.nothing"),
    ],
)
def test_a_name_that_does_not_exist_is_found(field: str, old: str, new: str, tmp_path: Path) -> None:
    project = Project("toyproject", _catalogue(tmp_path, HEAD + CLAIM.replace(f'"{old}"', f'"{new}"')))
    with pytest.raises(CatalogueError, match=new) as caught:
        project.check()
    assert (caught.value.claim, caught.value.field) == ("TOY-01", field)


def test_the_module_in_which_a_fault_is_planted_is_named(tmp_path: Path) -> None:
    text = HEAD + CLAIM.replace('"toyproject.target"', '"toyproject.probes.make"')
    with pytest.raises(CatalogueError, match=r"toyproject\.target is missing, where restored-forgets is planted"):
        Project("toyproject", _catalogue(tmp_path, text)).check()


def test_what_a_module_imports_is_in_its_digest(
    toyproject: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {
        "helper.py": "X = 1",
        "target.py": "from digestedlab.helper import X",
        "other.py": "Y = 1",
    }.items():
        (tmp_path / "digestedlab").mkdir(exist_ok=True)
        (tmp_path / "digestedlab" / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    claim = replace(toyproject.claim("TOY-01"), modules=("digestedlab.target",))
    stamps: list[str] = []

    def digest_with(name: str, text: str) -> str:
        path = tmp_path / "digestedlab" / name
        path.write_text(text, encoding="utf-8")
        os.utime(path, (len(stamps), len(stamps)))
        stamps.append(name)
        project = Project("digestedlab")
        for member in ("probes", "faults"):
            project.__dict__[member] = getattr(toyproject, member)
        ((module, found),) = project.digests(claim)[1]
        assert module == "digestedlab.target"
        return found

    before = digest_with("other.py", "Y = 2")
    assert digest_with("other.py", "Y = 3") == before
    assert digest_with("helper.py", "X = 2") != before


def test_a_fault_or_probe_that_no_claim_uses_is_found(tmp_path: Path, toyproject: Project) -> None:
    text = (toyproject.folder / "catalogue" / "toy.toml").read_text(encoding="utf-8")
    project = Project("toyproject", _catalogue(tmp_path, text))
    with pytest.raises(CatalogueError, match="fault: no claim names null-add-twice"):
        project.check()
    nulls = toyproject.folder / "catalogue" / "nulls.toml"
    _catalogue(tmp_path, nulls.read_text(encoding="utf-8"), "nulls.toml")
    _catalogue(tmp_path, text.replace('"mean-is-largest"', '"count"'))
    with pytest.raises(CatalogueError, match="probe: no claim names mean-is-largest"):
        Project("toyproject", tmp_path).check()


def test_a_fault_that_is_not_to_be_claimed_needs_no_claim(tmp_path: Path, toyproject: Project) -> None:
    text = (toyproject.folder / "catalogue" / "toy.toml").read_text(encoding="utf-8")
    project = Project("toyproject", _catalogue(tmp_path, text))
    unclaimed = {
        name: replace(fault, claimed=fault.claimed and not name.startswith("null-"))
        for name, fault in toyproject.faults.items()
    }
    project.__dict__["faults"] = unclaimed
    project.check()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"same-arms"', '"same-harms"', r"FIG-BETTER, experiment: there is no 'same-harms'; did you mean 'same-arms'"),
        ('"same-arms"', '"transfer"', "experiment: no claim names same-arms"),
    ],
)
def test_experiments_and_claims_name_each_other(
    old: str, new: str, words: str, figureproject: Project, tmp_path: Path
) -> None:
    figureproject.check()
    for path in (figureproject.folder / "catalogue").iterdir():
        _catalogue(tmp_path, path.read_text(encoding="utf-8").replace(old, new), path.name)
    with pytest.raises(CatalogueError, match=words):
        Project("figureproject", tmp_path).check()


def test_every_part_of_a_figure_is_in_its_digest_and_none_of_the_plan(figureproject: Project, tmp_path: Path) -> None:
    source = (figureproject.folder / "catalogue" / "figures.toml").read_text(encoding="utf-8")
    experiment, _ = figureproject.digests(figureproject.claim("FIG-GAIN"))
    runs = figureproject.run_digest("transfer")

    def changed(old: str, new: str) -> tuple[bool, bool]:
        assert old in source
        other = Project("figureproject", _catalogue(tmp_path, source.replace(old, new), "figures.toml"))
        return other.digests(other.claim("FIG-GAIN"))[0] != experiment, other.run_digest("transfer") != runs

    assert changed('"gain"', '"drift"') == (True, False)
    assert changed("runs = 8", "runs = 9") == (True, False)
    assert changed("[15.0, 25.0]", "[15.0, 26.0]") == (True, False)
    assert changed("power = 0.8", "power = 0.9") == (False, False)
    assert changed("figureproject.target", "figureproject.probes.make") == (False, True)


def test_an_unknown_package_is_named() -> None:
    with pytest.raises(UnknownNameError, match="'nolab'"):
        _ = Project("nolab").folder


def test_every_part_of_an_experiment_is_in_its_digest(toyproject: Project, tmp_path: Path) -> None:
    source = (toyproject.folder / "catalogue" / "toy.toml").read_text(encoding="utf-8")
    claim = toyproject.claim("TOY-01")
    experiment, modules = toyproject.digests(claim)
    assert [name for name, _ in modules] == ["toyproject.target"]
    changes = {"seeds = [0, 1]": "seeds = [0, 2]", '"restore"': '"count"', '"restored-forgets"': '"add-twice"'}
    for number, (old, new) in enumerate(changes.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        other = Project("toyproject", _catalogue(folder, source.replace(old, new, 1)))
        assert other.digests(other.claim("TOY-01"))[0] != experiment, old
    (tmp_path / "same").mkdir()
    same = Project("toyproject", _catalogue(tmp_path / "same", source.replace("the state is not read", "other words")))
    assert same.digests(same.claim("TOY-01"))[0] == experiment
