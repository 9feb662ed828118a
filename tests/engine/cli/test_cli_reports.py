"""What `audit`, `gate` and `report` answer where committed evidence and reports are out of date, edited or missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rlverify.evidence.files import sealed
from tests.engine.messages import is_one_line
from tests.engine.project_folders import toy_with_catalogue

PAGES = {"claims.md", "index.md", "all-claims.md"}
MATRIX = {"matrix.json", "kill-matrix.md"}
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def audited(auditedproject: Path) -> Path:
    """A folder of reports, freshly updated; treat as read-only."""
    return auditedproject / "reports"


@pytest.fixture
def reports(audited: Path, tmp_path: Path) -> Path:
    """A copy of the updated reports, to be changed."""
    for path in audited.rglob("*.*"):
        copy = tmp_path / "reports" / path.relative_to(audited)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    return tmp_path / "reports"


def test_audit_agrees_with_what_it_wrote(toy: Command, reports: Path) -> None:
    code, output, errors = toy("audit", "--reports", reports)
    assert (code, errors.replace("a probe may print\n", "")) == (0, "")
    assert output.splitlines()[-1] == "6 of 6 claims as expected; nothing to report"
    working = {path.name for path in (reports.parent / ".rlverify").iterdir()}
    assert working == {".gitignore", "lock"}
    assert {path.name for path in reports.iterdir()} == {*PAGES, *MATRIX, "evidence"}


def _edit_evidence(reports: Path, claim: str, old: str, new: str) -> None:
    path = reports / "evidence" / f"{claim}.json"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def _forge_evidence(reports: Path, claim: str, old: str, new: str, to: str | None = None) -> None:
    """Edit evidence, and give it a digest that fits.

    :param to: the claim to write it for, where that is another one
    """
    text = (reports / "evidence" / f"{claim}.json").read_text(encoding="utf-8")
    assert old in text
    content = json.loads(text.replace(old, new))
    del content["digest"]
    (reports / "evidence" / f"{to or claim}.json").write_text(sealed(content), encoding="utf-8")


def test_the_gate_falls_when_evidence_or_report_are_out_of_date(toy: Command, reports: Path) -> None:
    def gate() -> tuple[int, list[str]]:
        code, output, _ = toy("gate", "--jobs", "2", "--reports", reports)
        return code, output.splitlines()[:-1]

    (reports / "claims.md").write_text("edited", encoding="utf-8")
    assert gate() == (
        1,
        ["claims.md: is not what the committed evidence gives; run `rlverify report`"],
    )
    _forge_evidence(reports, "TOY-02", '"before": "-5"', '"before": "-6"')
    (reports / "evidence" / "TOY-03.json").unlink()
    code, lines = gate()
    assert code == 1
    assert lines.pop(3).startswith(
        "  differs from the committed evidence: healthy: 'clip(-5, 0, 3)' observed 0 (expected -5, holds 1/1), "
        "committed 0 (expected -6, holds 1/1)"
    )
    assert lines == [
        "1 claim fell: the verdicts are as expected, but values differ from the committed evidence",
        "",
        "TOY-02  clip has no lower end  CONFIRMED, with other values than committed",
        "  reproduce: rlverify reproduce TOY-02",
        "",
        "if that is right, run `rlverify audit --update`",
        "TOY-03: has no committed evidence; run `rlverify audit --update`",
    ]


def test_broken_evidence_isis_one_line(toy: Command, reports: Path) -> None:
    edits = (_edit_evidence, _forge_evidence)
    original = (reports / "evidence" / "TOY-02.json").read_bytes()
    for edit in edits:
        (reports / "evidence" / "TOY-02.json").write_bytes(original)
        edit(reports, "TOY-02", '"verdict": "CONFIRMED"', '"verdict": "REFUTED"')
        for command in ("gate", "report"):
            code, _, errors = toy(command, "--reports", reports)
            assert code == 2
            assert is_one_line(
                errors.replace("a probe may print\n", ""), "TOY-02.json: was edited after it was measured"
            )


def test_a_gate_that_ends_with_an_error_writes_no_files(toy: Command, reports: Path) -> None:
    _edit_evidence(reports, "TOY-02", "{", "")
    code, output, _ = toy("gate", "TOY-02", "--junit", reports / "junit.xml", "--json", "-", "--reports", reports)
    assert (code, output, (reports / "junit.xml").exists()) == (2, "", False)


def test_update_mends_broken_and_orphaned_evidence(toy: Command, reports: Path, audited: Path) -> None:
    (reports / "evidence" / "GONE-1.json").write_bytes((reports / "evidence" / "TOY-02.json").read_bytes())
    _edit_evidence(reports, "TOY-02", "{", "")
    assert toy("audit", "--update", "--reports", reports)[0] == 0
    names = {path.relative_to(reports) for path in reports.rglob("*.*")}
    assert names == {path.relative_to(audited) for path in audited.rglob("*.*")}
    assert all((reports / name).read_bytes() == (audited / name).read_bytes() for name in names)


@pytest.mark.parametrize("options", [[], ["--check"]])
def test_committed_evidence_that_is_not_as_expected_fails_the_report(
    options: list[str], toy: Command, reports: Path, tmp_path: Path
) -> None:
    project = toy_with_catalogue(tmp_path, ('"PARTIAL"', '"CURED"'))
    code, _, errors = toy("report", *options, "--reports", reports, project=project)
    assert code == 1
    fell, matrix = errors.splitlines()
    assert fell == "rlverify: TOY-01: fix PARTIAL, expected CURED"
    assert matrix.startswith("rlverify: matrix.json: measured of other faults or tests: restored-keeps-total (fix)")


def test_a_fallen_claim_fails_the_gate_even_when_updated(toy: Command, tmp_path: Path) -> None:
    project = toy_with_catalogue(tmp_path, ('"PARTIAL"', '"CURED"'), ('"REFUTED"', '"CONFIRMED"'))
    code, output, _ = toy("audit", "--update", "--json", project=project)
    content = json.loads(output)
    assert code == content["exit_code"] == 1
    assert [(each["subject"], each["sentence"]) for each in content["problems"]] == [
        ("TOY-01", "fix PARTIAL, expected CURED"),
        ("TOY-04", "REFUTED, expected CONFIRMED"),
    ]


def test_a_report_has_a_hole_where_evidence_is_missing(toy: Command, reports: Path) -> None:
    (reports / "evidence" / "TOY-02.json").unlink()
    code, _, errors = toy("report", "--reports", reports)
    assert code == 1
    assert is_one_line(errors, "TOY-02: has no evidence; run `rlverify audit --update`")
    text = (reports / "index.md").read_text(encoding="utf-8")
    assert "**1 without evidence**: TOY-02" in text
    assert "| toy | - | - | NO EVIDENCE | - |" in (reports / "all-claims.md").read_text(encoding="utf-8")
    assert "**NO EVIDENCE** (expected CONFIRMED)." in (reports / "claims.md").read_text(encoding="utf-8")


def test_report_renders_the_committed_evidence(toy: Command, reports: Path, audited: Path) -> None:
    (reports / "claims.md").unlink()
    assert toy("report", "--check", "--reports", reports)[0] == 1
    assert not (reports / "claims.md").exists()
    assert toy("report", "--reports", reports)[0] == 0
    assert (reports / "claims.md").read_bytes() == (audited / "claims.md").read_bytes()
    assert toy("report", "--check", "--reports", reports) == (0, "", "")


def test_quoted_code_is_compared_by_report_check_and_not_by_the_audit(toy: Command, reports: Path) -> None:
    page, text = reports / "claims.md", (reports / "claims.md").read_text(encoding="utf-8")
    assert "\n+++ " in text
    page.write_text(text.replace("\n+++ ", "\n+++ moved/", 1), encoding="utf-8")
    assert is_one_line(toy("report", "--check", "--reports", reports)[2], "claims.md: is not what the committed")
    assert toy("audit", "--reports", reports)[0] == 0
    page.write_text(f"{text}\n```diff\nadded\n```\n", encoding="utf-8")
    assert toy("audit", "--reports", reports)[0] == 1


@pytest.mark.parametrize("name", sorted(PAGES))
def test_every_page_is_compared(name: str, toy: Command, reports: Path) -> None:
    (reports / name).write_text("edited", encoding="utf-8")
    code, _, errors = toy("report", "--check", "--reports", reports)
    assert code == 1
    assert is_one_line(errors, f"{name}: is not what the committed evidence gives")


def test_a_report_of_evidence_that_does_not_fit_says_so(toy: Command, reports: Path, tmp_path: Path) -> None:
    project = toy_with_catalogue(
        tmp_path, ("seeds = [7]", "seeds = [8]"), ('[0]\nfault = "null-', '[1]\nfault = "null-')
    )
    advice = "run `rlverify audit --update`"
    lines = [
        f"rlverify: NULL-TOY: STALE, measured with seeds 0, the claim asks for 1; {advice}",
        f"rlverify: TOY-05: STALE, measured with seeds 7, the claim asks for 8; {advice}",
    ]
    for arguments in (("report", "--check"), ("report",)):
        code, _, errors = toy(*arguments, "--reports", reports, project=project)
        assert (code, errors.splitlines()) == (1, lines)
    assert "**2 stale**, measured for other settings of the claim: NULL-TOY, TOY-05." in (
        reports / "index.md"
    ).read_text(encoding="utf-8")
    text = (reports / "claims.md").read_text(encoding="utf-8")
    assert "**2 stale**, measured for other settings of the claim: TOY-05, NULL-TOY." in text
    assert "**STALE** (expected CONFIRMED)." in text
    assert "NULL-TOY add replaced by itself (arithmetic): STALE" in text
    content = json.loads(toy("report", "--json", "--reports", reports, project=project)[1])
    assert [each["claim"]["id"] for each in content["claims"] if each["misfits"]] == ["NULL-TOY", "TOY-05"]
    assert toy("audit", "--update", "--reports", reports, project=project)[0] == 0
    assert toy("report", "--check", "--reports", reports, project=project) == (0, "", "")
