"""A second project, with nothing of this repository but the built wheel in a virtual environment of its own."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.engine.wheel import build_wheel, install_wheel

pytestmark = pytest.mark.slow

FILES = {
    "pyproject.toml": """
[project]
name = "balance"

[tool.rlverify]
content = "proofs"
under_test = ["balance"]
documents = "docs"
reports = "out/reports"

[tool.pytest.ini_options]
pythonpath = ["src"]
""",
    "src/balance/__init__.py": "",
    "src/balance/gate.py": '''
"""Code that is verified."""


def clipped(value, low, high):
    """The value, or the end of the range that is nearest to it."""
    return max(low, min(value, high))
''',
    "docs/audit.md": "# Audit of balance\n\nThe clip has no lower end.\n\nThe clip keeps what is inside.\n",
    "proofs/__init__.py": "",
    "proofs/catalogue/audit.toml": """
[[claim]]
id = "CLIP-1"
title = "The clip has no lower end"
statement = "A value below the range is returned as it is."
probe = "both-ends"
fault = "no-lower-end"
expected = "CONFIRMED"
cites = ["audit:3"]
shows = ["a value below"]
killed_by = ["tests/test_gate.py::test_low"]

[[claim]]
id = "CLIP-2"
title = "The clip keeps what is inside"
statement = "A value in the range is returned as it is."
kind = "assurance"
probe = "both-ends"
expected = "CONFIRMED"
modules = ["balance.gate"]
cites = ["audit:5"]
""",
    "proofs/faults/gate.py": """
from rlverify import fault


@fault("no-lower-end", target="balance.gate:clipped", pins="PIN")
def no_lower_end(value, low, high):
    return min(value, high)
""",
    "proofs/probes/gate.py": """
from balance import gate
from rlverify import Observation, probe


@probe("both-ends")
def both_ends(seed):
    found = {"a value below": (gate.clipped(-5, 0, 3), 0), "a value inside": (gate.clipped(2, 0, 3), 2)}
    return [Observation(name, str(want), str(got), holds=got == want) for name, (got, want) in found.items()]
""",
    "proofs/pages/audit.py": """
from rlverify import page
from rlverify.reporting.markdown import render


@page("answer.md", title="Answer", about="the answer to the audit of balance", documents=["audit"])
def answer(data):
    return render("answer.md.j2", data)
""",
    "proofs/pages/templates/answer.md.j2": (
        '{% from "_claim.md.j2" import full with context %}\n# Answer to the audit\n\n'
        '{% for record in data.at_home("answer.md") %}\n{{ full(record) }}\n{% endfor %}\n'
    ),
    "tests/test_gate.py": (
        "from balance.gate import clipped\n\n\ndef test_low():\n    assert clipped(-5, 0, 3) == 0\n\n\n"
        "def test_high():\n    assert clipped(5, 0, 3) == 3\n"
    ),
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as it would be published."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def rlverify(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of a fresh virtual environment: the wheel is installed, its dependencies are borrowed from here."""
    return install_wheel(wheel, tmp_path_factory.mktemp("venv")) / "rlverify"


@pytest.fixture(scope="module")
def project(rlverify: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The second project, with the pin of its fault filled in."""
    root = tmp_path_factory.mktemp("second project ß")
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip(), encoding="utf-8")
    told = run(rlverify, root, "reproduce", "CLIP-1")
    assert "then run `rlverify repin no-lower-end`" in told.stdout
    assert run(rlverify, root, "repin", "no-lower-end").returncode == 0
    return root


def run(rlverify: Path, root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTEST", "COV_", "COVERAGE_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return subprocess.run(
        [str(rlverify), *arguments], cwd=root, env=environment, capture_output=True, text=True, check=False
    )


def test_the_wheel_holds_the_engine_and_the_core_and_no_content(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {"rlverify", "rlcore"} < tops
    assert not tops & {"verification", "tests", "reports", "benchmarks"}
    templates = [f"reporting/templates/{name}" for name in ("index.md.j2", "report.html.j2", "report.css", "report.js")]
    for needed in (f"rlverify/{name}" for name in ("py.typed", "cli/templates/", *templates)):
        assert any(name.startswith(needed) for name in names), needed


def test_what_runs_is_the_wheel(rlverify: Path, project: Path) -> None:
    code = "import rlverify, sys; print(rlverify.__file__); sys.exit('torch' in sys.modules)"
    command, environment = [str(rlverify.with_name("python")), "-c", code], {"PATH": os.environ["PATH"]}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).is_relative_to(rlverify.parents[1])


def test_every_command_works_and_a_regression_fails_the_gate(rlverify: Path, project: Path) -> None:
    reproduced = run(rlverify, project, "reproduce", "CLIP-1")
    assert reproduced.returncode == 0, reproduced.stdout + reproduced.stderr
    assert "verdict: CONFIRMED (expected CONFIRMED)" in reproduced.stdout
    for command in (["audit", "--update"], ["matrix", "--update"], ["audit"], ["gate"], ["report", "--check"]):
        done = run(rlverify, project, *command)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    reports = project / "out" / "reports"
    page = (reports / "answer.md").read_text(encoding="utf-8")
    assert page.startswith("# Answer to the audit\n")
    assert page.count("**CONFIRMED**") == 2
    assert "[audit:3](../../docs/audit.md?plain=1#L3)" in page
    assert "`rlverify reproduce CLIP-1`" in page
    assert "[Answer](answer.md)" in (reports / "index.md").read_text(encoding="utf-8")
    assert "killed 1 of 1" in run(rlverify, project, "matrix").stdout
    assert "`no-lower-end`" in (reports / "kill-matrix.md").read_text(encoding="utf-8")
    code = project / "src" / "balance" / "gate.py"
    before = code.read_text(encoding="utf-8")
    code.write_text(before.replace("max(low, min(value, high))", "min(value, high)"), encoding="utf-8")
    done = run(rlverify, project, "gate", "--json", "-")
    code.write_text(before, encoding="utf-8")
    assert (done.returncode, "CLIP-1" in done.stdout) == (1, True)


def test_a_planted_session_needs_only_the_option(rlverify: Path, project: Path) -> None:
    python = rlverify.with_name("python")
    for options, code in (([], 0), (["--plant", "no-lower-end"], 1), (["--plant-null", "no-lower-end"], 0)):
        command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
        environment = {"PATH": os.environ["PATH"]}
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        assert ("planted no-lower-end: executed 2 times" in done.stdout) == (options[:1] == ["--plant"])
