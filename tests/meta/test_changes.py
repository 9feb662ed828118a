"""``gate --changed``: what a diff can affect is measured, what it cannot is not, and a bug that it brings is caught."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlverify.evidence.evidence_files import load_file, to_json
from rlverify.evidence.seals import sealed
from rlverify.gating.changes import Selection, select
from rlverify.gating.git_base import UnknownChangesError, find_base
from rlverify.project.content import Project, open_project
from rlverify.project.current_code import CurrentCode
from tests.meta.in_process import fresh_projects, rlverify_here
from tests.meta.project_folders import PROJECTS, once_in_a_process, write_settings, write_toy_tests

ROOT = Path(__file__).parents[2]
Invoke = Callable[..., "subprocess.CompletedProcess[str]"]
CLIP = "return min(max(value, low), high)"


def copy_project(name: str, checkout: Path) -> Path:
    """A copy of a tiny project's content package in a folder, which it returns; its settings look nowhere else."""
    shutil.copytree(PROJECTS / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__", "pyproject.toml"))
    return write_settings(checkout, name, pythonpath=["."])


@pytest.fixture(scope="module")
@once_in_a_process
def committed(tmp_path_factory: pytest.TempPathFactory, rlverify: Invoke) -> Path:
    """A Git checkout of the toy project with its evidence and kill matrix, two commits; treat as read-only."""
    checkout = tmp_path_factory.mktemp("committed")
    write_toy_tests(copy_project("toyproject", checkout))
    (checkout / "README.md").write_text("toy\n")
    (checkout / ".gitignore").write_text(".rlverify\n__pycache__\n")
    for command in ("audit", "matrix"):
        done = rlverify(command, "--update", "--jobs", "1", cwd=str(checkout))
        assert done.returncode == 0, done.stdout + done.stderr
    git(checkout, "init", "--quiet", "--initial-branch", "main")
    commit(checkout, "toy")
    (checkout / "README.md").write_text("toy project\n")
    commit(checkout, "readme")
    return checkout


@pytest.fixture
def checkout(committed: Path, tmp_path: Path) -> Path:
    """A copy of it to be changed."""
    return shutil.copytree(committed, tmp_path / "checkout")


def git(checkout: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=toy", "-c", "user.email=toy@example.org")
    command = ["git", "-C", str(checkout), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(checkout: Path, message: str) -> str:
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", message)
    return git(checkout, "rev-parse", "HEAD")


def answer(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return rlverify_here("--project", checkout, *arguments)


def gate(checkout: Path, *arguments: str) -> tuple[int, str]:
    done = answer(checkout, "gate", "--changed", "--jobs", "1", *arguments)
    return done.returncode, done.stdout + done.stderr


def selected(checkout: Path, *base: str) -> tuple[set[str], str]:
    """Ids of the claims and names of the plots, and why."""
    with fresh_projects():
        project = open_project(checkout)
        found = select(project, project.paths, base[0] if base else None)
    return {*found.claim_ids, *found.plots}, found.reason


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


EVERYTHING = {"NULL-TOY", "TOY-01", "TOY-02", "TOY-03", "TOY-04", "TOY-05", "toy-squares"}


def test_without_a_change_nothing_is_measured(checkout: Path) -> None:
    code, said = gate(checkout)
    assert (code, said.splitlines()[0].split(":")[0]) == (0, "measured 0 of 6")


def test_a_bug_that_a_change_brings_is_caught_and_only_its_claims_are_measured(checkout: Path) -> None:
    """The very bug of TOY-01, written into the source instead of planted; only TOY-01 restores anything."""
    old = 'made.count, made.total = state["count"], state["total"]'
    replace(checkout / "toyproject/target.py", old, "made.count = 0")
    code, said = gate(checkout)
    assert (code, "TOY-01" in said, "measured 1 of 6" in said) == (1, True, True)
    assert "first suspect: toyproject/target.py:33 (changed)" in said


def test_a_bug_that_was_committed_is_caught(checkout: Path) -> None:
    replace(checkout / "toyproject/target.py", CLIP, "return min(value, high)")
    commit(checkout, "bug")
    code, said = gate(checkout)
    assert (code, "measured 2 of 6" in said, "TOY-02" in said) == (1, True, True)


def test_a_bug_two_commits_ago_on_a_branch_is_caught(checkout: Path) -> None:
    git(checkout, "checkout", "--quiet", "-b", "topic")
    replace(checkout / "toyproject/target.py", CLIP, "return min(value, high)")
    commit(checkout, "bug")
    (checkout / "README.md").write_text("more\n")
    commit(checkout, "words")
    assert selected(checkout)[0] == {"TOY-02", "TOY-03"}


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("target.py", "return self.total / max(self.count, 1)", "return self.total / self.count", {"TOY-01", "TOY-04"}),
        ("target.py", "return value\n", "return 2 * value\n", set()),  # no run executes it
        ("target.py", "limit = 10", "limit = 11", EVERYTHING),  # runs when the module is imported
        ("target.py", "high: float) ->", "high: float = 9.0) ->", EVERYTHING),
        ("probes/arithmetic.py", "average.add(seed)", "average.add(2 * seed)", {"NULL-TOY", "TOY-05"}),
        (
            "probes/make.py",
            "return target.Average()",
            "return target.Average() if 1 else None",
            {"NULL-TOY", "TOY-01", "TOY-04", "TOY-05"},
        ),
        ("faults/arithmetic.py", "return min(value, high)", "return min(high, value)", {"TOY-02"}),
        ("plots/squares.py", "x * x for", "x * x + 0 for", {"toy-squares"}),
    ],
)
def test_a_change_selects_what_executed_it(checkout: Path, file: str, old: str, new: str, expected: set[str]) -> None:
    replace(checkout / "toyproject" / file, old, new)
    assert selected(checkout)[0] == expected


def test_comments_layout_and_names_of_local_variables_select_nothing(checkout: Path) -> None:
    target = checkout / "toyproject/target.py"
    replace(target, "made = cls()", "fresh = cls()  # a new one")
    replace(target, 'made.count, made.total = state["count"],', 'fresh.count, fresh.total = state["count"],')
    replace(target, "return made", "return fresh")
    assert selected(checkout)[0] == set()


@pytest.mark.parametrize(
    "name", ["README.md", "tests/test_new.py", "examples/new.yaml", "setup.cfg", "toyproject/data.md"]
)
def test_a_file_that_no_run_read_selects_nothing(checkout: Path, name: str) -> None:
    path = checkout / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("changed\n")
    assert selected(checkout)[0] == set()


def read_a_file(checkout: Path) -> None:
    """Have TOY-05 read a file."""
    (checkout / "toyproject/limits.txt").write_text("0")
    replace(
        checkout / "toyproject/probes/arithmetic.py",
        "average.add(seed)",
        "average.add(int((__import__('pathlib').Path(__file__).parents[1] / 'limits.txt').read_text()))",
    )
    assert answer(checkout, "audit", "--update", "--jobs", "1").returncode == 0
    commit(checkout, "a file that is read")


def test_a_file_that_a_run_read_selects_its_claims(checkout: Path) -> None:
    read_a_file(checkout)
    commit_of_words(checkout)
    assert selected(checkout)[0] == set()
    (checkout / "toyproject/limits.txt").write_text("1")
    assert selected(checkout)[0] == {"NULL-TOY", "TOY-05"}


def test_a_function_that_an_import_executes_selects_all_that_import_it(checkout: Path) -> None:
    """No run executes it, as its module is imported before."""
    with (checkout / "toyproject/target.py").open("a") as file:
        file.write("\n\ndef _limit():\n    return 3\n\n\nLIMIT = _limit()\n")
    assert answer(checkout, "audit", "--update", "--jobs", "1").returncode == 0
    commit(checkout, "a function that an import executes")
    commit_of_words(checkout)
    assert selected(checkout)[0] == set()
    replace(checkout / "toyproject/target.py", "return 3", "return 4")
    assert selected(checkout)[0] == EVERYTHING


def commit_of_words(checkout: Path) -> None:
    with (checkout / "README.md").open("a") as file:
        file.write("more\n")
    commit(checkout, "words")


def test_the_settings_affect_everything(checkout: Path) -> None:
    with (checkout / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    found, reason = selected(checkout)
    assert (found, reason.startswith("pyproject.toml changed since")) == (EVERYTHING - {"toy-squares"}, True)
    assert in_process(open_project(checkout)).in_diff == frozenset()


def test_a_catalogue_file_selects_its_own_claims(checkout: Path) -> None:
    with (checkout / "toyproject/catalogue/nulls.toml").open("a") as file:
        file.write("# changed\n")
    assert selected(checkout)[0] == {"NULL-TOY"}


def test_evidence_in_the_diff_is_measured(checkout: Path) -> None:
    """TOY-04 without its only symptom's text: consistent in itself, with a digest that fits."""
    path = checkout / "reports/evidence/TOY-04.json"
    forged = path.read_text().replace('"mean of 1 and 2"', '"mean of 1 and 3"')
    path.write_text(_sealed_again(forged))
    assert to_json(load_file(path)) == path.read_text()
    assert answer(checkout, "report").returncode == 0
    code, said = gate(checkout)
    assert (code, "TOY-04" in said, "measured 1 of 6" in said) == (1, True, True)
    commit(checkout, "forged")
    code, said = gate(checkout)
    assert (code, "TOY-04" in said, "measured 1 of 6" in said) == (1, True, True)


def _sealed_again(text: str) -> str:
    content = json.loads(text)
    del content["digest"]
    return sealed(content)


def test_a_lock_file_that_is_made_to_fit_does_not_hide_a_change(checkout: Path) -> None:
    """An update after a bug writes digests that fit; the base commit has those from before."""
    replace(checkout / "toyproject/target.py", CLIP, "return min(value, high)")
    answer(checkout, "audit", "--update", "--jobs", "1")
    assert {"TOY-02", "TOY-03"} <= selected(checkout)[0]
    commit(checkout, "a bug with its digests")
    code, said = gate(checkout)
    assert (code, "TOY-02" in said) == (1, True)


def test_a_base_without_a_lock_file_measures_everything(checkout: Path) -> None:
    git(checkout, "rm", "--quiet", "reports/digests.json")
    commit(checkout, "no lock file")
    commit_of_words(checkout)
    found, reason = selected(checkout)
    assert (found, "has no digests.json" in reason) == (EVERYTHING, True)


def without(parts: list[str]) -> Callable[[dict[str, Any]], None]:
    """Removes an entry of the lock file, by the keys that lead to it."""

    def edit(content: dict[str, Any]) -> None:
        for key in parts[:-1]:
            content = content[key]
        del content[parts[-1]]

    return edit


def edit_lock(checkout: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    path = checkout / "reports/digests.json"
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("entry", "lost"),
    [
        (["executed", "toyproject.target"], "toyproject.target:Average.add"),
        (["claims", "TOY-05", "files"], "file toyproject/limits.txt"),
    ],
    ids=["functions", "files"],
)
def test_what_is_dropped_from_the_lock_file_is_missed_while_that_is_in_the_diff(
    checkout: Path, entry: list[str], lost: str
) -> None:
    """Afterwards a change of it would select nothing."""
    read_a_file(checkout)
    edit_lock(checkout, without(entry))
    for command in (gate, full_gate):
        code, said = command(checkout)
        assert (code, "digests.json: does not list " in said, lost in said) == (1, True, True), said


def full_gate(checkout: Path) -> tuple[int, str]:
    done = answer(checkout, "gate", "--jobs", "1")
    return done.returncode, done.stdout + done.stderr


def test_a_plot_that_is_dropped_from_the_lock_file_is_missed_too(checkout: Path) -> None:
    def drop(content: dict[str, Any]) -> None:
        for groups in content["executed"].values():
            for group in groups:
                group.pop("plots", None)

    edit_lock(checkout, drop)
    code, said = gate(checkout)
    assert (code, "which runs of toy-squares executed or read" in said) == (1, True), said


def test_the_digests_of_a_bug_that_is_still_to_come_do_not_hide_it(checkout: Path) -> None:
    """Sources are compared as well, so the lock file can have any digest."""
    target = checkout / "toyproject/target.py"
    healthy = target.read_text()
    replace(target, CLIP, "return min(value, high)")
    with fresh_projects():
        code = CurrentCode(open_project(checkout))
        found = {part: code.digest(f"toyproject.target:{part}") for part in ("clip", "Average.add")}
    target.write_text(healthy)
    edit_lock(checkout, lambda content: content["code"]["toyproject.target"].update(found))
    commit(checkout, "digests to come")
    replace(target, CLIP, "return min(value, high)")
    commit(checkout, "bug")
    assert selected(checkout)[0] == {"TOY-02", "TOY-03"}


def test_a_lock_file_that_is_deleted_fails_the_gate(checkout: Path) -> None:
    (checkout / "reports/digests.json").unlink()
    code, said = full_gate(checkout)
    assert (code, "digests.json: does not say what NULL-TOY, TOY-01, TOY-02 and 3 more executed" in said) == (1, True)


def test_a_file_that_an_import_reads_selects_all(checkout: Path) -> None:
    (checkout / "toyproject/limits.txt").write_text("3")
    with (checkout / "toyproject/target.py").open("a") as file:
        file.write("\n\nLIMIT = int((__import__('pathlib').Path(__file__).parent / 'limits.txt').read_text())\n")
    assert answer(checkout, "audit", "--update", "--jobs", "1").returncode == 0
    commit(checkout, "a file that an import reads")
    commit_of_words(checkout)
    assert selected(checkout)[0] == set()
    (checkout / "toyproject/limits.txt").write_text("4")
    assert selected(checkout)[0] == EVERYTHING


def test_a_module_of_the_project_outside_its_packages_selects_all_that_import_it(checkout: Path) -> None:
    (checkout / "tools").mkdir()
    (checkout / "tools/limits.py").write_text("LIMIT = 3\n")
    with (checkout / "toyproject/target.py").open("a") as file:
        file.write("\n\nfrom tools.limits import LIMIT\n")
    assert answer(checkout, "audit", "--update", "--jobs", "1").returncode == 0
    commit(checkout, "a module elsewhere")
    commit_of_words(checkout)
    assert selected(checkout)[0] == set()
    (checkout / "tools/limits.py").write_text("LIMIT = 4\n")
    assert selected(checkout)[0] == EVERYTHING


@pytest.mark.parametrize("name", ["json.py", "json/__init__.py", "toyproject/target/__init__.py"])
def test_a_new_module_that_may_stand_in_place_of_another_selects_all(checkout: Path, name: str) -> None:
    path = checkout / name
    path.parent.mkdir(exist_ok=True)
    path.write_text((checkout / "toyproject/target.py").read_text().replace(CLIP, "return min(value, high)"))
    assert selected(checkout)[0] - {"toy-squares"} == EVERYTHING - {"toy-squares"}


def test_a_process_that_a_run_starts_may_execute_any_module_under_test(checkout: Path) -> None:
    (checkout / "toyproject/child.py").write_text("def double():\n    return 2\n")
    child = "__import__('subprocess').run([__import__('sys').executable, '-c', 'import toyproject.child'])"
    replace(checkout / "toyproject/probes/arithmetic.py", "average.add(seed)", f"average.add(seed) or {child}")
    assert answer(checkout, "audit", "--update", "--jobs", "1").returncode == 0
    commit(checkout, "a child")
    commit_of_words(checkout)
    replace(checkout / "toyproject/child.py", "return 2", "return 3")
    assert selected(checkout)[0] == {"NULL-TOY", "TOY-05"}


@pytest.mark.parametrize("revision", ["HEAD..HEAD", "HEAD...HEAD", "HEAD^!", "HEAD:toyproject", "no-such-branch"])
def test_what_names_no_single_commit_measures_everything(checkout: Path, revision: str) -> None:
    found, reason = selected(checkout, revision)
    assert (found, reason) == (EVERYTHING, f"Git knows no commit {revision!r}; correct --base, or fetch the history")


def test_a_base_that_does_not_exist_is_told_by_the_full_gate_too(checkout: Path) -> None:
    told = "to measure: all claims: Git knows no commit 'no-such-branch'"
    for base, is_told in (("no-such-branch", True), ("HEAD", False)):
        done = answer(checkout, "gate", "--jobs", "1", "--base", base)
        assert (done.returncode, told in done.stderr) == (0, is_told)


def test_without_git_everything_is_measured_and_the_gate_says_why(checkout: Path) -> None:
    shutil.rmtree(checkout / ".git")
    code, said = gate(checkout)
    assert (code, "to measure: all claims: Git does not tell what changed" in said) == (0, True)


def test_a_first_commit_has_no_base_and_everything_is_measured(checkout: Path) -> None:
    shutil.rmtree(checkout / ".git")
    git(checkout, "init", "--quiet", "--initial-branch", "main")
    commit(checkout, "first")
    found, reason = selected(checkout)
    assert (found, reason.partition(",")[0]) == (EVERYTHING, "HEAD is the first commit")


def test_changes_that_git_does_not_see_are_seen(checkout: Path) -> None:
    """Code is compared with the lock file, whatever Git is told."""
    git(checkout, "update-index", "--assume-unchanged", "toyproject/target.py")
    replace(checkout / "toyproject/target.py", CLIP, "return min(value, high)")
    assert selected(checkout)[0] == {"TOY-02", "TOY-03"}


def test_code_outside_the_checkout_is_compared_too(checkout: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    shutil.move(checkout / "toyproject", outside / "toyproject")
    write_settings(checkout, "toyproject", pythonpath=[str(outside)])
    assert answer(checkout, "audit", "--update", "--jobs", "1").returncode == 0
    commit(checkout, "code elsewhere")
    commit_of_words(checkout)
    assert selected(checkout)[0] == set()
    replace(outside / "toyproject/target.py", CLIP, "return min(value, high)")
    assert selected(checkout)[0] == {"TOY-02", "TOY-03"}


def test_another_repository_in_the_environment_is_not_asked(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(ROOT / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(ROOT))
    replace(checkout / "toyproject/target.py", CLIP, "return min(value, high)")
    found, reason = selected(checkout)
    assert (found, git_free(reason)) == ({"TOY-02", "TOY-03"}, "those of which a run executed what changed since")


def git_free(reason: str) -> str:
    return reason.rpartition(" ")[0]


def test_deleted_evidence_is_measured_again(checkout: Path) -> None:
    (checkout / "reports/evidence/TOY-02.json").unlink()
    code, said = gate(checkout)
    assert (code, "TOY-02: has no committed evidence" in said, "measured 1 of 6" in said) == (1, True, True)


def test_a_plot_may_plant_a_fault_by_name(checkout: Path) -> None:
    """It is measured in a process of its own, in which no claim has asked for the faults before."""
    plots = checkout / "toyproject/plots/squares.py"
    replace(plots, "import Line, Plot, plot", "import Line, Plot, get_fault, plant, plot")
    replace(plots, "    positions =", '    with plant(get_fault("clip-one-sided")):\n        pass\n    positions =')
    code, text = gate(checkout)
    assert code == 0, text


def test_a_new_library_version_selects_everything(checkout: Path) -> None:
    path = checkout / "reports/digests.json"
    text = path.read_text()
    assert '"rlverify.verdicts"' in text
    start = text.index('"rlverify.verdicts": "') + len('"rlverify.verdicts": "')
    path.write_text(text[:start] + "0" * 16 + text[start + 16 :])
    commit(checkout, "other statistics")
    commit_of_words(checkout)
    assert selected(checkout)[0] == EVERYTHING


def test_the_base_is_the_merge_base_or_the_commit_before_head(checkout: Path) -> None:
    project = open_project(checkout)
    first, second = git(checkout, "rev-parse", "HEAD~1"), git(checkout, "rev-parse", "HEAD")
    assert find_base(project, None).commit == find_base(project, "").commit == first
    git(checkout, "checkout", "--quiet", "-b", "topic")
    commit_of_words(checkout)
    commit_of_words(checkout)
    assert find_base(project, None).commit == second
    assert find_base(project, "HEAD").commit == git(checkout, "rev-parse", "HEAD")
    with pytest.raises(
        UnknownChangesError, match="Git knows no commit 'nothing'; correct --base, or fetch the history"
    ):
        find_base(project, "nothing")


def test_the_target_of_a_pull_request_is_the_branch_to_compare_with(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(checkout, "update-ref", "refs/remotes/origin/release", "HEAD~1")
    git(checkout, "update-ref", "refs/remotes/origin/main", "HEAD")
    git(checkout, "checkout", "--quiet", "-b", "topic")
    commit_of_words(checkout)
    monkeypatch.setenv("GITHUB_BASE_REF", "release")
    assert find_base(open_project(checkout), None).commit == git(checkout, "rev-parse", "origin/release")


def test_a_name_that_is_no_text_is_told_with_its_bytes(checkout: Path) -> None:
    (Path(os.fsdecode(os.fsencode(checkout) + b"/\xff.txt"))).write_text("")
    assert selected(checkout)[0] == set()
    nested = Path(os.fsdecode(os.fsencode(checkout) + b"/\xff"))
    nested.mkdir()
    for name in ("toyproject", "reports", "pyproject.toml", "tests"):
        (checkout / name).rename(nested / name)
    base = commit(checkout, "nested")
    commit_of_words(checkout)
    replace(nested / "pyproject.toml", 'content = "toyproject"', 'content =  "toyproject"')
    assert selected(nested) == (EVERYTHING - {"toy-squares"}, f"\\xff/pyproject.toml changed since {base[:10]}")


def test_a_project_in_a_folder_of_a_larger_checkout(checkout: Path) -> None:
    nested = checkout / "nested"
    nested.mkdir()
    for name in ("toyproject", "reports", "pyproject.toml", "tests"):
        git(checkout, "mv", name, f"nested/{name}")
    commit(checkout, "nested")
    commit_of_words(checkout)
    assert selected(nested)[0] == set()
    replace(nested / "toyproject/target.py", CLIP, "return min(value, high)")
    assert selected(nested)[0] == {"TOY-02", "TOY-03"}


def test_the_selection_says_what_changed_for_each_claim(checkout: Path) -> None:
    replace(checkout / "toyproject/probes/arithmetic.py", "average.add(seed)", "average.add(2 * seed)")
    found = in_process(open_project(checkout))
    assert found.changed["TOY-05"] == ("toyproject.probes.arithmetic:count",)
    assert found.changed["TOY-02"] == ()


def in_process(project: Project) -> Selection:
    """The selection in this process, which may have imported another copy of the toy project: sources are read."""
    return select(project, project.paths, None)
