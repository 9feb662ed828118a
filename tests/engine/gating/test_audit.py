"""What an audit measures, keeps, compares and replaces."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rlverify.evidence.files import sealed
from tests.engine.checkouts import answer, gate, replace

FULL = ("--level", "full")
PROBE, EXPERIMENT = "figureproject/probes/values.py", "figureproject/experiments/values.py"
REMEDY = "run `rlverify audit --level full --update`"


@pytest.fixture
def checkout(figures: Path, tmp_path: Path) -> Path:
    return shutil.copytree(figures, tmp_path / "checkout")


def reports(checkout: Path) -> dict[str, bytes]:
    return {
        path.relative_to(checkout).as_posix(): path.read_bytes()
        for path in (checkout / "reports").rglob("*")
        if path.is_file()
    }


def broken_probe(checkout: Path) -> None:
    path = checkout / PROBE
    path.write_text(path.read_text().replace("    return [", "    raise ValueError('boom')\n    return [", 1))


@pytest.mark.parametrize("level", ["quick", "full"])
def test_an_update_of_the_same_code_changes_nothing(level: str, checkout: Path) -> None:
    before = reports(checkout)
    assert answer(checkout, "audit", "--update", "--level", level).returncode == 0
    assert reports(checkout) == before


def test_the_quick_level_keeps_figures_whatever_their_runs_give(checkout: Path) -> None:
    before = reports(checkout)
    replace(checkout / EXPERIMENT, "make.middle(19, 21) + noise", "make.middle(19, 21) + noise + 3")
    assert answer(checkout, "audit", "--update").returncode == 0
    assert reports(checkout) == before
    assert answer(checkout, "audit", "--update", *FULL).returncode == 0
    assert "reports/evidence/FIG-GAIN.json" in {
        name for name, text in reports(checkout).items() if text != before[name]
    }


def test_an_update_keeps_the_evidence_of_claims_that_crash_and_tells_them(checkout: Path) -> None:
    before = reports(checkout)
    broken_probe(checkout)
    done = answer(checkout, "audit", "--update", *FULL)
    assert (done.returncode, "LAB-01: ERROR, healthy, seed 0: ValueError: boom" in done.stdout) == (2, True), (
        done.stdout
    )
    assert {name for name, text in reports(checkout).items() if text != before[name]} == set()  # not the full audit


def test_an_update_removes_evidence_of_claims_that_are_gone_and_no_other_file(checkout: Path) -> None:
    folder = checkout / "reports/evidence"
    (folder / "GONE-01.json").write_text('"claim_id" "schema_version" "é"', encoding="utf-8")
    (folder / "mine.json").write_text("{}")
    (folder / "bytes.json").write_bytes(b"\xff")
    (checkout / "reports/plots/gone.svg").write_text("<svg/>")
    assert answer(checkout, "audit", "--update").returncode == 0
    left = {path.stem for path in folder.iterdir()}
    assert left == {"FIG-GAIN", "FIG-SPIKE", "FIG-DRIFT", "FIG-BETTER", "LAB-01", "mine", "bytes"}
    assert {path.name for path in (checkout / "reports/plots").iterdir()} == {"gains.svg"}


def test_evidence_of_a_claim_that_is_in_no_catalogue_is_a_problem(checkout: Path) -> None:
    import json

    content = json.loads((checkout / "reports/evidence/LAB-01.json").read_text())
    del content["digest"]
    (checkout / "reports/evidence/GONE-01.json").write_text(sealed({**content, "claim_id": "GONE-01"}))
    code, said = gate(checkout)
    assert (code, "GONE-01: has evidence but is in no catalogue; run `rlverify audit --update`" in said) == (1, True)


def test_a_figure_without_evidence_asks_for_the_full_level(checkout: Path) -> None:
    (checkout / "reports/evidence/FIG-GAIN.json").unlink()
    code, said = gate(checkout)
    assert (code, f"FIG-GAIN: has no evidence; {REMEDY}" in said) == (1, True), said


def test_with_fail_fast_no_figure_is_repeated_after_a_claim_that_fell(checkout: Path) -> None:
    broken_probe(checkout)
    code, said = gate(checkout, "--fail-fast")
    assert (code, "a run was repeated" in said) == (1, False), said


def test_code_that_changes_while_it_is_measured_is_told_and_nothing_replaced(checkout: Path) -> None:
    before = reports(checkout)
    edit = "target = __import__('pathlib').Path(__file__).parents[1] / 'target.py'\n"
    edit += "    target.write_text(target.read_text() + 'ADDED = 1\\n')\n    return ["
    path = checkout / PROBE
    path.write_text(path.read_text().replace("return [", edit, 1))
    for command in (("gate",), ("audit", "--update")):
        done = answer(checkout, *command)
        assert (done.returncode, "figureproject.target was changed while it was measured" in done.stderr) == (2, True)
    assert reports(checkout) == before
