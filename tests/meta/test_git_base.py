"""What is told where Git cannot name a commit to compare with."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlverify.gating.git_base import UnknownChangesError, find_base
from tests.meta.project_folders import project_in


@pytest.mark.parametrize(("asked", "since"), [(None, "the main branch"), ("v1", "v1")])
def test_what_git_answers_is_told_where_there_is_no_repository(
    asked: str | None, since: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    with pytest.raises(UnknownChangesError) as caught:
        find_base(project_in(tmp_path), asked)
    told = str(caught.value)
    assert told.startswith(f"Git does not tell what changed since {since}: fatal: not a git repository")
    assert len(told.splitlines()) == 1


def test_a_machine_without_git_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = project_in(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnknownChangesError, match=r"the main branch: \[Errno 2\] No such file or directory: 'git'"):
        find_base(project, None)
