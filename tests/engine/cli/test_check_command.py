"""`rlverify check` as a user meets it: tables, files, exit codes and bad input, in a folder without settings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rlverify.checks.engine.rule import RULES
from rlverify.cli.app import run
from tests.engine.checks.tiny_learners import write_learners
from tests.engine.in_process import rlverify_here
from tests.engine.messages import is_one_line
from tests.support.processes import is_running, wait_until

Check = Callable[..., tuple[int, str, str]]
DEADLY = """\
import multiprocessing, os, signal
from command_learners import clean as deadly

if multiprocessing.parent_process() is not None:
    os.kill(os.getpid(), signal.SIGKILL)
"""
"""Can be imported, but in no worker process."""
QUICK = ("--check", "set_parameters_copies")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("no project")
    write_learners(made, "command_learners")
    return made


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Runs the command and the checks in this process, as on systems without fork: exit code, output, errors."""
    monkeypatch.delattr(os, "fork")

    def command(*arguments: str | Path) -> tuple[int, str, str]:
        code = run(["--project", str(folder), "check", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rlverify.cli.entry", "check", *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_check_that_passes(check: Check) -> None:
    code, output, errors = check("command_learners:copying", *QUICK)
    assert (code, errors) == (0, "")
    assert output.splitlines() == [
        "copying (command_learners:copying)",
        "",
        "status   check                   outcome",
        "───────────────────────────────────────────────────",
        "pass     set_parameters_copies   proven by 2 faults",
        "",
        "1 check: 1 passed (1 proven)",
    ]


def test_a_check_that_fails(check: Check) -> None:
    code, output, errors = check("command_learners.py:sharing", *QUICK)
    assert (code, errors) == (1, "")
    lines = output.splitlines()[4:]
    where = lines[0].removeprefix("fail     set_parameters_copies   ")
    assert where.startswith("parameter ")
    assert lines[1:4] == ["", "sharing: set_parameters_copies: fail", f"expected: {RULES[QUICK[1]].expected}"]
    assert lines[4].startswith("seen: training the source changes 2 parameters")
    assert lines[5:8] == [
        f"where: {where}",
        "remedy: Copy tensors in get_parameters() or set_parameters(): copy.deepcopy() of the whole.",
        "reports: pytorch #196083 (https://github.com/pytorch/pytorch/issues/196083)",
    ]
    assert lines[8:] == [
        "reproduce:",
        "    rlverify check command_learners.py:sharing --check set_parameters_copies",
        "",
        "1 check: 1 failed",
    ]


def test_the_command_of_a_failure_runs_it_again(check: Check) -> None:
    _, output, _ = check("command_learners:sharing", *QUICK, "--limit", "50", "--as-is")
    (command,) = [line.strip() for line in output.splitlines() if line.startswith("    rlverify")]
    assert command.endswith(" --as-is --limit 50")
    assert check(*command.split()[2:]) == (1, output, "")


def test_an_expected_failure_is_as_expected(check: Check) -> None:
    code, output, _ = check("command_learners:expected", *QUICK)
    assert code == 0
    assert "fail     set_parameters_copies   as expected: one network for both\n" in output
    assert output.endswith("\n\n1 check: 1 failed (1 as expected)\n")


def test_an_expected_failure_that_passes_is_not(check: Check) -> None:
    code, output, _ = check("command_learners:outdated", *QUICK)
    assert code == 1
    assert "pass     set_parameters_copies   though it was expected to fail: fixed long ago; proven by 2" in output
    assert "expected failure: fixed long ago\n" in output


@pytest.mark.parametrize(("name", "seen"), [("ends", "SystemExit: 3"), ("prints", "")])
def test_what_a_factory_does_is_a_record(name: str, seen: str, check: Check) -> None:
    code, output, _ = check(f"command_learners:{name}", "--check", "optimizers_hold_the_parameters")
    assert code == (2 if seen else 0)
    assert seen in output
    assert "printed by the factory" not in output


NOTHING_DECIDED = """\
class Wrapper:
    def learn(self, steps): pass
def wrapped(): return Wrapper()
def broken(): raise RuntimeError("\\x1b[31m" + "long " * 1_000_000)
"""
ENDS = {
    "ends": "import os\ndef make(): pass\nos._exit(0)\n",
    "ends_later": "import atexit, os\natexit.register(os._exit, 0)\ndef make(): pass\n",
    "odd": "class Odd(BaseException): pass\nraise Odd('x')\n",
}


def test_without_a_decided_check_the_exit_code_is_2(folder: Path, check: Check) -> None:
    (folder / "undecided.py").write_text(NOTHING_DECIDED)
    code, output, _ = check("undecided.py:wrapped", *QUICK)
    assert (code, output.splitlines()[-1]) == (2, "1 check: 1 not applicable; none passed or failed")


def test_a_crash_is_shown_once_with_its_calls_and_what_it_stops(folder: Path, check: Check) -> None:
    (folder / "undecided.py").write_text(NOTHING_DECIDED)
    code, output, _ = check("undecided.py:broken", *QUICK, "--check", "deterministic")
    assert code == 2
    assert output.count("in broken") == 1
    assert "stops as well: set_parameters_copies" in output
    assert "\x1b" not in output
    assert len(output) < 20_000


@pytest.mark.parametrize("name", ENDS)
def test_a_module_that_ends_the_process_is_an_error(name: str, folder: Path) -> None:
    (folder / f"{name}.py").write_text(ENDS[name])
    program = start(folder, f"{name}.py:make", *QUICK)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 2
    assert "Traceback" not in errors


def test_a_failed_check_outweighs_one_that_could_not_be_run(check: Check) -> None:
    assert check("command_learners:ends", "command_learners:sharing", *QUICK)[0] == 1


def test_the_reason_of_an_inconclusive_check_has_a_record(check: Check) -> None:
    code, output, _ = check("command_learners:unrepeatable", "--check", "learning_rate_zero_freezes")
    assert code == 1
    rows = [line.split()[:2] for line in output.splitlines()[4:6]]
    assert rows == [["fail", "deterministic"], ["inconclusive", "learning_rate_zero_freezes"]]
    assert output.endswith("2 checks: 1 failed, 1 inconclusive\n")


def test_a_reason_that_was_chosen_has_one_record(check: Check) -> None:
    _, output, _ = check(
        "command_learners:unrepeatable", "--check", "learning_rate_zero_freezes", "--check", "deterministic"
    )
    assert output.endswith("2 checks: 1 failed, 1 inconclusive\n")


def test_a_family_and_a_check(check: Check) -> None:
    _, output, _ = check("command_learners:copying", "--family", "isolation", "--check", "targets_start_equal")
    assert [line.split()[-1] for line in output.splitlines() if line.startswith("2 checks")] == ["applicable"]
    assert "not applicable   targets_start_equal     the model has no target networks" in output


def test_all_formats_are_written(check: Check, tmp_path: Path) -> None:
    files = {name: tmp_path / f"out.{name}" for name in ("json", "junit", "sarif")}
    options = [each for name, path in files.items() for each in (f"--{name}", path)]
    assert check("command_learners:sharing", *QUICK, *options)[0] == 1
    content = json.loads(files["json"].read_text(encoding="utf-8"))
    assert (content["schema_version"], content["exit_code"]) == (1, 1)
    assert content["subjects"][0]["file"] == "command_learners.py"
    assert ElementTree.parse(files["junit"]).getroot().get("failures") == "1"
    (result,) = json.loads(files["sarif"].read_text(encoding="utf-8"))["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "command_learners.py"


def test_json_on_stdout_is_all_that_is_printed(check: Check) -> None:
    code, output, _ = check("command_learners:copying", *QUICK, "--json", "-")
    assert (code, json.loads(output)["summary"]) == (0, "1 check: 1 passed (1 proven)")


def test_targets_in_worker_processes_have_the_same_records_and_one_whose_worker_dies_is_an_error(
    folder: Path, check: Check
) -> None:
    (folder / "deadly_learners.py").write_text(DEADLY)
    targets = [f"command_learners:{name}" for name in ("copying", "sharing", "expected")]
    _, here, _ = check(*targets, *QUICK, "--json", "-")
    code, elsewhere, errors = check(*targets, "deadly_learners:deadly", *QUICK, "--jobs", "2", "--json", "-")
    *others, deadly = json.loads(elsewhere)["subjects"]
    assert others == json.loads(here)["subjects"]
    assert "4 of 4: " in errors
    assert (code, deadly["checks"][0]["status"]) == (1, "error")
    assert deadly["checks"][0]["seen"] == "the process that checks this target ended with exit code -9"


def test_the_list_has_every_check(check: Check) -> None:
    code, output, errors = check("--list")
    assert (code, errors) == (0, "")
    listed = [line.split() for line in output.splitlines()[2:] if not line.startswith(" ")]
    assert [(words[0], words[1], words[2]) for words in listed] == [
        (rule.name, rule.family, rule.severity) for rule in RULES.values()
    ]
    assert "In a fresh model, target networks equal" in " ".join(output.split())


WRONG = {
    (): "name what to check, such as package.module:factory",
    ("command_learners:gone",): "command_learners has no 'gone'",
    ("command_learners:copying", "--check", "resume_is_exakt"): "did you mean 'resume_is_exact'?",
    ("command_learners:misspelt", "--jobs", "2"): "rlverify: no check is named 'resume_is_exakt'; did you mean",
    ("command_learners:copying", "--family", "zzz"): "no family is named 'zzz'; choose from gates, ",
}


@pytest.mark.parametrize("arguments", WRONG)
def test_wrong_use_is_one_line(arguments: tuple[str, ...], check: Check) -> None:
    code, output, errors = check(*arguments)
    assert (code, output) == (2, "")
    assert is_one_line(errors, WRONG[arguments])


def test_colour_in_a_terminal_alone(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" not in check("command_learners:copying", *QUICK)[1]
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = check("command_learners:copying", *QUICK)[1]
    assert "\x1b[32mpass  \x1b[0m" in coloured
    assert "\x1b[32mfail  \x1b[0m" in check("command_learners:expected", *QUICK)[1]
    assert "\x1b[31mpass  \x1b[0m" in check("command_learners:outdated", *QUICK)[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in check("command_learners:copying", *QUICK)[1]


LITTERING = """\
import os, tempfile
from temporary_learners import Copying, Learner, subject

def make():
    print("printed by the factory")
    os.makedirs(os.path.join("made", os.path.basename(tempfile.mkdtemp())))
    return Learner()

littering = subject(make, name="littering", adapter=Copying())
"""


@pytest.fixture(scope="module")
def in_a_terminal(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A process of its own with a terminal for its errors: its folder, what it printed and what the terminal showed."""
    folder = tmp_path_factory.mktemp("terminal")
    write_learners(folder, "temporary_learners")
    (folder / "littering.py").write_text(LITTERING)
    (folder / "temporary").mkdir()
    command = [sys.executable, "-m", "rlverify.cli.entry", "check", "littering:littering", *QUICK, "--json", "-"]
    command += ["--check", "targets_start_equal"]
    environment = {**os.environ, "TERM": "xterm", "TMPDIR": str(folder / "temporary")}
    reading, writing = os.openpty()
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=writing, check=False)
    os.close(writing)
    shown = os.read(reading, 100_000).decode()
    os.close(reading)
    assert done.returncode == 0, shown
    return folder, done.stdout.decode(), shown


def test_progress_in_a_terminal_is_a_bar_that_goes(in_a_terminal: tuple[Path, str, str]) -> None:
    _, output, shown = in_a_terminal
    assert "\x1b" not in output
    assert "checking littering: targets_start_equal" in shown
    assert "checking littering: set_parameters_copies" in shown
    assert shown.rstrip().endswith("\x1b[2K")  # the bar is erased


def test_what_a_factory_prints_is_not_in_the_json(in_a_terminal: tuple[Path, str, str]) -> None:
    _, output, shown = in_a_terminal
    assert json.loads(output)["exit_code"] == 0
    assert "printed by the factory" in shown


def test_what_a_target_leaves_in_the_folder_for_temporary_files_is_removed(
    in_a_terminal: tuple[Path, str, str],
) -> None:
    folder, _, _ = in_a_terminal
    made = [path.name for path in (folder / "made").iterdir()]
    assert made
    assert not [name for name in made if (folder / "temporary" / name).exists()]


HANGING = """\
import os, pathlib, time

def make():
    here = pathlib.Path(__file__).parent
    if os.fork() == 0:
        (here / "grandchild").write_text(str(os.getpid()))
        time.sleep(600)
    (here / "child.part").write_text(str(os.getpid()))
    (here / "child.part").rename(here / "child")
    time.sleep(600)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_process_behind(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text(HANGING, encoding="utf-8")
    program = start(tmp_path, "hanging:make")
    names = ("child", "grandchild")
    wait_until(lambda: all((tmp_path / name).exists() for name in names))
    time.sleep(0.2)
    pids = [int((tmp_path / name).read_text()) for name in names]
    assert all(map(is_running, pids))
    program.send_signal(number)
    output, errors = program.communicate(timeout=60)
    assert (program.returncode, output) == (130, "")
    assert is_one_line(errors, "interrupted before the end")
    time.sleep(0.2)
    assert not any(map(is_running, pids))


def test_a_factory_that_hangs_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text(HANGING, encoding="utf-8")
    program = start(tmp_path, "hanging.py:make", "--limit", "1", "--check", "deterministic")
    output, _ = program.communicate(timeout=60)
    assert program.returncode == 2
    assert "did not end within 1 seconds" in output
    assert not is_running(int((tmp_path / "grandchild").read_text()))


def test_a_folder_with_broken_settings_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.rlverify]\ncontent = 3\n", encoding="utf-8")
    write_learners(tmp_path, "elsewhere_learners")
    done = rlverify_here("check", "elsewhere_learners:copying", *QUICK, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("1 check: 1 passed (1 proven)\n")
