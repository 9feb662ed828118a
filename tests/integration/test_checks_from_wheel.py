"""The distribution as a package index would have it: its files, its description, and the README run from the wheel."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
import yaml
from markdown_it import MarkdownIt

from tests.engine.pages import HIDDEN, page_text, run_page
from tests.engine.wheel import ROOT, build_sdist, build_wheel, install_wheel

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def commands(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of a fresh virtual environment with the wheel."""
    return install_wheel(wheel, tmp_path_factory.mktemp("venv"))


def run(commands: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", *HIDDEN))}
    command = [str(commands / "python"), "-P", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_files_pass_the_check_of_the_index_and_say_one_version(wheel: Path, tmp_path: Path) -> None:
    sdist = build_sdist(tmp_path)
    command = [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count("PASSED")) == (0, 2), done.stdout
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "CHANGELOG.md", "mkdocs.yml", "docs/checks.md", "rlverify/py.typed"} <= names
    version = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"]
    assert {sdist.name, wheel.name} == {f"rlverify-{version}.tar.gz", f"rlverify-{version}-py3-none-any.whl"}


def test_the_description_needs_no_repository(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        found = message_from_bytes(
            archive.read(next(each for each in archive.namelist() if each.endswith("/METADATA")))
        )
    assert (found["License-Expression"], found["License-File"]) == ("MIT", "LICENSE")
    assert found["Author"] == "rlverify contributors"
    page = MarkdownIt("commonmark").enable("table").render(found.get_payload())
    assert [link for link in re.findall(r'(?:href|src)="([^"]*)"', page) if not link.startswith("https://")] == []
    assert "check a model (<code>docs/tutorial/check-a-model.md</code>)" in page
    assert all(re.search(rf"<code>{path}</code>", page) for path in re.findall(r"\]\(([^)#]+)", page_text("README.md")))


def test_the_readme_is_what_happens(commands: Path, tmp_path: Path) -> None:
    run_page("README.md", tmp_path, str(commands / "python"), path="")
    code, *rest = [line for line in (tmp_path / "test_training.py").read_text().splitlines() if line]
    assert (code, len(rest)) == ("from stable_baselines3 import PPO", 4)


def test_the_package_runs_as_a_module_and_without_what_rlcore_needs(wheel: Path, tmp_path: Path) -> None:
    commands = install_wheel(wheel, tmp_path / "venv")
    version = run(commands, tmp_path, "-c", "import rlverify; print(rlverify.__version__)").stdout
    assert run(commands, tmp_path, "-m", "rlverify", "--version").stdout == f"rlverify {version}"
    next((tmp_path / "venv").rglob("borrowed.pth")).unlink()
    done = run(commands, tmp_path, "-c", "import rlcore")
    assert re.fullmatch(
        r"ImportError: rlcore needs \w+, .*: pip install 'rlverify\[rlcore\]'", done.stderr.splitlines()[-1]
    )


def test_the_shell_gives_the_same_records(commands: Path, tmp_path: Path) -> None:
    (tmp_path / "training.py").write_text(
        "from stable_baselines3 import PPO\n\n\ndef ppo():\n"
        '    return PPO("MlpPolicy", "CartPole-v1", n_steps=64, seed=0)\n',
        encoding="utf-8",
    )
    entry = ("-m", "rlverify", "check", "training:ppo")
    done = run(commands, tmp_path, *entry, "--family", "isolation", "--check", "deterministic", "--json", "-")
    (subject,) = json.loads(done.stdout)["subjects"]
    assert done.returncode == 0
    assert (subject["name"], subject["file"], subject["line"]) == ("ppo", "training.py", 4)
    found = {each["check"]: each["outcome"] for each in subject["checks"]}
    assert found["deterministic"].startswith("pass, proven by ")
    assert found["set_parameters_copies"] == "fail, known in stable-baselines3 2.9.2 (field report #1)"
    place = run(commands, tmp_path, "-c", "import rlverify; print(rlverify.__file__)").stdout
    assert Path(place.strip()).is_relative_to(commands.parent)
