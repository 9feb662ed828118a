"""``rlverify report --format``: one text for another program, from the committed records."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rlverify.cli.app import run
from rlverify.reporting.formats import FORMATS
from tests.support.repository_copy import ROOT

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def audited(auditedproject: Path) -> Path:
    """A folder of reports, freshly updated; treat as read-only."""
    return auditedproject / "reports"


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str], auditedproject: Path, audited: Path) -> Command:
    """Runs the command on the updated reports: exit code, output, errors."""

    def command(*arguments: str | Path, reports: Path = audited) -> tuple[int, str, str]:
        code = run(["--project", str(auditedproject), "report", "--reports", str(reports), *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


@pytest.mark.parametrize("name", [*FORMATS, "html"])
def test_every_format_can_be_typed(name: str, report: Command) -> None:
    assert report("--format", name)[0] == 0


def test_a_format_that_does_not_exist_is_answered_with_those_that_do(report: Command) -> None:
    code, output, errors = report("--format", "pdf")
    assert (code, output) == (2, "")
    assert "'pdf' is not one of 'json', 'junit', 'step-summary', 'html'" in " ".join(errors.split())


def test_a_text_for_a_program_goes_to_stdout_and_nothing_else_does(report: Command) -> None:
    code, output, errors = report("--format", "junit")
    assert (code, errors) == (0, "")
    assert ElementTree.fromstring(output).attrib["tests"] == "6"
    assert report("--format", "step-summary")[1].startswith("# rlverify: as expected\n")


def test_the_two_ways_to_ask_for_json_give_the_same(report: Command) -> None:
    text = report("--format", "json")[1]
    assert len(json.loads(text)["claims"]) == 6
    assert report("--json")[1] == text


def test_a_check_can_be_asked_for_its_outcome_as_json(report: Command, audited: Path, tmp_path: Path) -> None:
    code, output, errors = report("--check", "--json")
    assert (code, errors) == (0, "")
    assert json.loads(output) == {"schema_version": 1, "exit_code": 0, "problems": [], "notes": []}
    (shutil.copytree(audited, tmp_path / "reports") / "evidence" / "NULL-TOY.json").unlink()
    missing = report("--check", "--json", reports=tmp_path / "reports")
    content = json.loads(missing[1])
    assert (missing[0], missing[2], content["exit_code"]) == (1, "", 1)
    assert content["problems"][0] == {
        "subject": "NULL-TOY",
        "exit_code": 1,
        "kind": "stale",
        "sentence": "has no evidence",
        "remedy": "run `rlverify audit --update`",
    }


def test_edited_pages_do_not_pass(report: Command, audited: Path, tmp_path: Path) -> None:
    copy = tmp_path / "reports"
    shutil.copytree(audited, copy)
    assert report("--check", reports=copy) == (0, "", "")
    (copy / "claims.md").write_text("edited", encoding="utf-8")
    assert report("--check", reports=copy)[0] == 1


def test_a_text_can_go_to_a_file_and_pages_are_left_alone(report: Command, audited: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in audited.rglob("*")}
    target = tmp_path / "new" / "summary.md"
    assert report("--format", "step-summary", "--output", target) == (0, "", "")
    assert target.read_text(encoding="utf-8") == report("--format", "step-summary")[1]
    assert {path: path.stat().st_mtime_ns for path in audited.rglob("*")} == before


def test_an_output_that_cannot_be_written_is_named_before_rendering(report: Command, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for target, told in (
        (tmp_path / "file" / "audit.html", "cannot be written: File exists"),
        (tmp_path, "is not a file; name one"),
    ):
        code, output, errors = report("--format", "html", "--output", target)
        assert (code, output) == (2, "")
        said = " ".join(errors.replace("│", " ").split())
        assert f"--output {target}" in said
        assert told in said
        assert "evidence" not in said


def test_the_html_page_is_of_the_whole_audit_or_of_the_chosen_claims(report: Command, tmp_path: Path) -> None:
    target = tmp_path / "audit.html"
    assert report("--format", "html", "--output", target) == (0, "", "")
    text = target.read_text(encoding="utf-8")
    assert text == report("--format", "html")[1]
    assert text.startswith("<!doctype html>")
    ids = re.findall(r'<a id="(?!full-)(.*?)"', text)
    assert len(ids) == 6
    assert ids[-1] == "null-toy"
    chosen = report(ids[0], "--format", "html")[1]
    assert re.findall(r'<a id="(.*?)"', chosen) == [ids[0], f"full-{ids[0]}"]


def test_chosen_claims_have_the_pages_that_every_project_has(capsys: pytest.CaptureFixture[str]) -> None:
    run(["--project", str(ROOT), "report", "BUG-10", "--format", "html"])
    text = capsys.readouterr().out
    names = ["index", "all-claims", "claims"]
    assert re.findall(r'<section id="(.*?)">', text) == names
    assert re.findall(r'<a id="(bug-.*?)"', text) == ["bug-10"]
    assert '<a href="#002-L17">002:17-28</a>' in text
    assert '<li><a href="#index">What is claimed, and what was measured</a></li>' in text


def test_what_is_missing_stands_in_the_text_and_in_the_exit_code(
    report: Command, audited: Path, tmp_path: Path
) -> None:
    for path in [*(shutil.copytree(audited, tmp_path / "reports") / "evidence").iterdir()][1:]:
        path.unlink()
    code, output, errors = report("--format", "step-summary", reports=tmp_path / "reports")
    assert code == 1
    assert output.count("NO EVIDENCE") == 5
    assert errors.count("has no evidence") == 5


@pytest.mark.parametrize("options", [(), ("--check",), ("--format", "html"), ("--json",)])
def test_a_folder_without_evidence_is_one_line_and_gets_no_pages(
    report: Command, tmp_path: Path, options: tuple[str, ...]
) -> None:
    code, output, errors = report(*options, reports=tmp_path / "wrong")
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert f"there is no evidence in {tmp_path / 'wrong' / 'evidence'}; run `rlverify audit --update`" in errors
    assert not (tmp_path / "wrong").exists()


def test_the_pages_are_rendered_with_a_line_that_names_their_folder(
    report: Command, audited: Path, tmp_path: Path
) -> None:
    reports = shutil.copytree(audited, tmp_path / "reports")
    assert report(reports=reports) == (0, f"wrote the pages in {reports}\n", "")


def test_a_hyphen_as_output_is_stdout(report: Command) -> None:
    assert report("--format", "json", "--output", "-") == report("--format", "json")


@pytest.mark.parametrize(
    "options",
    [
        ("--check", "--format", "html"),
        ("--check", "--format", "html", "--output", "kept"),
        ("--check", "--output", "kept"),
    ],
)
def test_a_check_writes_no_text_for_a_program(
    report: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept").write_text("mine", encoding="utf-8")
    code, output, errors = report(*options)
    assert (code, output) == (2, "")
    assert "the pages are about all claims" in errors
    assert (tmp_path / "kept").read_text(encoding="utf-8") == "mine"


def test_a_file_without_a_format_is_refused(report: Command) -> None:
    code, output, errors = report("--output", "x.md")
    assert (code, output) == (2, "")
    assert "name a --format" in errors
    assert len(errors.splitlines()) == 1
