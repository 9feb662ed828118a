"""What the README shows is what the program does."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

from rlverify.cli.app import PLACES, app, run
from rlverify.project.catalogue_entries import ClaimEntry
from rlverify.project.content import open_project
from rlverify.project.planting import plant
from rlverify.records.claims import FixGrade, Verdict
from rlverify.records.problems import AS_EXPECTED, CLAIM_FELL, HARNESS_FAILED, INTERRUPTED
from tests.engine.in_process import rlverify_here

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str, mark: str = "") -> list[str]:
    """The fenced blocks of a language, those alone that follow a mark if one is given."""
    return re.findall(rf"{re.escape(mark)}\n```{language}\n(.*?)```", README, re.DOTALL)


def named_files() -> list[str]:
    """The files and folders that the README names as code."""
    return re.findall(r"`([\w./]+/[\w./]*|[\w]+\.(?:txt|md|toml))`", README)


def rlverify(*arguments: str, folder: Path) -> str:
    done = rlverify_here(*arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_output_shown_is_the_output_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    ((command, shown),) = re.findall(r"<!-- output: rlverify (.*?) -->\n```console\n(.*?)```", README, re.DOTALL)
    first, _, output = shown.partition("\n")
    assert first == f"$ .venv/bin/rlverify {command}"
    assert run(["--project", str(ROOT), *command.split()]) == 0
    assert output == capsys.readouterr().out


def test_every_python_example_runs_by_itself(tmp_path: Path) -> None:
    """In their order, as the last one loads the model that another saves; each with names of its own."""
    examples = blocks("python", "<!-- runs -->")
    assert len(examples) == 4
    (block,) = set(re.findall(r"`(with plant\(.*?\):)`", README))
    ends = (
        f"{block}\n    print(get_fault)",
        "print(model.num_timesteps)",
        'print(newest_exact("saved"))',
        "print(done)",
    )
    programs = [f"{example}\n{end}\n" for example, end in zip(examples, ends, strict=True)]
    code = f"for program in {programs!r}:\n    exec(program, {{'__name__': '__main__'}})\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-3:] == ["2048", str(Path("saved", "exact_60.zip")), "True"]


@pytest.mark.slow
def test_the_suite_shown_runs_in_check_and_in_gate(tmp_path: Path) -> None:
    (suite,) = blocks("python", "<!-- verify.py -->")
    (tmp_path / "verify.py").write_text(suite, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text('[tool.rlverify]\nsuites = ["verify:suite"]\n', encoding="utf-8")
    for arguments in (["check", "verify:suite"], ["gate"]):
        command = [sys.executable, "-m", "rlverify.cli.entry", *arguments, "--json", "-"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        (subject,) = json.loads(done.stdout)["subjects"]
        assert {each["check"]: each["status"] for each in subject["checks"]} == {
            "resume": "fail",
            "save_load": "pass",
            "average_is_positive": "pass",
            "set_parameters_copies": "fail",
            "PPO-01": "pass",
        }


def test_the_claim_shown_is_complete() -> None:
    shown = blocks("toml")[0]
    (entry,) = tomllib.loads(shown)["claim"]
    assert ClaimEntry.model_validate(entry).id == "BUG-1"
    assert all(field in entry for field, each in ClaimEntry.model_fields.items() if each.is_required())


def test_the_figure_shown_is_measured_in_a_new_project(tmp_path: Path) -> None:
    rlverify("init", folder=tmp_path)
    for language in ("python", "toml"):
        ((name, text),) = re.findall(rf"<!-- (audit/\S+) -->\n```{language}\n(.*?)```", README, re.DOTALL)
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    planned = re.sub(" +", " ", rlverify("pilot", "FIG-1", folder=tmp_path))
    shown = tomllib.loads(blocks("toml")[1])["claim"][0]["figure"]
    assert f"power {shown['power']:.2f} in the {shown['runs']} runs" in planned
    assert "pilot 8 seeds (1000..1007)" in planned
    rlverify("audit", "--level", "full", "--update", folder=tmp_path)
    rlverify("matrix", "--update", folder=tmp_path)
    rlverify("gate", folder=tmp_path)


def test_the_fault_shown_is_five_lines_and_can_be_planted() -> None:
    project = open_project(ROOT)
    example = blocks("python", "<!-- runs -->")[0]
    assert len([line for line in example.splitlines() if line]) == 5
    fault = project.fault("bug-05-fixed-in-upgd-only")
    assert f'pins="{fault.pins}"' in example
    with plant(fault):
        pass


def test_every_verdict_and_grade_is_explained() -> None:
    for word in [*Verdict, *FixGrade]:
        assert word.value in README


def test_the_exit_codes_are_those_of_the_program() -> None:
    table = dict(re.findall(r"^\| (\d+) \| (.*?) \|$", README, re.MULTILINE))
    assert set(table) == {str(code) for code in (AS_EXPECTED, CLAIM_FELL, HARNESS_FAILED, INTERRUPTED)}
    assert "a claim fell" in table[str(CLAIM_FELL)]
    assert "the harness failed" in table[str(HARNESS_FAILED)]


def test_every_command_is_listed_and_every_listed_command_exists() -> None:
    listed = set(re.findall(r"^\| `rlverify ([\w-]+)", README, re.MULTILINE))
    assert listed == set(PLACES)


def test_every_command_shown_exists_with_its_options() -> None:
    known = get_command(app).commands  # type: ignore[attr-defined]
    shown = [
        shlex.split(line, comments=True)
        for line in re.findall(r"^\$ (?:\.venv/bin/)?rlverify (.*)$", README, re.MULTILINE)
    ]
    assert {words[0] for words in shown} >= {"reproduce", "init", "new", "gate", "list"}
    for name, *arguments in shown:
        assert known[name].make_context(name, arguments).args == []


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = set(re.findall(r"(?:`|\$ )make ([\w-]+)", README))
    assert {"audit", "test"} <= shown <= targets


def test_every_file_named_exists() -> None:
    """But for folders that Git ignores, which a fresh checkout does not have, and those of the example project."""
    ignored = [line for line in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines() if line.endswith("/")]
    assert {".venv/", ".hypothesis/"} <= set(ignored)
    for name in named_files():
        if not name.startswith((*ignored, "audit/")):
            assert (ROOT / name).exists(), name


def test_every_module_named_of_a_package_is_in_it() -> None:
    rows = re.findall(r"^\| `(\w+/\w+/)` \| (.*) \|$", README, re.M)
    assert len(rows) > 15
    for package, text in rows:
        for name in re.findall(r"`(\w+\.py)`", text):
            assert (ROOT / package / name).exists(), f"{package}{name}"


def test_every_file_named_of_a_new_project_is_written(tmp_path: Path) -> None:
    (tmp_path / "mypackage").mkdir()
    (tmp_path / "mypackage" / "__init__.py").touch()
    code = "class Class:\n    def method(self):\n        return 1\n"
    (tmp_path / "mypackage" / "module.py").write_text(code, encoding="utf-8")
    for shown in ("rlverify init", "rlverify new BUG-1 --target mypackage.module:Class.method"):
        assert f"$ {shown}\n" in README
        rlverify(*shown.split()[1:], folder=tmp_path)
    names = [name for name in named_files() if name.startswith("audit/")]
    assert len(names) > 1
    for name in names:
        assert (tmp_path / name).exists(), name
