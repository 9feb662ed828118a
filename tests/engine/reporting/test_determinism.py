"""Evidence and reports are the same bytes whatever the hash seed, time zone, locale and working folder."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.engine.in_process import rlverify_here
from tests.engine.project_folders import PROJECTS, write_settings, write_toy_tests

TOY = PROJECTS / "toyproject"
Invoke = Callable[..., "subprocess.CompletedProcess[str]"]


def _files(reports: Path) -> dict[str, bytes]:
    return {str(path.relative_to(reports)): path.read_bytes() for path in sorted(reports.rglob("*.*"))}


def test_two_audits_far_apart_give_the_same_bytes(rlverify_process: Invoke, tmp_path: Path) -> None:
    settings = [
        {"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "LC_ALL": "C", "cwd": "/"},
        {"PYTHONHASHSEED": "2", "TZ": "America/New_York", "LC_ALL": "C.UTF-8", "cwd": str(tmp_path)},
    ]
    outputs, files = [], []
    for number, setting in enumerate(settings):
        reports = tmp_path / str(number) / "reports"
        done = rlverify_process(
            "--project", TOY, "audit", "--update", "--jobs", number + 1, "--reports", reports, **setting
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
        files.append(_files(reports))
    assert outputs[0] == outputs[1]
    assert files[0] == files[1]
    assert len(files[0]) == 9  # six of evidence, and three pages


def test_a_relative_folder_is_meant_from_where_the_user_stands(tmp_path: Path) -> None:
    project = write_toy_tests(write_settings(tmp_path / "project", "toyproject"))
    done = rlverify_here("--project", "project", "audit", "TOY-02", "--update", "--reports", "mine", cwd=tmp_path)
    assert done.returncode == 0
    assert (tmp_path / "mine" / "claims.md").is_file()
    assert not (project / "mine").exists()
