"""What ``rlverify gate`` answers after a regression: exit code, blocks, and the files of this run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest

from rlverify.cli.run_options import check_outputs
from tests.engine.checkouts import commit, copy_project, git
from tests.engine.in_process import rlverify_here
from tests.engine.project_folders import once_in_a_process, write_settings, write_toy_tests
from tests.support.repository_copy import ROOT


class Answer(NamedTuple):
    """Exit code, lines on stdout, and the folder with the files of the run."""

    code: int
    lines: list[str]
    folder: Path

    def text(self, name: str) -> str:
        return (self.folder / "out" / name).read_text(encoding="utf-8")

    def json(self, name: str) -> Any:
        return json.loads(self.text(name))


@pytest.fixture(scope="module")
@once_in_a_process
def committed(tmp_path_factory: pytest.TempPathFactory, auditedproject: Path) -> Path:
    """A Git checkout of the toy project with its evidence and kill matrix; treat as read-only."""
    folder = tmp_path_factory.mktemp("committed")
    copy_project("toyproject", folder)
    write_toy_tests(write_settings(folder, "toyproject", pythonpath=["."], command="bin/rlverify"))
    (folder / ".gitignore").write_text(".rlverify\n__pycache__\nout\n")
    shutil.copytree(auditedproject / "reports", folder / "reports")
    done = rlverify_here("report", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    git(folder, "init", "--quiet")
    commit(folder, "toy")
    return folder


def answer(folder: Path, *arguments: str) -> Answer:
    (folder / "out").mkdir(exist_ok=True)
    (folder / "out" / "summary.md").write_text("# before\n")
    files = ("--junit", "out/junit.xml", "--sarif", "out/sarif.json", "--summary", "out/summary.md")
    done = rlverify_here("gate", *files, *(arguments or ("--json", "out/run.json")), cwd=folder)
    return Answer(done.returncode, done.stdout.splitlines(), folder)


def changed(committed: Path, folder: Path, *edits: tuple[str, str]) -> Path:
    """A copy of the checkout after editing the code under test."""
    shutil.copytree(committed, folder)
    path = folder / "toyproject" / "target.py"
    text = path.read_text(encoding="utf-8")
    for old, new in edits:
        assert text.count(old) == 1
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    return folder


FORGETS = ('made.count, made.total = state["count"], state["total"]', 'made.count, made.total = 0, state["total"]')
CRASHES = ("return min(max(value, low), high)", "return min(max(value, lower), high)")
CHANGED = ("restored", "clip")
"""The functions that these edit."""


@pytest.fixture(scope="module")
def regressed(committed: Path, tmp_path_factory: pytest.TempPathFactory) -> Answer:
    """One claim is violated, and two crash."""
    folder = changed(committed, tmp_path_factory.mktemp("regressed") / "toy", FORGETS, CRASHES)
    return answer(folder)


def test_the_answer_to_a_regression_is_one_block_a_cause(regressed: Answer) -> None:
    crash = [line for line in regressed.lines if "NameError" in line]
    assert (regressed.code, len(crash)) == (1, 1)
    assert [line for line in regressed.lines if line not in crash] == [
        "3 claims fell: the code does something else than the catalogue and the committed evidence say",
        "changed code that fallen claims executed: toyproject.target:clip (by 2), "
        "toyproject.target:Average.restored (by 1)",
        "",
        "TOY-01  a restored average is empty  REGRESSED (expected CONFIRMED): its check fails with no fault planted",
        "  count: expected 3, observed 0",
        "  mean: expected 6.333333333333333, observed 19.0",
        "  first suspect: toyproject/target.py:33 (changed)",
        *(f"    {sign} {text}" for sign, text in zip("-+", FORGETS, strict=True)),
        "  reproduce: bin/rlverify reproduce TOY-01",
        "",
        "TOY-02  clip has no lower end  ERROR (expected CONFIRMED)",
        "  first suspect: toyproject/target.py:43 (changed)",
        *(f"    {sign} {text}" for sign, text in zip("-+", CRASHES, strict=True)),
        "  reproduce: bin/rlverify reproduce TOY-02",
        "  for the same reason: TOY-03",
        "",
        "3 of 6 claims as expected; 3 claims fell",
    ]
    assert crash[0].startswith("  healthy, seed 0: NameError: name 'lower' is not defined (toyproject/target.py:")


def test_without_a_known_base_no_change_is_named(regressed: Answer) -> None:
    typo = rlverify_here("gate", "--base", "no-such-branch", cwd=regressed.folder)
    assert (typo.returncode, "Git knows no commit 'no-such-branch'" in typo.stdout + typo.stderr) == (2, True)
    done = rlverify_here("gate", "--base", "5" * 40, cwd=regressed.folder)  # as after a push that replaced commits
    lines = done.stdout.splitlines()
    assert not any("(changed)" in line or line.startswith("changed code") for line in lines)
    assert "  first suspect: toyproject/target.py" in lines  # where a run crashed


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("target.py", "\n\ndef x(:\n", "SyntaxError: "),
        ("target.py", "\n\n\noops\n", "NameError: name 'oops' is not defined"),
        ("faults/new.py", "\n\nfrom toyproject.target import gone\n", "ImportError: cannot import name 'gone' from "),
        ("plots/new.py", "\n\nfrom toyproject.target import gone\n", "ImportError: cannot import name 'gone' from "),
        ("pages/new.py", "\n\nfrom toyproject.target import gone\n", "ImportError: cannot import name 'gone' from "),
        ("target.py", "\n\n__import__('json').loads('{')\n", "JSONDecodeError: "),
        ("target.py", "\n\n__import__('unittest').main(argv=['', 'no.such'])\n", "SystemExit: "),
    ],
    ids=["syntax", "name", "gone", "gone for a plot", "gone for a page", "in a library", "ends the process"],
)
def test_code_that_cannot_be_imported_is_broken_and_not_the_harness(
    file: str, text: str, told: str, committed: Path, tmp_path: Path
) -> None:
    folder = changed(committed, tmp_path / "toy")
    path = folder / "toyproject" / file
    path.parent.mkdir(exist_ok=True)
    path.write_text((path.read_text() if path.exists() else "") + text)
    line = len(path.read_text().splitlines())
    told = f"toyproject/{file}:{line}: code under test cannot be imported: {told}"
    found = answer(folder)
    assert (found.code, found.lines[1:]) == (1, ["no claim was measured; something else failed, see above"])
    assert found.lines[0].startswith(told)
    assert found.json("run.json")["exit_code"] == 1
    assert ElementTree.fromstring(found.text("junit.xml")).attrib["failures"] == "1"
    done = rlverify_here("audit", cwd=folder)
    assert (done.returncode, told in done.stderr) == (1, True)


@pytest.mark.parametrize("text", ["def x(:\n", "oops\n", "import no_such_module\n"])
def test_a_mistake_in_what_measures_is_trouble_of_the_harness(text: str, committed: Path, tmp_path: Path) -> None:
    folder = changed(committed, tmp_path / "toy")
    (folder / "toyproject/probes/new.py").write_text(text)
    done = rlverify_here("gate", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "new.py" in done.stderr


@pytest.mark.parametrize("folder", ["faults", "probes", "plots", "pages"])
def test_an_import_that_ends_the_process_does_not_choose_the_exit_code(
    folder: str, committed: Path, tmp_path: Path
) -> None:
    checkout = changed(committed, tmp_path / "toy")
    (checkout / "toyproject" / folder).mkdir(exist_ok=True)
    (checkout / "toyproject" / folder / "new.py").write_text("raise SystemExit(0)\n")
    done = rlverify_here("gate", cwd=checkout)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"toyproject/{folder}/new.py:1: an import ends the process with exit code 0" in done.stderr


def test_code_that_a_run_cannot_import_makes_its_claim_fall(committed: Path, tmp_path: Path) -> None:
    imports = "return min(max(value, low), high)", "from toyproject import late\n    return late.clip(value, low, high)"
    folder = changed(committed, tmp_path / "toy", imports)
    (folder / "toyproject/late.py").write_text("def clip(:\n")
    found = answer(folder)
    assert (found.code, found.lines[-1]) == (1, "4 of 6 claims as expected; 2 claims fell")
    assert "SyntaxError: " in "".join(found.lines)


@pytest.mark.parametrize(
    ("arguments", "closed"),
    [
        (("--json", "/dev/stdout"), "stdout"),
        (("--base", "5" * 40), "stdout"),
        (("--junit", "/dev/stdout"), "stderr"),
    ],
)
def test_a_reader_that_stops_reading_does_not_change_a_failure(
    arguments: tuple[str, str], closed: str, regressed: Answer
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "rlverify.cli.entry", "gate", "toy-01", "--jobs", "1", *arguments]
    other = {"stdout": "stderr", "stderr": "stdout"}[closed]
    streams: dict[str, Any] = {closed: writing, other: subprocess.DEVNULL}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=regressed.folder, env=environment, check=False, **streams)
    os.close(writing)
    assert done.returncode == 1


def test_the_standard_output_by_another_name_has_the_file_first(regressed: Answer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rlverify.cli.entry", "gate", "toy-01", "--jobs", "1", "--junit", "/dev/stdout"]
    with (tmp_path / "out").open("w") as file:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run(command, cwd=regressed.folder, env=environment, stdout=file, check=False)
    text = (tmp_path / "out").read_text()
    assert text.startswith("<?xml")
    assert text.splitlines()[-1] == "0 of 1 claims as expected; 1 claim fell"
    assert ElementTree.fromstring(text.partition("</testsuites>")[0] + "</testsuites>").attrib["failures"] == "1"


def test_a_pipe_can_be_an_output(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert check_outputs({"junit": tmp_path / "pipe", "json": None}) == {"junit": tmp_path / "pipe"}
    assert [*tmp_path.iterdir()] == [tmp_path / "pipe"]


def test_junit_has_the_failures_of_this_run_with_their_times(regressed: Answer) -> None:
    root = ElementTree.fromstring(regressed.text("junit.xml"))
    failed = [case.attrib["name"] for case in root.iter("testcase") if case.find("failure") is not None]
    assert failed[:3] == [
        "TOY-01 a restored average is empty",
        "TOY-02 clip has no lower end",
        "TOY-03 clip in the other order",
    ]
    assert failed[3:] == []
    assert (root.attrib["tests"], root.attrib["failures"], root.attrib["errors"]) == ("6", "3", "0")
    times = {case.attrib["name"].split()[0]: float(case.attrib["time"]) for case in root.iter("testcase")}
    assert float(root.attrib["time"]) == pytest.approx(sum(times.values()), abs=0.01)
    assert sum(times.values()) > 0.0
    text = next(root.iter("failure")).text or ""
    assert "count: expected 3, observed 0" in text
    assert "--update" not in regressed.text("junit.xml")


def test_sarif_places_each_fallen_claim_at_what_changed_in_its_first_suspect(regressed: Answer) -> None:
    lines = (regressed.folder / "toyproject" / "target.py").read_text(encoding="utf-8").splitlines()
    restored, clip = (next(n for n, line in enumerate(lines, 1) if f"def {name}(" in line) for name in CHANGED)
    content = regressed.json("sarif.json")
    (run,) = content["runs"]
    assert content["version"] == "2.1.0"
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["TOY-01", "TOY-02", "TOY-03"]
    for number, result in enumerate(run["results"]):
        assert (result["ruleIndex"], result["level"]) == (number, "error")
        (place,) = result["locations"]
        assert place["physicalLocation"] == {
            "artifactLocation": {"uri": "toyproject/target.py", "uriBaseId": "%SRCROOT%"},
            "region": {"startLine": (restored, clip, clip)[number]},
        }
    assert "count: expected 3, observed 0" in run["results"][0]["message"]["text"]


def test_the_summary_is_appended(regressed: Answer) -> None:
    text = regressed.text("summary.md")
    assert text.startswith("# before\n# rlverify: failed\n\n```text\n3 claims fell: ")
    assert "\n| TOY-01 | REGRESSED (expected CONFIRMED): its check fails with no fault planted |" in text
    assert text.endswith("</details>\n")


def test_json_has_the_outcome_and_no_advice_to_commit_it(regressed: Answer) -> None:
    content = regressed.json("run.json")
    assert (content["schema_version"], content["exit_code"], content["selection"]) == (1, 1, None)
    assert [each["claim"] for each in content["fallen"]] == ["TOY-01", "TOY-02", "TOY-03"]
    assert content["fallen"][0]["changes"][0] == {"symptom": "count", "expected": "3", "observed": "0"}
    assert content["fallen"][0]["declared_in"] == "toyproject/catalogue/toy.toml"
    line = (
        (regressed.folder / "toyproject/catalogue/toy.toml").read_text().splitlines()[content["fallen"][0]["line"] - 1]
    )
    assert line == 'id = "TOY-01"'
    assert [each["id"] for each in content["claims"] if not each["as_expected"]] == ["TOY-01", "TOY-02", "TOY-03"]
    assert {each["remedy"] for each in content["problems"]} == {""}
    seconds = [each["seconds"] for each in content["claims"]]
    assert min(seconds) >= 0.0
    assert max(seconds) > 0.0


@pytest.mark.parametrize("claim", ["TOY-01", "TOY-02"])
def test_reproduce_answers_as_the_gate_does(claim: str, regressed: Answer) -> None:
    """TOY-01 is violated, TOY-02 crashes although its committed evidence holds."""
    done = rlverify_here("reproduce", claim, "--json", cwd=regressed.folder)
    content = json.loads(done.stdout)
    (at_the_gate,) = [each for each in regressed.json("run.json")["problems"] if each["subject"] == claim]
    assert (done.returncode, content["exit_code"]) == (1, 1)
    assert content["problems"] == [at_the_gate]
    without = rlverify_here("reproduce", claim, "--reports", "elsewhere", cwd=regressed.folder)
    assert without.returncode == {"TOY-01": 1, "TOY-02": 2}[claim]


@pytest.mark.parametrize("option", ["--junit", "--sarif", "--summary", "--json"])
@pytest.mark.parametrize("path", [".", "pyproject.toml/file", "--jobs"])
def test_a_bad_path_fails_before_anything_is_measured(option: str, path: str, committed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(committed, tmp_path / "toy", ignore=shutil.ignore_patterns(".rlverify"))
    done = rlverify_here("gate", option, path, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert option in done.stderr
    assert not (folder / ".rlverify").exists()
