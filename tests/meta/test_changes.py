"""``gate --changed``: what a diff can affect is measured, what it cannot is not, and a bug that it brings is caught."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rlverify.gating.changes import code_of
from rlverify.project.content import Project, open_project
from tests.meta.project_folders import PROJECTS, write_settings, write_toy_tests

ROOT = Path(__file__).parents[2]


def copy_project(name: str, checkout: Path) -> Path:
    """A copy of a tiny project's content package in a folder, which it returns; its settings look nowhere else."""
    shutil.copytree(PROJECTS / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__", "pyproject.toml"))
    return write_settings(checkout, name, pythonpath=["."], unmeasured=["examples"])


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Git checkout of the toy project with its tests, evidence and kill matrix; treat as read-only."""
    checkout = tmp_path_factory.mktemp("committed")
    write_toy_tests(copy_project("toyproject", checkout))
    (checkout / "README.md").write_text("toy\n")
    (checkout / ".gitignore").write_text(".rlverify\n__pycache__\n")
    for command in ("audit", "matrix"):
        done = rlverify(checkout, command, "--update", "--jobs", "1")
        assert done.returncode == 0, done.stdout + done.stderr
    git(checkout, "init", "--quiet")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", "toy")
    return checkout


@pytest.fixture
def checkout(committed: Path, tmp_path: Path) -> Path:
    """A copy of it to be changed."""
    return shutil.copytree(committed, tmp_path / "checkout")


def git(checkout: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=toy", "-c", "user.email=toy@example.org")
    subprocess.run(["git", "-C", str(checkout), *identity, *arguments], check=True, capture_output=True)


def rlverify(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "rlverify.cli.entry", "--project", str(checkout), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def gate(checkout: Path, *arguments: str) -> tuple[int, str]:
    done = rlverify(checkout, "gate", "--changed", "--jobs", "1", *arguments)
    return done.returncode, done.stdout + done.stderr


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def test_without_a_change_nothing_is_measured(checkout: Path) -> None:
    code, said = gate(checkout)
    assert (code, said.splitlines()[0].split(":")[0]) == (0, "measured 0 of 6")


def test_a_bug_that_a_change_brings_is_caught(checkout: Path) -> None:
    """The very bug of TOY-01, written into the source instead of planted."""
    replace(
        checkout / "toyproject/target.py", 'made.count, made.total = state["count"], state["total"]', "made.count = 0"
    )
    code, said = gate(checkout)
    assert code != 0
    assert "TOY-01" in said
    assert "measured 6 of 6: toyproject/target.py changed since HEAD" in said


@pytest.mark.slow
def test_a_bug_that_was_committed_is_caught_from_the_revision_before_it(checkout: Path) -> None:
    replace(checkout / "toyproject/target.py", "return min(max(value, low), high)", "return min(value, high)")
    git(checkout, "commit", "--quiet", "-a", "-m", "bug")
    code, said = gate(checkout, "--base", "HEAD~1")
    assert (code != 0, "measured 6 of 6" in said, "TOY-02" in said) == (True, True, True)


@pytest.mark.slow
def test_stale_evidence_is_measured_whatever_the_revision_says(checkout: Path) -> None:
    """The bug is committed, so that nothing changed since HEAD; the evidence was taken of other code."""
    replace(checkout / "toyproject/target.py", "return min(max(value, low), high)", "return min(value, high)")
    git(checkout, "commit", "--quiet", "-a", "-m", "bug")
    code, said = gate(checkout)
    assert (code != 0, "TOY-02" in said, "measured 0 of 6" in said) == (True, True, False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["README.md", "tests/test_new.py", "examples/new.yaml", "NOTES.md"])
def test_what_no_measurement_reads_affects_nothing(checkout: Path, name: str) -> None:
    path = checkout / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("changed\n")
    code, said = gate(checkout)
    assert (code, "measured 0 of 6: the only ones that changes since HEAD can affect" in said) == (0, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["constraints.txt", "setup.cfg", "toyproject/new.py", "toyproject/faults/__init__.py", "toyproject/faults/make.py"],
)
def test_what_might_affect_anything_affects_everything(checkout: Path, name: str) -> None:
    (checkout / name).write_text("# changed\n")
    _, said = gate(checkout)
    assert f"measured 6 of 6: {name} changed since HEAD" in said


def test_a_catalogue_file_affects_its_own_claims(checkout: Path) -> None:
    path = checkout / "toyproject/catalogue/nulls.toml"
    path.write_text(path.read_text() + "# changed\n")
    code, said = gate(checkout)
    assert (code, "measured 1 of 6" in said) == (0, True)


@pytest.mark.slow
def test_a_fault_file_affects_the_claims_of_its_faults(checkout: Path, toyproject: Project) -> None:
    path = checkout / "toyproject/faults/arithmetic.py"
    path.write_text(path.read_text() + "# changed\n")
    code, said = gate(checkout)
    with_faults = sum(claim.fault is not None for claim in toyproject.claims)
    assert 0 < with_faults < len(toyproject.claims)
    assert (code, f"measured {with_faults} of 6: the only ones" in said) == (0, True)


@pytest.mark.slow
def test_an_experiment_file_affects_the_figures_of_its_experiments(figureproject: Project, tmp_path: Path) -> None:
    checkout = tmp_path / "figures"
    copy_project("figureproject", checkout)
    git(checkout, "init", "--quiet")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", "figures")
    with (checkout / "figureproject/experiments/values.py").open("a") as file:
        file.write("# changed\n")
    code = (
        "from rlverify.gating.changes import select; from rlverify.project.content import open_project; "
        "from pathlib import Path; print(*sorted(select(open_project(Path.cwd()), 'HEAD').claim_ids))"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", code],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == sorted(claim.id for claim in figureproject.claims if claim.figure is not None)


@pytest.mark.slow
@pytest.mark.parametrize("revision", ["HEAD..HEAD", "HEAD...HEAD", "HEAD^!", "HEAD:toyproject", "--cached"])
def test_what_names_no_single_commit_measures_everything(checkout: Path, revision: str) -> None:
    """Git would compare two commits, and leave the working tree out."""
    _, said = gate(checkout, f"--base={revision}")
    assert f"measured 6 of 6: Git cannot tell what changed since {revision}" in said


@pytest.mark.slow
def test_a_file_that_moved_to_where_nothing_is_read_is_missed_where_it_was(checkout: Path) -> None:
    (checkout / "toyproject/extra.py").write_text("value = 1\n" * 20)
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", "extra")
    git(checkout, "mv", "toyproject/extra.py", "tests/extra.py")
    _, said = gate(checkout)
    assert "measured 6 of 6: toyproject/extra.py changed" in said


def told_to_look_away(checkout: Path) -> None:
    git(checkout, "update-index", "--assume-unchanged", "toyproject/target.py")


def told_to_skip(checkout: Path) -> None:
    git(checkout, "update-index", "--skip-worktree", "toyproject/target.py")


def ignored(checkout: Path) -> None:
    with (checkout / ".gitignore").open("a") as file:
        file.write("build\n")
    (checkout / "toyproject/probes/build").mkdir()
    (checkout / "toyproject/probes/build/__init__.py").write_text("")


def link(checkout: Path) -> None:
    shutil.move(checkout / "toyproject/target.py", checkout / "tests/target.py")
    (checkout / "toyproject/target.py").symlink_to("../tests/target.py")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", "link")


@pytest.mark.slow
@pytest.mark.parametrize("hide", [told_to_look_away, told_to_skip, ignored, link])
def test_code_whose_changes_git_would_not_tell_of_is_measured(checkout: Path, hide: Callable[[Path], None]) -> None:
    hide(checkout)
    _, said = gate(checkout)
    assert "measured 6 of 6: Git does not see" in said


@pytest.mark.slow
@pytest.mark.parametrize("name", ["toyproject/data.md", "toyproject/reports/evidence/TOY-01.json", "lib/tests/x.py"])
def test_a_path_that_only_ends_like_what_is_not_read_affects_everything(checkout: Path, name: str) -> None:
    path = checkout / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("changed\n")
    _, said = gate(checkout)
    assert f"measured 6 of 6: {name} changed since HEAD" in said


@pytest.mark.slow
def test_a_name_that_is_no_text_is_told_with_its_bytes(checkout: Path) -> None:
    (Path(os.fsdecode(os.fsencode(checkout) + b"/\xff.py"))).write_text("")
    code, said = gate(checkout)
    assert (code, "measured 6 of 6: \\xff.py changed" in said.replace("\\udcff", "\\xff")) == (0, True)


@pytest.mark.slow
def test_a_change_beside_the_folder_in_a_larger_checkout_affects_everything(checkout: Path) -> None:
    nested = checkout / "nested"
    nested.mkdir()
    for name in ("toyproject", "reports", "pyproject.toml", "tests"):
        git(checkout, "mv", name, f"nested/{name}")
    git(checkout, "commit", "--quiet", "-m", "nested")
    assert "measured 0 of 6" in gate(nested)[1]
    (checkout / "README.md").write_text("changed\n")
    assert "measured 6 of 6: README.md changed" in gate(nested)[1]


def test_the_code_under_test_is_what_claims_are_about_and_nothing_that_is_installed(toyproject: Project) -> None:
    """Claims of ours are about a module of Stable-Baselines3 too, which the pinned versions stand for."""
    ours = open_project(ROOT)
    assert any(name.startswith("stable_baselines3.") for claim in ours.claims for name in claim.modules)
    assert code_of(ours) == [ROOT / "rlcore", ROOT / "verification"]
    assert [folder.name for folder in code_of(toyproject)] == ["toyproject"]


@pytest.mark.slow
def test_another_repository_in_the_environment_is_not_asked(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(ROOT / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(ROOT))
    replace(checkout / "toyproject/target.py", "limit = 10", "limit = 11")
    assert "measured 6 of 6: toyproject/target.py changed since HEAD" in gate(checkout)[1]


@pytest.mark.slow
def test_deleted_evidence_is_measured_anew(checkout: Path) -> None:
    (checkout / "reports/evidence/TOY-02.json").unlink()
    code, said = gate(checkout)
    assert (code, "TOY-02: has no committed evidence" in said, "measured 1 of 6" in said) == (1, True, True)


@pytest.mark.slow
def test_an_unknown_revision_and_no_checkout_measure_everything_and_say_why(checkout: Path) -> None:
    code, said = gate(checkout, "--base", "no-such-branch")
    assert (code, "measured 6 of 6: Git cannot tell what changed since no-such-branch" in said) == (0, True)
    assert "to measure: everything, as Git cannot tell what changed since no-such-branch" in said
    shutil.rmtree(checkout / ".git")
    code, said = gate(checkout)
    assert (code, "measured 6 of 6: Git cannot tell" in said) == (0, True)


def test_a_base_without_changed_is_an_error(checkout: Path) -> None:
    done = rlverify(checkout, "gate", "--base", "HEAD")
    assert (done.returncode, done.stderr) == (2, "rlverify: --base HEAD is for --changed: gate --changed --base HEAD\n")


def test_a_module_under_test_is_that_file_alone_and_counts_though_it_is_called_unmeasured(checkout: Path) -> None:
    path = checkout / "pyproject.toml"
    (checkout / "flatmodule.py").write_text("VALUE = 1\n")
    replace(path, 'under_test = ["toyproject"]', 'under_test = ["toyproject", "flatmodule"]')
    replace(path, "unmeasured = [", 'unmeasured = ["flatmodule.py", ')
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", "flat")
    (checkout / ".rlverify").mkdir(exist_ok=True)
    (checkout / ".rlverify" / "ignored.py").write_text("ignored\n")
    assert "measured 0 of 6" in gate(checkout)[1]
    (checkout / "flatmodule.py").write_text("VALUE = 2\n")
    assert "flatmodule.py changed since HEAD" in gate(checkout)[1]
