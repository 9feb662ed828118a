"""A first claim: `rlverify init` and `rlverify new`, as a new user would type them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from tests.engine.in_process import rlverify_here

Invoke = Callable[..., "subprocess.CompletedProcess[str]"]

STATS = "def mean(values, weight=1.0, *, start=0.0):\n    return (start + weight * sum(values)) / len(values)\n"


def assert_is_skeleton(project: Path, claim_id: str) -> None:
    """Its fault can be planted, and its probe says that it is not written yet."""
    runs = json.loads(rlverify_here("reproduce", claim_id, "--json", cwd=project).stdout)["runs"]
    assert ["is still the skeleton" in run["error"] for run in runs] == [True, True]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a package in ``src``, in a path with a space and a letter that is not ASCII."""
    root = tmp_path / "my träining code"
    (root / "src" / "mylib").mkdir(parents=True)
    (root / "src" / "mylib" / "__init__.py").touch()
    (root / "src" / "mylib" / "stats.py").write_text(STATS, encoding="utf-8")
    return root


@pytest.fixture
def started(repository: Path) -> Path:
    """The same after ``rlverify init``."""
    done = rlverify_here("init", cwd=repository)
    assert (done.returncode, done.stderr) == (0, "")
    return repository


def tree(root: Path) -> dict[str, bytes]:
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and path.parent.name != "__pycache__")
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def test_the_worked_example_is_measured_audited_and_gated(started: Path) -> None:
    first = rlverify_here("reproduce", "EXAMPLE-1", cwd=started)
    assert first.returncode == 0, first.stderr
    assert "verdict: CONFIRMED (expected CONFIRMED)" in first.stdout
    for command in (["audit", "--update"], ["matrix", "--update"], ["gate"], ["report", "--check"]):
        done = rlverify_here(*command, cwd=started)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    matrix = json.loads((started / "reports" / "matrix.json").read_text(encoding="utf-8"))
    (row,) = matrix["rows"]
    assert (row["fate"], row["killers"]) == ("killed", row["plan"]["checks"])
    assert (started / ".rlverify" / ".gitignore").read_text(encoding="utf-8") == "*\n"


@pytest.mark.parametrize(
    ("origin", "installed"),
    [
        ("", "rlverify==1.2.3"),
        ('{"url": "file:///home/me/rlverify", "dir_info": {}}', "rlverify==1.2.3"),
        (
            '{"url": "https://example.org/rlverify.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}}',
            "rlverify @ git+https://example.org/rlverify.git@c0ffee",
        ),
    ],
    ids=["release", "folder", "commit"],
)
def test_the_workflow_installs_what_is_installed_here(
    origin: str, installed: str, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "rlverify-1.2.3.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.4\nName: rlverify\nVersion: 1.2.3\n", encoding="utf-8")
    if origin:
        (folder / "direct_url.json").write_text(origin, encoding="utf-8")
    monkeypatch.setattr("rlverify.cli.start_commands.distribution", lambda _: Distribution.at(folder))
    done = rlverify_here("init", cwd=repository)
    doubt = (
        ""
        if " @ " in installed
        else ", which your package index must have; else write where yours comes from: rlverify @ git+URL"
    )
    assert f"the workflow installs {installed}{doubt}\n" in done.stdout
    workflow = (repository / ".github" / "workflows" / "rlverify.yml").read_text(encoding="utf-8")
    assert f'- run: pip install pytest "{installed}"\n' in workflow


def test_a_package_at_the_top_is_under_test_and_tests_are_not(tmp_path: Path) -> None:
    for name in ("mine", "tests", "docs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    assert rlverify_here("init", cwd=tmp_path).returncode == 0
    assert 'under_test = ["mine"]' in (tmp_path / "pyproject.toml").read_text(encoding="utf-8")


def test_an_empty_folder_verifies_its_example(tmp_path: Path) -> None:
    assert rlverify_here("init", tmp_path / "new", "--content", "checks").returncode == 0
    done = rlverify_here("--project", tmp_path / "new", "audit", "--update")
    assert done.returncode == 0, done.stderr
    assert "1 of 1 claims as expected" in done.stdout


def test_settings_are_added_to_a_pyproject_that_is_there(repository: Path) -> None:
    before = '[project]\nname = "mylib"\n'
    (repository / "pyproject.toml").write_text(before, encoding="utf-8")
    assert rlverify_here("init", cwd=repository).returncode == 0
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
    prepare: Callable[[Path], object], told: str, repository: Path
) -> None:
    prepare(repository)
    before = tree(repository)
    done = rlverify_here("init", cwd=repository)
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert tree(repository) == before


def test_a_first_claim_from_a_skeleton_to_confirmed(started: Path) -> None:
    done = rlverify_here("new", "bug-1", "--target", "mylib.stats:mean", cwd=started)
    assert done.returncode == 0, done.stderr
    fault, probe = started / "audit" / "faults" / "bug_1.py", started / "audit" / "probes" / "bug_1.py"
    text = fault.read_text(encoding="utf-8")
    assert "def bug_1(values, weight=1.0, *, start=0.0):" in text
    assert 'return healthy("bug-1")(values, weight, start=start)' in text
    untouched = rlverify_here("reproduce", "BUG-1", cwd=started)
    assert "verdict: ERROR (expected CONFIRMED)" in untouched.stdout
    assert "is still the skeleton" in untouched.stdout
    fault.write_text(text.replace("weight, start=start)", "0.5, start=start)"), encoding="utf-8")
    lines = probe.read_text(encoding="utf-8").replace('"what it should be"', "2.0")
    probe.write_text(lines.replace('"call mylib.stats here"', "mylib.stats.mean([1.0, 3.0])"), encoding="utf-8")
    done = rlverify_here("reproduce", "BUG-1", cwd=started)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("BUG-1: The bug in a few words (seed 0)")
    assert "verdict: CONFIRMED (expected CONFIRMED)" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["EXAMPLE-1", "--target", "mylib.stats:mean"], "there is a claim EXAMPLE-1 already"),
        (["BUG 1", "--target", "mylib.stats:mean"], "'BUG 1' cannot be an id"),
        (["BUG-1", "--target", "mylib.stats"], "cannot be found"),
        (["BUG-1", "--target", "mylib.stats:nothing"], "nothing"),
        (["BUG-1", "--target", "mylib.nothing:mean"], "No module named 'mylib.nothing'"),
        (["BUG-1", "--target", "json:dumps"], "json is not under test; add it to under_test in"),
    ],
)
def test_new_changes_nothing_where_it_cannot(arguments: list[str], told: str, started: Path) -> None:
    before = tree(started)
    done = rlverify_here("new", *arguments, cwd=started)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert told in " ".join(done.stderr.split())
    assert tree(started) == before


@pytest.mark.parametrize(
    ("code", "signature", "call"),
    [
        ("NOTHING = object()\ndef f(x, default=NOTHING): pass\n", "def bug_2(*args, **kwargs):", "(*args, **kwargs)"),
        ('def f(x, least=float("-inf")): pass\n', "def bug_2(*args, **kwargs):", "(*args, **kwargs)"),
        ("async def f(url):\n    return url\n", "async def bug_2(url):", "(url)"),
    ],
    ids=["object", "not finite", "async"],
)
def test_a_skeleton_takes_what_its_target_takes(code: str, signature: str, call: str, started: Path) -> None:
    """A default that cannot be written is handed on."""
    (started / "src" / "mylib" / "stats.py").write_text(code, encoding="utf-8")
    assert rlverify_here("new", "BUG-2", "--target", "mylib.stats:f", cwd=started).returncode == 0
    text = (started / "audit" / "faults" / "bug_2.py").read_text(encoding="utf-8")
    assert signature in text
    assert f'return {"await " * code.startswith("async")}healthy("bug-2"){call}' in text
    assert_is_skeleton(started, "BUG-2")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("my-audit", "'my-audit' cannot be the name of a package"),
        ("json", "'json' is a package or module that is installed"),
    ],
)
def test_init_refuses_names_that_cannot_work(name: str, told: str, repository: Path) -> None:
    before = tree(repository)
    done = rlverify_here("init", "--content", name, cwd=repository)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert told in " ".join(done.stderr.split())
    assert tree(repository) == before


def test_outside_a_project_one_line_says_what_to_do(tmp_path: Path) -> None:
    done = rlverify_here("list", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("rlverify: settings ")
    assert "run `rlverify init` here, or name the project's folder with --project" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_tests_of_the_example_pass_without_rlverify(started: Path) -> None:
    command = [str(Path(sys.executable).with_name("pytest")), "-q", "-p", "no:rlverify", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=started, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


@pytest.mark.parametrize("claim_id", ["LAMBDA", "MAKE"])
def test_an_id_that_cannot_name_a_module_gets_another_one(claim_id: str, started: Path) -> None:
    assert rlverify_here("new", claim_id, "--target", "mylib.stats:mean", cwd=started).returncode == 0
    assert (started / "audit" / "faults" / f"{claim_id.lower()}_.py").is_file()
    assert_is_skeleton(started, claim_id)
    assert rlverify_here("reproduce", "EXAMPLE-1", cwd=started).returncode == 0


def test_the_gate_refuses_texts_of_the_skeleton(started: Path) -> None:
    assert rlverify_here("new", "BUG-1", "--target", "mylib.stats:mean", cwd=started).returncode == 0
    done = rlverify_here("gate", cwd=started)
    assert done.returncode != 0
    assert "BUG-1: its title is still 'The bug in a few words'; write it in the catalogue" in done.stdout
    assert "BUG-1: its statement is still 'What is claimed, in a sentence.'" in done.stdout


def test_init_takes_the_folder_of_the_option(tmp_path: Path) -> None:
    (tmp_path / "named").mkdir()
    (tmp_path / "here").mkdir()
    assert rlverify_here("--project", tmp_path / "named", "init", cwd=tmp_path / "here").returncode == 0
    assert (tmp_path / "named" / "pyproject.toml").is_file()
    assert [*(tmp_path / "here").iterdir()] == []


def test_settings_of_pytest_that_are_there_are_left_alone(repository: Path) -> None:
    (repository / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '-q'\n", encoding="utf-8")
    done = rlverify_here("init", cwd=repository)
    assert 'pytest must find the package audit: add "." to the pythonpath of its settings' in done.stdout
    assert (repository / "pyproject.toml").read_text(encoding="utf-8").count("[tool.pytest") == 1


def test_a_change_in_what_the_probe_calls_is_noticed_of_a_minimal_claim(started: Path) -> None:
    """The claim names no modules, the fault is in one module, and the probe calls another, by a relative import."""
    package = started / "src" / "mylib"
    (package / "trainer.py").write_text(
        "from .step import half\n\n\ndef train():\n    return half(4)\n", encoding="utf-8"
    )
    (package / "step.py").write_text("def half(value):\n    return value / 2\n", encoding="utf-8")
    assert rlverify_here("new", "BUG-1", "--target", "mylib.stats:mean", cwd=started).returncode == 0
    probe = started / "audit" / "probes" / "bug_1.py"
    text = probe.read_text(encoding="utf-8").replace(
        "import mylib.stats", "import mylib.stats\nfrom mylib import trainer"
    )
    text = text.replace('"what it should be"', "4.0")
    probe.write_text(
        text.replace('"call mylib.stats here"', "mylib.stats.mean([1, 3]) + trainer.train()"), encoding="utf-8"
    )
    fault = started / "audit" / "faults" / "bug_1.py"
    fault.write_text(fault.read_text(encoding="utf-8").replace("start=start)", "start=9.0)"), encoding="utf-8")
    done = rlverify_here("audit", "--update", cwd=started)
    assert "2 of 2 claims as expected" in done.stdout, done.stdout + done.stderr
    before = {path: path.read_bytes() for path in (started / "reports").rglob("*.*")}
    step = package / "step.py"
    step.write_text("def half(value):\n    result = value / 2  # in steps\n    return result\n", encoding="utf-8")
    rlverify_here("audit", "--update", cwd=started)
    assert {path: path.read_bytes() for path in before} == before
    step.write_text("def half(value):\n    return value / 2 + 1\n", encoding="utf-8")
    content = json.loads(rlverify_here("audit", "--json", cwd=started).stdout)
    assert (content["exit_code"], [each["subject"] for each in content["problems"]]) == (1, ["BUG-1"])


def test_what_a_project_prints_goes_to_stderr(started: Path) -> None:
    for part in ("probes/make", "pages/own", "plots/own"):
        (started / "audit" / part).parent.mkdir(exist_ok=True)
    (started / "audit" / "probes" / "make.py").write_text("class Make:\n    pass\n", encoding="utf-8")
    (started / "audit" / "pages" / "own.py").touch()
    (started / "audit" / "plots" / "own.py").touch()
    probe = started / "audit" / "probes" / "example.py"
    text = probe.read_text(encoding="utf-8")
    probe.write_text(text.replace("(seed: int)", "(make, seed: int)"), encoding="utf-8")
    parts = ("example", "faults/example", "probes/make", "probes/example", "pages/own", "plots/own")
    for part in parts:
        path = started / "audit" / f"{part}.py"
        path.write_text(f"{path.read_text(encoding='utf-8')}\nprint('imported {part}')\n", encoding="utf-8")
    done = rlverify_here("audit", "--update", "--json", cwd=started)
    assert json.loads(done.stdout)["exit_code"] == 0, done.stdout
    assert {f"imported {part}" for part in parts} <= set(done.stderr.splitlines())


def test_what_processes_print_that_a_probe_or_an_import_starts_is_on_stderr(
    started: Path, rlverify_process: Invoke
) -> None:
    path = started / "audit" / "probes" / "example.py"
    text = path.read_text(encoding="utf-8")
    text = text.replace("from rlverify", 'import os\n\nos.system("echo imported")\n\nfrom rlverify', 1)
    path.write_text(text.replace("    returns =", '    os.system("echo measured")\n    returns =', 1), encoding="utf-8")
    for command in (["reproduce", "EXAMPLE-1", "--json"], ["gate", "--json", "-"]):
        done = rlverify_process(*command, cwd=str(started))
        assert json.loads(done.stdout)["schema_version"] == 1
        assert {"imported", "measured"} <= {*done.stderr.splitlines()}


HEAD = "def returns_stop_at_the_end_of_an_episode(seed: int) -> list[Observation]:\n"
MISTAKES = {
    "a wrong result": (HEAD, f"{HEAD}    return 3\n", "returned 3; return a list of Observation", 10),
    "no seed": (HEAD, HEAD.replace("seed: int", ""), "takes 0 positional arguments but 1 was given", 10),
    "an unknown fault": (
        HEAD,
        f"{HEAD}    import rlverify\n    rlverify.get_fault('example')\n",
        "no fault named 'example' is registered",
        13,
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_in_a_probe_has_the_place_of_the_probe(case: str, started: Path) -> None:
    old, new, words, line = MISTAKES[case]
    path = started / "audit" / "probes" / "example.py"
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    done = rlverify_here("reproduce", "EXAMPLE-1", cwd=started)
    assert done.returncode == 2
    assert words in done.stdout
    assert f"(probes/example.py:{line})" in done.stdout


def test_a_mistake_in_a_fault_has_the_place_of_the_fault(started: Path) -> None:
    path = started / "audit" / "faults" / "example.py"
    path.write_text(re.sub(r"def (\w+)\(.*\)", r"def \1(rewards)", path.read_text(encoding="utf-8")), encoding="utf-8")
    done = rlverify_here("reproduce", "EXAMPLE-1", cwd=started)
    assert done.returncode == 2
    assert re.search(
        r"fault example-1 takes \(rewards\), but its target takes .* \(faults/example\.py:\d+\)", done.stdout
    )


def test_a_target_that_does_not_exist_is_suggested(started: Path) -> None:
    path = started / "audit" / "faults" / "example.py"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(":discounted_returns", ":discounted_return"), encoding="utf-8")
    done = rlverify_here("reproduce", "EXAMPLE-1", cwd=started)
    assert "audit.example has no member 'discounted_return'; did you mean 'discounted_returns'?" in done.stdout
