"""What helps at the prompt: the version, completion by the shell, and where a claim is stated."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from rlverify.cli.app import run
from rlverify.project.content import open_project
from tests.engine.project_folders import PROJECTS, toy_catalogue, write_settings

ROOT = Path(__file__).parents[3]
TOY = PROJECTS / "toyproject"
Invoke = Callable[..., "subprocess.CompletedProcess[str]"]


def test_show_tells_the_lines_that_a_claim_cites(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--project", str(ROOT), "show", "BUG-10"]) == 0
    output = capsys.readouterr().out
    rows = dict(re.findall(r"^(\S.*?)  +(\S.*)$", output, re.MULTILINE))
    claim = open_project(ROOT).claim("BUG-10")
    assert rows["cites"].startswith(claim.cites[0])
    assert (rows["area"], rows["severity"]) == (claim.area, claim.severity)
    assert claim.root_cause.startswith(rows["root cause"])


def test_the_version_is_that_of_the_installed_package(rlverify_process: Invoke) -> None:
    done = rlverify_process("--version", cwd="/")
    assert (done.returncode, done.stdout) == (0, f"rlverify {metadata.version('rlverify')}\n")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("--project / show T", []),
        ("show TOY-0", ["TOY-01", "TOY-02", "TOY-03", "TOY-04", "TOY-05"]),
        ("gate TOY-01 null", ["null-toy"]),
        ("reproduce X", []),
        ("repo", ["report"]),
    ],
)
def test_the_shell_completes_commands_and_ids(words: str, offered: list[str], rlverify_process: Invoke) -> None:
    typed = f"rlverify --project {TOY} {words}"
    asked = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1), "_RLVERIFY_COMPLETE": "complete_bash"}
    done = rlverify_process(**asked)
    assert (done.stdout.split(), done.stderr) == (offered, "")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('id = "TOY-02"', 'id = "TOY-01"'),
        ('area = "state"', 'aera = "state"'),
        ('expected = "REFUTED"', 'expected = "REFUSED"'),
        ("[[claim]]", "schema_version = 9\n[[claim]]"),
        ("[[claim]]", "[[claim"),
    ],
)
def test_list_and_show_refuse_a_broken_catalogue_as_audit_does(
    old: str, new: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_settings(tmp_path, "toyproject", catalogue=toy_catalogue(tmp_path / "catalogue", {old: new}))
    told = []
    for command in (["audit"], ["list"], ["show", "TOY-04"]):
        assert run(["--project", str(tmp_path), *command]) == 2
        told.append(capsys.readouterr())
    assert told[0].err.startswith("rlverify: catalogue ")
    assert told == [("", told[0].err)] * 3
