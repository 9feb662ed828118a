"""What the README and the pages of docs/ show is what the program does."""

from __future__ import annotations

import re
import shlex
import tomllib
from dataclasses import fields
from itertools import chain
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from rlverify.cli.app import PLACES, app
from rlverify.project.catalogue_entries import ClaimEntry
from rlverify.project.content import open_project
from rlverify.project.settings import Settings
from rlverify.records.claims import FixGrade, Verdict
from rlverify.records.problems import AS_EXPECTED, CLAIM_FELL, HARNESS_FAILED, INTERRUPTED
from tests.engine.pages import BLOCK, NOT_RUN, commands_of, page_text, run_page
from tests.support.repository_copy import ROOT

NAMES = ["README.md", "CONTRIBUTING.md", *(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md"))]
TEXT = "\n".join(map(page_text, NAMES))
SLOW = {
    "docs/checks.md",
    "docs/explanation/seen-to-fail.md",
    "docs/how-to/ci.md",
    "docs/how-to/faults.md",
    "docs/how-to/figures.md",
    "docs/how-to/known-failures.md",
    "docs/how-to/ray.md",
    "docs/how-to/suites.md",
    "docs/how-to/train-rlcore.md",
    "docs/reference/cli.md",
    "docs/reference/file-formats.md",
    "docs/tutorial/check-a-model.md",
    "docs/tutorial/check-your-loop.md",
    "docs/tutorial/first-claim.md",
    "docs/tutorial/resume-exactly.md",
}
RUN = [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in NAMES if name != "README.md"]
COMMANDS = [found for _, kind, text in BLOCK.findall(TEXT) if kind == "console" for found, _ in commands_of(text)]


def table(page: str) -> dict[str, str]:
    """The rows of all tables of a page: the first cell, and the others."""
    return dict(re.findall(r"^\| (.*?) \| (.*) \|$", page_text(page), re.MULTILINE))


@pytest.mark.parametrize("page", RUN)
def test_what_a_page_shows_is_what_happens(page: str, tmp_path: Path) -> None:
    """That of the README is in `tests/integration/test_checks_from_wheel.py`."""
    run_page(page, tmp_path)


def test_slow_pages_exist_and_most_commands_are_run() -> None:
    assert set(NAMES) >= SLOW
    left = [command for command in COMMANDS if command.startswith(tuple(NOT_RUN))]
    assert 0 < 2 * len(left) < len(COMMANDS)


def test_every_command_shown_exists_with_its_options() -> None:
    """Those too that no test runs, and those of workflow files."""
    known = get_command(app).commands  # type: ignore[attr-defined]
    shown = [
        shlex.split(line, comments=True) for line in re.findall(r"^(?:\$| +-(?: run:)?) rlverify (.*)$", TEXT, re.M)
    ]
    assert {words[0] for words in shown} >= {"reproduce", "init", "new", "gate", "list", "audit", "check"}
    for name, *arguments in shown:
        assert known[name].make_context(name, arguments).args == []


def test_the_workflow_files_shown_are_yaml() -> None:
    texts = [text for _, kind, text in BLOCK.findall(page_text("docs/how-to/ci.md")) if kind == "yaml"]
    github, gitlab = map(yaml.safe_load, texts)
    assert [step["run"].split()[0] for step in github["jobs"]["checks"]["steps"] if "run" in step][1:] == [
        "rlverify"
    ] * 2
    assert [line.split()[0] for line in gitlab["checks"]["script"]] == ["pip", "rlverify", "rlverify"]


def test_the_claim_shown_has_the_required_fields() -> None:
    (shown,) = [text for _, kind, text in BLOCK.findall(page_text("docs/reference/settings.md")) if kind == "toml"]
    (entry,) = tomllib.loads(shown)["claim"]
    assert ClaimEntry.model_validate(entry).id == "BUG-1"
    assert all(field in entry for field, each in ClaimEntry.model_fields.items() if each.is_required())


def test_every_setting_and_every_field_of_a_claim_is_explained() -> None:
    explained = {word for cell in table("docs/reference/settings.md") for word in re.findall(r"`(\w+)`", cell)}
    text = page_text("docs/reference/settings.md")
    assert {each.name for each in fields(Settings)} - {"root"} <= explained
    assert [field for field in ClaimEntry.model_fields if field not in explained and f"{field} =" not in text] == []


def test_the_fault_shown_is_five_lines_and_pins_the_present_code() -> None:
    (example,) = [text for _, kind, text in BLOCK.findall(page_text("docs/how-to/faults.md")) if kind == "python"]
    assert len([line for line in example.partition("\nwith ")[0].splitlines() if line]) == 5
    assert f'pins="{open_project(ROOT).fault("bug-05-fixed-in-upgd-only").pins}"' in example


def test_every_verdict_and_grade_is_explained() -> None:
    assert {word.value for word in (*Verdict, *FixGrade)} <= {*table("docs/explanation/verdicts.md")}


def test_the_exit_codes_are_those_of_the_program() -> None:
    codes = {code: text for code, text in table("docs/reference/exit-codes.md").items() if code.isdigit()}
    assert set(codes) == {str(code) for code in (AS_EXPECTED, CLAIM_FELL, HARNESS_FAILED, INTERRUPTED)}
    assert "a claim fell" in codes[str(CLAIM_FELL)]
    assert "the harness failed" in codes[str(HARNESS_FAILED)]


def test_every_command_is_listed_and_every_listed_command_exists() -> None:
    assert set(re.findall(r"^\| `rlverify ([\w-]+)", page_text("docs/reference/cli.md"), re.MULTILINE)) == set(PLACES)


def test_every_make_target_shown_exists_and_each_is_explained() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    shown = set(re.findall(r"(?:`|\$ )make ([\w-]+)", TEXT))
    assert targets - {"clean"} == shown


def test_every_file_named_exists() -> None:
    """But for folders that Git ignores, which a fresh checkout does not have, and those of example projects."""
    ignored = [line for line in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines() if line.endswith("/")]
    assert {".venv/", ".hypothesis/"} <= set(ignored)
    found = [
        re.findall(r"`([\w./]+/[\w./]*|[A-Z]+\.md)`", page_text(page)) for page in NAMES if "tensorboard" not in page
    ]
    for name in {*chain.from_iterable(found)}:
        if not name.startswith((*ignored, "audit/", "path/to/", "runs/", "reports/evidence/ID")):
            assert (ROOT / name).exists(), name


def test_every_module_named_of_a_package_is_in_it() -> None:
    rows = re.findall(r"^\| `(\w+/\w+/)` \| (.*) \|$", page_text("CONTRIBUTING.md"), re.M)
    assert len(rows) > 15
    for package, text in rows:
        for name in re.findall(r"`(\w+\.py)`", text):
            assert (ROOT / package / name).exists(), f"{package}{name}"


def test_the_readme_is_short_and_lines_fit() -> None:
    assert len(page_text("README.md").encode()) <= 9_000
    written = {name: page_text(name) for name in NAMES if name not in ("docs/checks.md", "docs/tensorboard.md")}
    lines = [(name, line) for name, text in written.items() for line in text.splitlines() if not line.startswith("|")]
    assert [each for each in lines if len(each[1]) > 120] == []
