"""What Git says of a commit, and what we report where Git cannot name one to compare with."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from rlverify.gating.git_base import MAIN_BRANCHES, Base, UnknownChangesError, find_base, known_base
from rlverify.project.content import Project
from tests.engine.project_folders import project_in


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


@dataclass(frozen=True)
class Repository:
    """A project in a repository of its own, whose commits are called by numbers."""

    project: Project

    @property
    def root(self) -> Path:
        return self.project.root

    def git(self, *arguments: str) -> str:
        command = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments]
        return subprocess.run(command, cwd=self.root, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message=more")
        return self.git("rev-parse", "HEAD")

    def base(self, asked: str | None = None) -> str:
        found = find_base(self.project, asked)
        assert found.top == self.root.resolve()
        return found.commit


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """On the branch main, without a commit."""
    monkeypatch.delenv("GITHUB_BASE_REF", raising=False)
    made = Repository(project_in(tmp_path))
    made.git("init", "--quiet", "--initial-branch=main")
    return made


def test_on_the_main_branch_it_is_the_commit_before(repository: Repository) -> None:
    first, _ = repository.commit(), repository.commit()
    assert repository.base() == repository.base("") == first


def test_on_another_branch_it_is_the_commit_where_that_began(repository: Repository) -> None:
    _, second = repository.commit(), repository.commit()
    repository.git("switch", "--quiet", "--create", "side")
    repository.commit()
    repository.commit()
    assert repository.base() == second


@pytest.mark.parametrize("branch", MAIN_BRANCHES)
def test_the_main_branch_may_have_any_of_these_names(branch: str, repository: Repository) -> None:
    first, _ = repository.commit(), repository.commit()
    repository.git("switch", "--quiet", "--create", "side")
    repository.git("branch", "--quiet", "--delete", "--force", "main")
    repository.git("update-ref", f"refs/{'remotes' if '/' in branch else 'heads'}/{branch}", first)
    repository.commit()
    assert repository.base() == first


def test_the_first_of_these_names_decides(repository: Repository) -> None:
    """The branch main is behind, as it is after a fetch."""
    first, second, third = (repository.commit() for _ in range(3))
    repository.git("switch", "--quiet", "--create", "side")
    repository.git("update-ref", "refs/heads/main", first)
    repository.git("update-ref", "refs/remotes/origin/main", third)
    assert repository.base() == second
    repository.commit()
    assert repository.base() == third


def test_a_pull_request_is_compared_with_the_branch_that_it_is_for(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, _ = (repository.commit() for _ in range(3))
    repository.git("update-ref", "refs/remotes/origin/release", first)
    repository.git("update-ref", "refs/remotes/origin/main", second)
    assert repository.base() == second
    monkeypatch.setenv("GITHUB_BASE_REF", "release")
    assert repository.base() == first
    monkeypatch.setenv("GITHUB_BASE_REF", "gone")
    assert repository.base() == second


def test_a_single_commit_is_compared_with_the_working_tree(repository: Repository) -> None:
    assert repository.commit() == repository.base()


def test_a_repository_without_a_commit_asks_for_one(repository: Repository) -> None:
    with pytest.raises(UnknownChangesError) as caught:
        repository.base()
    assert str(caught.value) == "the repository has no commit to compare with; commit the project first"
    assert known_base(repository.project) is None


def test_a_commit_may_be_asked_for_by_any_name(repository: Repository) -> None:
    first, second = repository.commit(), repository.commit()
    assert [repository.base(name) for name in ("HEAD", "main~1", first[:12])] == [second, first, first]


@pytest.mark.parametrize("asked", ["gone", "HEAD~1..HEAD", "HEAD:README.md"])
def test_what_is_no_commit_is_named(asked: str, repository: Repository) -> None:
    (repository.root / "README.md").write_text("x", encoding="utf-8")
    repository.commit()
    repository.commit()
    with pytest.raises(UnknownChangesError) as caught:
        repository.base(asked)
    assert str(caught.value) == f"Git knows no commit {asked!r}; correct --base, or fetch the history"


def test_the_environment_names_no_other_repository(
    repository: Repository, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = repository.commit(), repository.commit()
    monkeypatch.setenv("GIT_DIR", str(tmp_path_factory.mktemp("other")))
    assert repository.base() == first


def test_any_bytes_and_names_are_read(repository: Repository) -> None:
    """A name that looks like an option is a name, and a file need not be UTF-8."""
    (repository.root / "--long").write_bytes(b"caf\xe9\0more\n")
    base = Base(repository.root.resolve(), repository.commit())
    (repository.root / "--long").unlink()
    assert base.text(repository.root / "--long") == "caf\udce9\0more\n"
    assert base.text(repository.root / "--other") is None
    assert base.text(repository.root.parent / "--long") is None
    assert base.changed == {repository.root.resolve() / "--long"}


@pytest.mark.usefixtures("ascii_locale")
def test_names_and_texts_are_utf_8_whatever_the_locale(repository: Repository) -> None:
    path = repository.root.resolve() / "café"
    path.write_text("thé\n", encoding="utf-8")
    base = Base(repository.root.resolve(), repository.commit())
    path.unlink()
    assert (base.changed, base.text(path)) == ({path}, "thé\n")


def test_what_is_new_or_has_moved_differs(repository: Repository) -> None:
    for name in ("stays", "moves", "is ignored"):
        (repository.root / name).write_text(name, encoding="utf-8")
    (repository.root / ".gitignore").write_text("is ignored\nanother\n", encoding="utf-8")
    base = Base(repository.root.resolve(), repository.commit())
    repository.git("mv", "moves", "moved")
    for name in ("new file", "another"):
        (repository.root / name).write_text(name, encoding="utf-8")
    assert {path.name for path in base.changed} == {"moves", "moved", "new file"}


def test_a_clone_without_the_commit_before_has_no_base(repository: Repository) -> None:
    repository.commit()
    (repository.root / ".git/shallow").write_text(f"{repository.commit()}\n")  # as a clone of depth 1 has it
    with pytest.raises(UnknownChangesError, match="this clone has no commit before HEAD; fetch the history"):
        repository.base()
    assert known_base(repository.project) is None
