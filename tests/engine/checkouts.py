"""Git checkouts of the tiny projects, and what tests do with them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.engine.in_process import rlverify_here
from tests.engine.project_folders import PROJECTS, write_settings

IGNORED = ".rlverify\n__pycache__\n"


def copy_project(name: str, checkout: Path) -> Path:
    """A copy of a tiny project's content package in a folder, which it returns; its settings look nowhere else."""
    shutil.copytree(PROJECTS / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__", "pyproject.toml"))
    (checkout / ".gitignore").write_text(IGNORED)
    return write_settings(checkout, name, pythonpath=["."])


def git(checkout: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=toy", "-c", "user.email=toy@example.org")
    command = ["git", "-C", str(checkout), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(checkout: Path, message: str) -> str:
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", message)
    return git(checkout, "rev-parse", "HEAD")


def commit_of_words(checkout: Path) -> None:
    with (checkout / "README.md").open("a") as file:
        file.write("more\n")
    commit(checkout, "words")


def answer(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return rlverify_here("--project", checkout, *arguments)


def gate(checkout: Path, *arguments: str) -> tuple[int, str]:
    done = answer(checkout, "gate", *arguments)
    return done.returncode, done.stdout + done.stderr


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def figures_committed(checkout: Path) -> Path:
    """A checkout of the project with figures, all measured, with two commits; the folder, which it returns, exists."""
    copy_project("figureproject", checkout)
    (checkout / "README.md").write_text("figures\n")
    done = answer(checkout, "audit", "--level", "full", "--update")
    assert done.returncode == 0, done.stdout + done.stderr
    git(checkout, "init", "--quiet", "--initial-branch", "main")
    commit(checkout, "figures")
    commit_of_words(checkout)
    shutil.rmtree(checkout / ".rlverify")
    return checkout
