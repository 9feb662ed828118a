"""`rlverify init` leaves a repository that pip can install as it was."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

Invoke = Callable[..., "subprocess.CompletedProcess[str]"]

PROJECT = '[project]\nname = "mine"\nversion = "1"\n'
NAMES = '[tool.setuptools]\npackages = ["mine"]\n'
HATCH = '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
EXPLICIT = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
INCLUDE = '[tool.setuptools.packages.find]\ninclude = ["mine", "mine.*"]'


@pytest.mark.parametrize(
    ("pyproject", "other_file", "is_named"),
    [
        (PROJECT, None, True),
        (EXPLICIT + PROJECT, None, True),
        (PROJECT + "[tool.setuptools]\nzip-safe = false\n", None, True),
        (PROJECT + NAMES, None, False),
        (HATCH + PROJECT, None, False),
        (PROJECT, ("setup.cfg", "[flake8]\nmax-line-length = 99\n"), True),
        (PROJECT, ("setup.cfg", "[options]\npackages = find:\n"), False),
        (PROJECT, ("setup.py", "from setuptools import setup\nsetup()\n"), True),
        ("", ("setup.py", "from setuptools import setup\nsetup(packages=['mine'])\n"), False),
        ("", None, False),
    ],
)
def test_a_package_at_the_top_can_be_installed_as_before(
    pyproject: str, other_file: tuple[str, str] | None, is_named: bool, tmp_path: Path, rlverify: Invoke
) -> None:
    """Setuptools refuses two packages at the top, unless its settings name one."""
    (tmp_path / "mine" / "part").mkdir(parents=True)
    (tmp_path / "mine" / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text(pyproject, encoding="utf-8")
    if other_file:
        (tmp_path / other_file[0]).write_text(other_file[1])
    done = rlverify("init", cwd=str(tmp_path))
    text = (tmp_path / "pyproject.toml").read_text(encoding="utf-8")
    assert (done.returncode, text.count(INCLUDE), "setuptools installs mine as before" in done.stdout) == (
        0,
        is_named,
        is_named,
    )
    tomllib.loads(text)
    workflow = (tmp_path / ".github/workflows/rlverify.yml").read_text(encoding="utf-8")
    is_distribution = bool(pyproject) or other_file is not None
    assert f"pip install {'-e . ' if is_distribution else ''}pytest" in workflow
    assert f'python-version: "{sys.version_info.major}.{sys.version_info.minor}"' in workflow


def test_a_single_module_is_left_to_its_author(tmp_path: Path, rlverify: Invoke) -> None:
    (tmp_path / "mine.py").touch()
    (tmp_path / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    done = rlverify("init", cwd=str(tmp_path))
    assert "setuptools finds audit now as well: name the packages or modules to install" in done.stdout
    assert "setuptools" not in (tmp_path / "pyproject.toml").read_text(encoding="utf-8")


def test_a_package_in_src_needs_nothing(tmp_path: Path, rlverify: Invoke) -> None:
    (tmp_path / "src" / "mine").mkdir(parents=True)
    (tmp_path / "src" / "mine" / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    done = rlverify("init", cwd=str(tmp_path))
    assert (done.returncode, "setuptools" in done.stdout) == (0, False)


def test_settings_that_take_no_table_are_left_as_they_are(tmp_path: Path, rlverify: Invoke) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").touch()
    before = f"{PROJECT}[tool]\nsetuptools = {{zip-safe = false}}\n"
    (tmp_path / "pyproject.toml").write_text(before)
    done = rlverify("init", cwd=str(tmp_path))
    assert (done.returncode, "takes no more tables" in done.stderr) == (2, True)
    assert (tmp_path / "pyproject.toml").read_text() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "pyproject.toml"]


def test_setuptools_finds_the_package_that_it_found_before(tmp_path: Path, rlverify: Invoke) -> None:
    (tmp_path / "mine" / "part").mkdir(parents=True)
    for package in ("mine", "mine/part"):
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    packages = (
        "from setuptools import Distribution as D; d = D(); d.parse_config_files(); d.set_defaults(); print(d.packages)"
    )

    def found() -> str:
        done = subprocess.run(
            [sys.executable, "-c", packages], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    before = found()
    assert "mine.part" in before
    assert rlverify("init", cwd=str(tmp_path)).returncode == 0
    assert found() == before
