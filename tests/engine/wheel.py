"""The distribution as it would be published, and the wheel in a virtual environment of its own."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path
from venv import EnvBuilder

ROOT = Path(__file__).parents[2]


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this repository into a folder."""
    return _build("wheel", folder)


def build_sdist(folder: Path) -> Path:
    """Build the source distribution of this repository into a folder."""
    return _build("sdist", folder)


def _build(target: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("rlverify-*")
    return built


def install_wheel(wheel: Path, folder: Path) -> Path:
    """Make a virtual environment in a folder and install a wheel; its dependencies are borrowed from this one.

    :return: the folder of its commands
    """
    EnvBuilder(with_pip=True, symlinks=True).create(folder)
    commands = folder / "bin"
    install = [str(commands / "python"), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    # A path file of a path file is not read, so that the editable installation of this repository stays out of sight.
    (site / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
    return commands
