"""A first claim: `rlverify init` and `rlverify new`, as a new user would type them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Invoke = Callable[..., "subprocess.CompletedProcess[str]"]

STATS = "def mean(values, weight=1.0, *, start=0.0):\n    return (start + weight * sum(values)) / len(values)\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a package in ``src``, in a path with a space and a letter that is not ASCII."""
    root = tmp_path / "my träining code"
    (root / "src" / "mylib").mkdir(parents=True)
    (root / "src" / "mylib" / "__init__.py").touch()
    (root / "src" / "mylib" / "stats.py").write_text(STATS, encoding="utf-8")
    return root


@pytest.fixture
def started(repository: Path, rlverify: Invoke) -> Path:
    """The same after ``rlverify init``."""
    done = rlverify("init", cwd=str(repository))
    assert (done.returncode, done.stderr) == (0, "")
    return repository


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_the_worked_example_is_measured_audited_and_gated(started: Path, rlverify: Invoke) -> None:
    first = rlverify("reproduce", "EXAMPLE-1", cwd=str(started))
    assert first.returncode == 0, first.stderr
    assert "verdict: CONFIRMED (expected CONFIRMED)" in first.stdout
    for command in (["audit", "--update"], ["matrix", "--update"], ["gate"], ["report", "--check"]):
        done = rlverify(*command, cwd=str(started))
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    matrix = json.loads((started / "reports" / "matrix.json").read_text(encoding="utf-8"))
    (row,) = matrix["rows"]
    assert (row["fate"], row["killers"]) == ("killed", row["plan"]["checks"])
    assert (started / ".rlverify" / ".gitignore").read_text(encoding="utf-8") == "*\n"


def test_the_package_in_src_is_under_test(started: Path) -> None:
    assert 'under_test = ["mylib"]' in (started / "pyproject.toml").read_text(encoding="utf-8")


def test_a_package_at_the_top_is_under_test_and_tests_are_not(tmp_path: Path, rlverify: Invoke) -> None:
    for name in ("mine", "tests", "docs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    assert rlverify("init", cwd=str(tmp_path)).returncode == 0
    assert 'under_test = ["mine"]' in (tmp_path / "pyproject.toml").read_text(encoding="utf-8")


def test_an_empty_folder_verifies_its_example(tmp_path: Path, rlverify: Invoke) -> None:
    assert rlverify("init", tmp_path / "new", "--content", "checks").returncode == 0
    done = rlverify("--project", tmp_path / "new", "audit", "--update")
    assert done.returncode == 0, done.stderr
    assert "1 of 1 claims as expected" in done.stdout


def test_settings_are_added_to_a_pyproject_that_is_there(repository: Path, rlverify: Invoke) -> None:
    before = '[project]\nname = "mylib"\n'
    (repository / "pyproject.toml").write_text(before, encoding="utf-8")
    assert rlverify("init", cwd=str(repository)).returncode == 0
    after = (repository / "pyproject.toml").read_text(encoding="utf-8")
    assert after.startswith(before)
    assert after.count("[tool.rlverify]") == 1


@pytest.mark.parametrize(
    ("prepare", "told"),
    [
        (lambda root: (root / "pyproject.toml").write_text("[tool.rlverify]\n"), "has settings already"),
        (lambda root: (root / "pyproject.toml").write_text("[tool"), "pyproject.toml: cannot be read"),
        (lambda root: (root / "audit").write_text("a file"), "audit"),
        (lambda root: ((root / "audit").mkdir(), (root / "audit/example.py").touch()), "audit/example.py: exists"),
    ],
    ids=["settings", "broken", "file", "example"],
)
def test_init_changes_nothing_where_something_is_in_its_way(
    prepare: Callable[[Path], object], told: str, repository: Path, rlverify: Invoke
) -> None:
    prepare(repository)
    before = tree(repository)
    done = rlverify("init", cwd=str(repository))
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert tree(repository) == before


def test_a_name_that_is_no_package_is_refused(repository: Path, rlverify: Invoke) -> None:
    done = rlverify("init", "--content", "my-audit", cwd=str(repository))
    assert done.returncode == 2
    assert "'my-audit' cannot be the name of a package" in done.stderr
    assert not (repository / "pyproject.toml").exists()


def test_a_first_claim_from_a_skeleton_to_confirmed(started: Path, rlverify: Invoke) -> None:
    done = rlverify("new", "bug-1", "--target", "mylib.stats:mean", "--title", 'The "mean"', cwd=str(started))
    assert done.returncode == 0, done.stderr
    fault, probe = started / "audit" / "faults" / "bug_1.py", started / "audit" / "probes" / "bug_1.py"
    text = fault.read_text(encoding="utf-8")
    assert "def bug_1(values, weight=1.0, *, start=0.0):" in text
    assert 'return healthy("bug-1")(values, weight, start=start)' in text
    untouched = rlverify("reproduce", "BUG-1", cwd=str(started))
    assert "verdict: UNREACHED (expected CONFIRMED)" in untouched.stdout
    fault.write_text(text.replace("weight, start=start)", "0.5, start=start)"), encoding="utf-8")
    lines = probe.read_text(encoding="utf-8").replace('"what it should be"', "2.0")
    probe.write_text(lines.replace('"call mylib.stats here"', "mylib.stats.mean([1.0, 3.0])"), encoding="utf-8")
    done = rlverify("reproduce", "BUG-1", cwd=str(started))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith('BUG-1: The "mean" (seed 0)')
    assert "verdict: CONFIRMED (expected CONFIRMED)" in done.stdout


def test_the_gate_asks_for_the_tests_of_a_new_claim(started: Path, rlverify: Invoke) -> None:
    assert rlverify("new", "BUG-1", "--target", "mylib.stats:mean", cwd=str(started)).returncode == 0
    done = rlverify("gate", "--json", cwd=str(started))
    told = {problem["subject"]: problem["sentence"] for problem in json.loads(done.stdout)["problems"]}
    assert "BUG-1" in told
    sentences = [p["sentence"] for p in json.loads(done.stdout)["problems"] if p["subject"] == "BUG-1"]
    assert any("no test is named that fails when bug-1 is planted" in sentence for sentence in sentences)


def test_a_test_that_does_not_exist_is_an_error(started: Path, rlverify: Invoke) -> None:
    path = started / "audit" / "catalogue" / "claims.toml"
    text = path.read_text(encoding="utf-8").replace("test_returns_stop_at", "test_returns_start_at")
    path.write_text(text, encoding="utf-8")
    assert rlverify("reproduce", "EXAMPLE-1", cwd=str(started)).returncode == 0
    done = rlverify("gate", cwd=str(started))
    assert done.returncode == 2
    assert "test_returns_start_at_the_end_of_an_episode" in done.stderr + done.stdout
    assert "is not a test" in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["EXAMPLE-1", "--target", "mylib.stats:mean"], "there is a claim EXAMPLE-1 already"),
        (["BUG 1", "--target", "mylib.stats:mean"], "'BUG 1' cannot be an id"),
        (["BUG-1", "--target", "mylib.stats"], "must read package.module:function"),
        (["BUG-1", "--target", "mylib.stats:nothing"], "nothing"),
        (["BUG-1", "--target", "mylib.nothing:mean"], "No module named 'mylib.nothing'"),
        (["BUG-1"], "--target"),
    ],
)
def test_new_changes_nothing_where_it_cannot(arguments: list[str], told: str, started: Path, rlverify: Invoke) -> None:
    before = tree(started)
    done = rlverify("new", *arguments, cwd=str(started))
    assert done.returncode == 2
    assert told in done.stderr
    assert tree(started) == before


def test_a_default_that_cannot_be_written_is_handed_on(started: Path, rlverify: Invoke) -> None:
    path = started / "src" / "mylib" / "stats.py"
    path.write_text(
        "NOTHING = object()\n\ndef pick(values, default=NOTHING):\n    return values[0]\n", encoding="utf-8"
    )
    assert rlverify("new", "BUG-2", "--target", "mylib.stats:pick", cwd=str(started)).returncode == 0
    text = (started / "audit" / "faults" / "bug_2.py").read_text(encoding="utf-8")
    assert "def bug_2(*args, **kwargs):" in text
    assert 'healthy("bug-2")(*args, **kwargs)' in text


def test_outside_a_project_one_line_says_what_to_do(tmp_path: Path, rlverify: Invoke) -> None:
    done = rlverify("list", cwd=str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith("rlverify: settings ")
    assert "run `rlverify init` here, or name the project's folder with --project" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_tests_of_the_example_pass_without_rlverify(started: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:rlverify", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(started)}
    done = subprocess.run(command, cwd=started, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
