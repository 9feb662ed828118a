"""Runs the tests marked `cuda` in a process of their own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from benchmarks.cuda.timing import Record

ROOT: Final = Path(__file__).parents[2]
MARK: Final = "mark.cuda"


def files_with_marked_tests(folder: Path = ROOT / "tests") -> list[Path]:
    """Test files that mention the mark, so that pytest need not import all others."""
    return [path for path in sorted(folder.rglob("test_*.py")) if MARK in path.read_text(encoding="utf-8")]


def run(files: Sequence[Path], seconds: float) -> Record:
    """Run the marked tests of some files.

    :param seconds: after which the process is stopped
    :return: how many ``passed``, ``failed`` (errors too) and were ``skipped``; ``failures`` with name and message; and
        a ``note``, empty where pytest ended as it should
    """
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "junit.xml"
        options = ["-m", "cuda", "-q", "-p", "no:cacheprovider", f"--junitxml={output}"]
        command = [sys.executable, "-m", "pytest", *options, *map(str, files)]
        note = ""
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=seconds)
        except subprocess.TimeoutExpired:
            note = f"pytest was stopped after {seconds:g} s."
        else:
            if done.returncode not in (0, 1) or not output.is_file():
                said = (done.stdout + done.stderr).strip().splitlines()[-1:]
                note = f"pytest ended with exit code {done.returncode}: {''.join(said)}"
        return {**read_junit(output), "note": note}


def read_junit(path: Path) -> Record:
    """The outcome of each test in a file of JUnit's XML; none where there is no file."""
    cases = ElementTree.parse(path).iter("testcase") if path.is_file() else ()
    passed, skipped, failures = 0, 0, []
    for case in cases:
        broken = next((each for each in case if each.tag in ("failure", "error")), None)
        if broken is not None:
            message = (broken.get("message") or "").strip().splitlines()[:1]
            failures.append({"name": f"{case.get('classname')}::{case.get('name')}", "message": "".join(message)})
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return {"passed": passed, "failed": len(failures), "skipped": skipped, "failures": failures}
