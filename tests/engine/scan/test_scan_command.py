"""The command `rlverify scan`: exit codes, formats, files; and the hook of pre-commit that runs it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlverify.scan.scanning import SOURCE_SUFFIXES
from rlverify.scan.unpacking import CHECKPOINT_SUFFIXES
from tests.engine.in_process import rlverify_here
from tests.engine.reporting.test_sarif_schema import faults_of
from tests.support.repository_copy import ROOT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "x.py").write_text("import pickle\npickle.load(f)\n")
    (tmp_path / "safe").mkdir()
    return tmp_path


def test_the_exit_code_is_the_answer(folder: Path) -> None:
    found = rlverify_here("scan", "x.py", cwd=folder)
    assert (found.returncode, found.stderr) == (1, "")
    assert found.stdout.startswith("x.py:2: error: pickle.load executes what its input says [pickle-load]\n")
    clean = rlverify_here("scan", "safe", cwd=folder)
    assert (clean.returncode, clean.stdout, clean.stderr) == (0, "nothing found\n", "")
    (folder / "safe" / ".venv").mkdir()
    left = rlverify_here("scan", "safe", cwd=folder)
    told = f"note: left out {Path('safe', '.venv')}; name a folder to scan it\n"
    assert (left.returncode, left.stdout, left.stderr) == (0, "nothing found\n", told)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing"], "there is no file or folder 'missing'"),
        (["x.py", "missing"], "there is no file or folder 'missing'"),
        (["x.py", "--format", "xml"], "'xml' is not one of 'text', 'json', 'sarif'"),
        ([], "Missing argument"),
        (["x.py", "--output", "safe"], "is not a file"),
    ],
)
def test_what_cannot_be_used_is_exit_code_2(arguments: list[str], said: str, folder: Path) -> None:
    done = rlverify_here("scan", *arguments, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_json_and_sarif(folder: Path) -> None:
    printed = rlverify_here("scan", "x.py", "--format", "json", cwd=folder)
    (finding,) = json.loads(printed.stdout)["findings"]
    assert (printed.returncode, finding["rule"], finding["line"]) == (1, "pickle-load", 2)
    content = json.loads(rlverify_here("scan", ".", "--format", "sarif", cwd=folder).stdout)
    assert faults_of(content) == []
    assert [each["ruleId"] for each in content["runs"][0]["results"]] == ["pickle-load"]


def test_the_report_is_written_to_a_file(folder: Path) -> None:
    done = rlverify_here("scan", "x.py", "--format", "json", "--output", "found.json", cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(json.loads((folder / "found.json").read_text())["findings"]) == 1


def test_no_project_is_needed(folder: Path) -> None:
    """Not even a broken one disturbs."""
    (folder / "pyproject.toml").write_text("[tool.rlverify]\ncontent = 7\n")
    assert rlverify_here("scan", "x.py", cwd=folder).returncode == 1


def hook() -> dict[str, Any]:
    (found,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    return dict(found)


def test_the_hook_runs_the_command() -> None:
    assert {name: hook()[name] for name in ("id", "entry", "language")} == {
        "id": "rlverify-scan",
        "entry": "rlverify scan",
        "language": "python",
    }


def test_the_hook_takes_python_and_checkpoint_files() -> None:
    """pre-commit passes a file if its name fits `files` and one of its types fits `types_or`."""
    pattern, kinds = re.compile(hook()["files"]), set(hook()["types_or"])
    for suffix in (*SOURCE_SUFFIXES, *CHECKPOINT_SUFFIXES, ".zip"):
        assert pattern.search(f"a/b{suffix}")
        assert pattern.search(f"a/b{suffix.upper()}")
    for name in ("a.txt", "a.pyx", "py", "a.pkl.md", "apkl"):
        assert not pattern.search(name)
    assert kinds >= {"python", "binary", "text"}
