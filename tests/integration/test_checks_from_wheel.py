"""The first screen of the README, from an empty folder: the wheel, five lines, and the records of PPO."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.wheel import ROOT, build_wheel, install_wheel

README = (ROOT / "README.md").read_text(encoding="utf-8")
HIDDEN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTEST", "COV_", "COVERAGE_")

pytestmark = pytest.mark.slow


def block(mark: str) -> str:
    ((text,),) = [re.findall(rf"<!-- {re.escape(mark)} -->\n```\w+\n(.*?)```", README, re.DOTALL)]
    return str(text)


def as_pattern(shown: str) -> str:
    """The pattern of an output that is shown with `...` in place of what is left out."""
    return ".*".join(re.escape(part) for part in shown.split("..."))


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of a fresh virtual environment with the wheel."""
    wheel = build_wheel(tmp_path_factory.mktemp("wheel"))
    return install_wheel(wheel, tmp_path_factory.mktemp("venv"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the five lines and nothing else."""
    (tmp_path / "test_training.py").write_text(block("test_training.py"), encoding="utf-8")
    return tmp_path


def run(commands: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(HIDDEN)}
    command = [str(commands / "python"), "-P", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_first_screen_of_the_readme(commands: Path, folder: Path) -> None:
    code, *rest = [line for line in block("test_training.py").splitlines() if line]
    assert (code, len(rest)) == ("from stable_baselines3 import PPO", 4)
    shown = block("output: pytest test_training.py")
    done = run(commands, folder, "-m", "pytest", "-p", "no:cacheprovider", "test_training.py", "-rA")
    assert done.returncode == 0, done.stdout + done.stderr
    assert_printed(shown, done.stdout)
    assert "PASSED test_training.py::test_training[ppo-deterministic]" in done.stdout


def assert_printed(shown: str, output: str) -> None:
    """Assert that a program printed what the README shows of it, below the command."""
    for part in re.split(r"^\.\.\.\n", shown.partition("\n")[2], flags=re.MULTILINE):
        assert re.search(as_pattern(part), output, re.DOTALL), f"not printed: {part}\n{output}"


def test_the_bug_of_the_subclass_is_the_one_failure(commands: Path, folder: Path) -> None:
    (folder / "curious.py").write_text(block("curious.py"), encoding="utf-8")
    done = run(commands, folder, "-m", "rlverify.cli.entry", "check", "curious.py:make")
    assert done.returncode == 1
    assert_printed(block("output of curious.py: rlverify check curious.py:make"), done.stdout)
    assert re.findall(r"^fail +(\w+)", done.stdout, re.MULTILINE) == ["resume_is_exact"]


def test_the_shell_gives_the_same_records(commands: Path, folder: Path) -> None:
    (folder / "training.py").write_text(
        "from stable_baselines3 import PPO\n\n\ndef ppo():\n"
        '    return PPO("MlpPolicy", "CartPole-v1", n_steps=64, seed=0)\n',
        encoding="utf-8",
    )
    entry = ("-m", "rlverify.cli.entry", "check", "training:ppo")
    done = run(commands, folder, *entry, "--family", "isolation", "--check", "deterministic", "--json", "-")
    (subject,) = json.loads(done.stdout)["subjects"]
    assert done.returncode == 0
    assert (subject["name"], subject["file"], subject["line"]) == ("ppo", "training.py", 4)
    found = {each["check"]: each["outcome"] for each in subject["checks"]}
    assert found["deterministic"].startswith("pass, proven by ")
    assert found["set_parameters_copies"] == "fail, known in stable-baselines3 2.9.2 (field report #1)"
    place = run(commands, folder, "-c", "import rlverify; print(rlverify.__file__)").stdout
    assert Path(place.strip()).is_relative_to(commands.parent)
