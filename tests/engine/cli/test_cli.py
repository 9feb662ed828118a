"""What a user meets: exit codes, words and one line for every trouble."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rlverify.cli.tables import runs_text
from rlverify.records.measured import Observation, Run
from tests.engine.messages import is_one_line
from tests.engine.project_folders import PROJECTS, toy_with_catalogue, write_settings

ROOT = Path(__file__).parents[3]
TOY = PROJECTS / "toyproject"
Command = Callable[..., tuple[int, str, str]]


def test_list_names_every_claim(toy: Command) -> None:
    code, output, _ = toy("list")
    assert code == 0
    assert [line.split()[0] for line in output.splitlines()[2:]] == [
        "NULL-TOY", "TOY-01", "TOY-02", "TOY-03", "TOY-04", "TOY-05",
    ]  # fmt: skip
    assert "\x1b" not in output


def test_list_and_show_print_json(toy: Command) -> None:
    listed = json.loads(toy("list", "--json")[1])
    shown = json.loads(toy("show", "TOY-02", "--json")[1])
    assert (listed["schema_version"], shown.pop("schema_version")) == (1, 1)
    assert shown in listed["claims"]
    assert (len(listed["claims"]), shown["expected_verdict"]) == (6, "CONFIRMED")


def test_list_imports_neither_torch_nor_the_code_under_test(project_environment: dict[str, str]) -> None:
    code = (
        "import sys; from rlverify.cli.app import run; assert run(['list']) == 0; "
        f"assert run(['--project', {str(TOY)!r}, 'list']) == 0; "
        f"assert run(['--project', {str(PROJECTS / 'figureproject')!r}, 'list']) == 0; "
        "names = ('torch', 'scipy', 'numpy', 'rlcore', 'toyproject.target', 'figureproject.experiments'); "
        "sys.exit(str([name for name in names if name in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=project_environment, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == "[]"


def test_reproduce_shows_expected_and_observed_in_words(toy: Command) -> None:
    code, output, _ = toy("reproduce", "TOY-02")
    assert code == 0
    assert (
        "clip(-5, 0, 3)\n  healthy  holds     expected -5  observed 0\n  faulty   violated  expected -5  observed -5\n"
    ) in output
    assert (output.count("holds"), output.count("violated")) == (5, 1)
    assert "\nverdict: CONFIRMED (expected CONFIRMED)\n\nwhere to look:\nbug " in output


def test_reproduce_says_where_the_bug_the_fix_the_probe_and_the_report_are(toy: Command) -> None:
    lines = toy("reproduce", "TOY-01")[1].partition("where to look:\n")[2].splitlines()
    places = dict(line.split(maxsplit=1) for line in lines)
    assert set(places) >= {"bug", "fix", "probe"}
    for what in ("bug", "fix", "probe"):
        path, line = places[what].split(":")
        text = (Path.cwd() / path).read_text(encoding="utf-8").splitlines()
        assert text[int(line) - 1].startswith("def "), places[what]


def test_a_variant_that_lacks_an_observation_says_so() -> None:
    seen = Observation("count", "3", "", holds=False)
    runs = [Run("healthy", 0, (seen,)), Run("faulty", 0, ())]
    assert runs_text(runs).plain == (
        "count\n  healthy  violated  expected 3  observed (empty)\n  faulty   not observed"
    )


def test_another_seed_gives_other_values_and_the_same_verdict(toy: Command) -> None:
    first, second = (toy("reproduce", "TOY-01", "--seed", seed)[1] for seed in ("3", "4"))
    (values, verdict), (others, same) = (each.split("\n\nverdict: ") for each in (first, second))
    assert values.partition("\n")[2] != others.partition("\n")[2]
    assert verdict.startswith("CONFIRMED (expected CONFIRMED)\nfix: PARTIAL (expected PARTIAL)\n\nwhere to look:\n")
    assert verdict == same


@pytest.mark.parametrize(
    ("claim", "exit_code", "line"),
    [
        ("REGRESSED", 1, "REGRESSED: REGRESSED, expected CONFIRMED"),
        ("UNREACHED", 2, "UNREACHED: UNREACHED, faulty: the planted fault"),
        ("CRASH", 2, "CRASH: ERROR, healthy, seed 0: ZeroDivisionError: on purpose"),
        ("DIE", 2, "DIE: ERROR, healthy, seed 0: the process of this run exited with code 3 before the run ended"),
        ("STALE", 1, "STALE: STALE, fault stale is stale"),
    ],
)
def test_reproduce_answers_with_its_exit_code(toy: Command, claim: str, exit_code: int, line: str) -> None:
    code, output, _ = toy("reproduce", claim, project=PROJECTS / "troubleproject")
    assert code == exit_code
    assert output.splitlines()[-1].startswith(line)


def test_an_unknown_claim_is_suggested(toy: Command) -> None:
    for command in ("show", "reproduce"):
        code, output, errors = toy(command, "toy-O1")
        assert (code, output) == (2, "")
        assert errors == "rlverify: no claim named 'toy-O1'; did you mean 'TOY-01'?\n"


def test_a_catalogue_that_names_what_is_not_there_isis_one_line(toy: Command, tmp_path: Path) -> None:
    project = toy_with_catalogue(tmp_path, ('"mean-is-largest"', '"mean-is-last"'))
    for command in ("gate", "report"):
        code, _, errors = toy(command, project=project)
        assert code == 2
        assert is_one_line(errors, "toy.toml, TOY-04, probe: there is no 'mean-is-last'")
        assert not (tmp_path / "reports").exists()


def test_a_crash_of_the_harness_is_one_line_and_not_a_fallen_claim(toy: Command, tmp_path: Path) -> None:
    (tmp_path / "no catalogue" / "emptyproject").mkdir(parents=True)
    code, _, errors = toy("list", project=write_settings(tmp_path / "no catalogue", "emptyproject"))
    assert code == 2
    assert is_one_line(errors, "catalogue", "cannot be read: No such file or directory")
    project = toy_with_catalogue(tmp_path)
    (tmp_path / "crashingproject").mkdir()
    (tmp_path / "crashingproject" / "probes").mkdir()
    (tmp_path / "crashingproject" / "probes" / "crash.py").write_text("1 / 0\n", encoding="utf-8")
    write_settings(project, "crashingproject", catalogue=project / "catalogue")
    code, _, errors = toy("audit", project=project)
    assert code == 2
    assert is_one_line(errors, "the harness failed: ZeroDivisionError: division by zero")
    code, output, _ = toy("reproduce", "TOY-04", project=project)
    assert code == 2
    assert "TOY-04: ERROR, healthy, seed 0: ZeroDivisionError: division by zero (probes/crash.py:1)" in output


def test_a_folder_that_cannot_be_written_is_one_line_before_measuring(toy: Command, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for command in (("gate",), ("audit", "--update")):
        code, output, errors = toy(*command, "--reports", tmp_path / "file" / "reports")
        assert (code, output) == (2, "")
        assert is_one_line(
            errors, "rlverify: evidence", "cannot be written: Not a directory; nothing was changed; make it writable"
        )


@pytest.fixture
def slowproject(tmp_path: Path) -> Path:
    """A project whose only probe touches a file and then sleeps; it names no ``Make``."""
    claim = (
        '[[claim]]\nid = "SLOW"\ntitle = "a title"\nstatement = "a statement"\nkind = "assurance"\n'
        'probe = "slow"\nmodules = ["slowproject.probes.slow"]\nexpected = "CONFIRMED"\n'
    )
    probe = (
        "import time\nfrom pathlib import Path\nfrom rlverify import probe\n"
        '@probe("slow")\ndef slow(seed):\n    Path(__file__).with_name("started").touch()\n    time.sleep(60)\n'
    )
    for name, text in {"catalogue/slow.toml": claim, "probes/slow.py": probe}.items():
        path = tmp_path / "slowproject" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return write_settings(tmp_path, "slowproject")


def _started(folder: Path, program: subprocess.Popen[str]) -> bool:
    while program.poll() is None and not (folder / "slowproject" / "probes" / "started").exists():
        time.sleep(0.02)
    return program.poll() is None


@pytest.mark.parametrize(
    ("arguments", "stop", "number"),
    [
        (["audit", "--update", "--jobs", "2"], os.killpg, signal.SIGINT),
        (["audit", "--update", "--jobs", "2"], os.kill, signal.SIGTERM),
        (["reproduce", "SLOW"], os.killpg, signal.SIGTERM),
    ],
)
def test_an_interrupted_run_is_one_line_and_leaves_nothing_behind(
    arguments: list[str],
    stop: Callable[[int, int], None],
    number: int,
    slowproject: Path,
    project_environment: dict[str, str],
) -> None:
    command = [sys.executable, "-m", "rlverify.cli.entry", *arguments]
    pipe = subprocess.PIPE
    program = subprocess.Popen(
        command,
        cwd=slowproject, env=project_environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True,
    )  # fmt: skip
    assert _started(slowproject, program)
    stop(program.pid, number)
    output, errors = program.communicate(timeout=30)  # ends once no worker has the pipes any more
    assert (program.returncode, output) == (130, "")
    assert is_one_line(errors, "interrupted")
    assert [path for path in (slowproject / "reports").rglob("*") if path.is_file()] == []
