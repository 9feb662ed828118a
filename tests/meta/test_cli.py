"""What a user meets: exit codes, words and one line for every trouble."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rlverify.evidence.seals import sealed
from tests.meta.project_folders import PROJECTS, write_settings, write_toy_tests

ROOT = Path(__file__).parents[2]
TOY = PROJECTS / "toyproject"
PAGES = {"claims.md", "index.md"}
MATRIX = {"matrix.json", "kill-matrix.md"}
Command = Callable[..., tuple[int, str, str]]
Invoke = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def audited(auditedproject: Path) -> Path:
    """A folder of reports, freshly updated; treat as read-only."""
    return auditedproject / "reports"


@pytest.fixture
def reports(audited: Path, tmp_path: Path) -> Path:
    """A copy of the updated reports, to be changed."""
    for path in audited.rglob("*.*"):
        copy = tmp_path / "reports" / path.relative_to(audited)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    return tmp_path / "reports"


def _with_catalogue(folder: Path, *changes: tuple[str, str]) -> Path:
    """The toy project in a folder, which it returns, after replacing texts in its catalogue."""
    catalogue = folder / "catalogue"
    catalogue.mkdir()
    for path in (TOY / "catalogue").iterdir():
        text = path.read_text(encoding="utf-8")
        for old, new in changes:
            text = text.replace(old, new)
        (catalogue / path.name).write_text(text, encoding="utf-8")
    return write_toy_tests(write_settings(folder, "toyproject", catalogue=catalogue))


def _one_line(errors: str, *words: str) -> bool:
    return errors.startswith("rlverify: ") and errors.count("\n") == 1 and all(word in errors for word in words)


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


def test_show_tells_what_is_claimed(toy: Command) -> None:
    code, output, _ = toy("show", "TOY-01")
    assert code == 0
    for words in (
        "any symptom of the probe",
        "Restoring gives an average",
        "Bug 1",
        "restored-forgets",
        "CONFIRMED, fix PARTIAL",
    ):
        assert words in output


def test_list_imports_neither_torch_nor_the_code_under_test(project_environment: dict[str, str]) -> None:
    code = (
        "import sys; from rlverify.cli.app import run; assert run(['list']) == 0; "
        f"assert run(['--project', {str(TOY)!r}, 'list']) == 0; "
        "sys.exit(str([name for name in ('torch', 'scipy', 'rlcore', 'toyproject.target') if name in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=project_environment, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == "[]"


def test_reproduce_shows_expected_and_observed_in_words(toy: Command) -> None:
    code, output, _ = toy("reproduce", "TOY-02")
    assert code == 0
    assert re.search(r"expected -5 +expected -5\n +observed 0 +observed -5\n +holds +violated\n", output)
    assert (output.count("holds"), output.count("violated")) == (5, 1)
    assert output.endswith("verdict: CONFIRMED (expected CONFIRMED)\n")


def test_another_seed_gives_other_values_and_the_same_verdict(toy: Command) -> None:
    first, second = (toy("reproduce", "TOY-01", "--seed", seed)[1] for seed in ("3", "4"))
    assert first.splitlines()[4:-2] != second.splitlines()[4:-2]
    assert first.splitlines()[-2:] == second.splitlines()[-2:] == [
        "verdict: CONFIRMED (expected CONFIRMED)", "fix: PARTIAL (expected PARTIAL)",
    ]  # fmt: skip


def test_reproduce_prints_json_only(toy: Command) -> None:
    content = json.loads(toy("reproduce", "TOY-02", "--json")[1])
    assert content["schema_version"] == 1
    assert (content["verdict"], content["exit_code"], len(content["runs"])) == ("CONFIRMED", 0, 2)


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


def test_what_a_probe_prints_is_on_stderr(rlverify: Invoke, auditedproject: Path) -> None:
    done = rlverify("--project", auditedproject, "reproduce", "TOY-02")
    assert (done.returncode, done.stderr) == (0, "a probe may print\na probe may print\n")
    assert "a probe may print" not in done.stdout


def test_an_unknown_claim_is_suggested(toy: Command) -> None:
    for command in ("show", "reproduce"):
        code, output, errors = toy(command, "toy-O1")
        assert (code, output) == (2, "")
        assert errors == "rlverify: no claim named 'toy-O1'; did you mean 'TOY-01'?\n"


def test_a_broken_catalogue_is_one_line(toy: Command, tmp_path: Path) -> None:
    (tmp_path / "catalogue").mkdir()
    (tmp_path / "catalogue" / "toy.toml").write_text('[[claim]]\nid = "TOY-01"\n', encoding="utf-8")
    project = write_settings(tmp_path, "toyproject", catalogue=tmp_path / "catalogue")
    for command in ("list", "gate", "report"):
        code, _, errors = toy(command, project=project)
        assert code == 2
        assert _one_line(errors, "toy.toml, TOY-01, title: is missing")


def test_a_catalogue_that_names_what_is_not_there_is_one_line(toy: Command, tmp_path: Path) -> None:
    project = _with_catalogue(tmp_path, ('"mean-is-largest"', '"mean-is-last"'))
    for command in ("gate", "report"):
        code, _, errors = toy(command, project=project)
        assert code == 2
        assert _one_line(errors, "toy.toml, TOY-04, probe: there is no 'mean-is-last'")
        assert not (tmp_path / "reports").exists()


def test_a_crash_of_the_harness_is_one_line_and_not_a_fallen_claim(toy: Command, tmp_path: Path) -> None:
    (tmp_path / "no catalogue" / "emptyproject").mkdir(parents=True)
    code, _, errors = toy("list", project=write_settings(tmp_path / "no catalogue", "emptyproject"))
    assert code == 2
    assert _one_line(errors, "catalogue", "cannot be read: No such file or directory")
    project = _with_catalogue(tmp_path)
    (tmp_path / "crashingproject").mkdir()
    (tmp_path / "crashingproject" / "probes").mkdir()
    (tmp_path / "crashingproject" / "probes" / "crash.py").write_text("1 / 0\n", encoding="utf-8")
    write_settings(project, "crashingproject", catalogue=project / "catalogue")
    code, _, errors = toy("audit", project=project)
    assert code == 2
    assert _one_line(errors, "the harness failed: ZeroDivisionError: division by zero")
    code, output, _ = toy("reproduce", "TOY-04", project=project)
    assert code == 2
    assert "TOY-04: ERROR, healthy, seed 0: ZeroDivisionError: division by zero (probes/crash.py:1)" in output


def test_a_folder_that_cannot_be_written_is_one_line_before_measuring(toy: Command, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for command in (("gate",), ("audit", "--update")):
        code, output, errors = toy(*command, "--reports", tmp_path / "file" / "reports")
        assert (code, output) == (2, "")
        assert _one_line(errors, "rlverify: evidence", "cannot be written: Not a directory; nothing was changed")


def test_audit_agrees_with_what_it_wrote(toy: Command, reports: Path) -> None:
    code, output, errors = toy("audit", "--jobs", "1", "--reports", reports)
    assert (code, errors.replace("a probe may print\n", "")) == (0, "")
    assert output.splitlines()[-1] == "6 of 6 claims as expected; nothing to report"
    working = {path.name for path in (reports.parent / ".rlverify").iterdir()}
    assert working == {*PAGES, ".gitignore", "evidence", "lock", "plots", "raw.jsonl"}
    assert {path.name for path in reports.iterdir()} == {*PAGES, *MATRIX, "digests.json", "evidence", "plots"}


def _edit_evidence(reports: Path, claim: str, old: str, new: str) -> None:
    path = reports / "evidence" / f"{claim}.json"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def _forge_evidence(reports: Path, claim: str, old: str, new: str, to: str | None = None) -> None:
    """Edit evidence, and give it a digest that fits.

    :param to: the claim to write it for, where that is another one
    """
    text = (reports / "evidence" / f"{claim}.json").read_text(encoding="utf-8")
    assert old in text
    content = json.loads(text.replace(old, new))
    del content["digest"]
    (reports / "evidence" / f"{to or claim}.json").write_text(sealed(content), encoding="utf-8")


def test_the_gate_falls_when_evidence_or_report_are_out_of_date(toy: Command, reports: Path) -> None:
    def gate() -> tuple[int, list[str]]:
        code, output, _ = toy("gate", "--jobs", "2", "--reports", reports)
        return code, output.splitlines()[:-1]

    (reports / "claims.md").write_text("edited", encoding="utf-8")
    assert gate() == (1, ["claims.md: is not what the committed evidence gives; run `rlverify report`"])
    _forge_evidence(reports, "TOY-02", '"before": "-5"', '"before": "-6"')
    (reports / "evidence" / "TOY-03.json").unlink()
    code, lines = gate()
    assert code == 1
    assert lines.pop(3).startswith(
        "  differs from the committed evidence: healthy: 'clip(-5, 0, 3)' observed 0 (expected -5, holds 1/1), "
        "committed 0 (expected -6, holds 1/1)"
    )
    assert lines == [
        "1 claim fell: the verdicts are as expected, but values differ from the committed evidence",
        "",
        "TOY-02  clip has no lower end  CONFIRMED, with other values than committed",
        "  reproduce: rlverify reproduce TOY-02",
        "",
        "if that is right, run `rlverify audit --update`",
        "TOY-03: has no committed evidence; run `rlverify audit --update`",
    ]


def test_broken_evidence_is_one_line(toy: Command, reports: Path) -> None:
    edits = {_edit_evidence: "was edited after it was measured", _forge_evidence: "says REFUTED, fix None, but its"}
    original = (reports / "evidence" / "TOY-02.json").read_bytes()
    for edit, said in edits.items():
        (reports / "evidence" / "TOY-02.json").write_bytes(original)
        edit(reports, "TOY-02", '"verdict": "CONFIRMED"', '"verdict": "REFUTED"')
        for command in ("gate", "report"):
            code, _, errors = toy(command, "--reports", reports)
            assert code == 2
            assert _one_line(errors.replace("a probe may print\n", ""), f"TOY-02.json: {said}")


def test_update_mends_broken_and_orphaned_evidence(toy: Command, reports: Path, audited: Path) -> None:
    (reports / "evidence" / "GONE-1.json").write_bytes((reports / "evidence" / "TOY-02.json").read_bytes())
    _edit_evidence(reports, "TOY-02", "{", "")
    assert toy("audit", "--update", "--jobs", "1", "--reports", reports)[0] == 0
    names = {path.relative_to(reports) for path in reports.rglob("*.*")}
    assert names == {path.relative_to(audited) for path in audited.rglob("*.*")}
    assert all((reports / name).read_bytes() == (audited / name).read_bytes() for name in names)


def test_an_orphan_is_noticed(toy: Command, reports: Path) -> None:
    _forge_evidence(reports, "TOY-02", "TOY-02", "GONE-1", to="GONE-1")
    code, _, errors = toy("report", "--check", "--reports", reports)
    assert code == 1
    assert _one_line(errors, "GONE-1: has evidence but is in no catalogue")


@pytest.mark.parametrize("options", [[], ["--check"]])
def test_committed_evidence_that_is_not_as_expected_fails_the_report(
    options: list[str], toy: Command, reports: Path, tmp_path: Path
) -> None:
    project = _with_catalogue(tmp_path, ('"PARTIAL"', '"CURED"'))
    code, _, errors = toy("report", *options, "--reports", reports, project=project)
    assert code == 1
    fell, matrix = errors.splitlines()
    assert fell == "rlverify: TOY-01: fix PARTIAL, expected CURED"
    assert matrix.startswith(
        "rlverify: matrix.json: measured of other faults or tests: restored-keeps-total (fix) is gone"
    )


def test_a_fallen_claim_fails_the_gate_even_when_updated(toy: Command, tmp_path: Path) -> None:
    project = _with_catalogue(tmp_path, ('"PARTIAL"', '"CURED"'), ('"REFUTED"', '"CONFIRMED"'))
    code, output, _ = toy("audit", "--update", "--json", project=project)
    content = json.loads(output)
    assert code == content["exit_code"] == 1
    assert [(each["subject"], each["sentence"]) for each in content["problems"]] == [
        ("TOY-01", "fix PARTIAL, expected CURED"),
        ("TOY-04", "REFUTED, expected CONFIRMED"),
    ]


def test_a_report_has_a_hole_where_evidence_is_missing(toy: Command, reports: Path) -> None:
    (reports / "evidence" / "TOY-02.json").unlink()
    code, _, errors = toy("report", "--reports", reports)
    assert code == 1
    assert _one_line(errors, "TOY-02: has no evidence; run `rlverify audit --update`")
    text = (reports / "index.md").read_text(encoding="utf-8")
    assert "**1 without evidence**: TOY-02" in text
    assert "| toy | NO EVIDENCE | - | `rlverify reproduce TOY-02` |" in text
    assert "| open | NO EVIDENCE | CONFIRMED |" in (reports / "claims.md").read_text(encoding="utf-8")


def test_report_renders_the_committed_evidence(toy: Command, reports: Path, audited: Path) -> None:
    (reports / "claims.md").unlink()
    assert toy("report", "--check", "--reports", reports)[0] == 1
    assert not (reports / "claims.md").exists()
    assert toy("report", "--reports", reports)[0] == 0
    assert (reports / "claims.md").read_bytes() == (audited / "claims.md").read_bytes()
    assert toy("report", "--check", "--reports", reports) == (0, "", "")


@pytest.mark.parametrize("name", sorted({*PAGES, "plots/toy-squares.svg"}))
def test_every_page_is_compared(name: str, toy: Command, reports: Path) -> None:
    (reports / name).write_text("edited", encoding="utf-8")
    code, _, errors = toy("report", "--check", "--reports", reports)
    assert code == 1
    assert _one_line(errors, f"{name}: is not what the committed evidence gives")


def test_a_report_of_evidence_that_does_not_fit_says_so(toy: Command, reports: Path, tmp_path: Path) -> None:
    project = _with_catalogue(tmp_path, ("seeds = [7]", "seeds = [8]"), ('[0]\nfault = "null-', '[1]\nfault = "null-'))
    lines = [
        "rlverify: NULL-TOY: STALE, measured with seeds 0, the claim asks for 1; run `rlverify audit --update`",
        "rlverify: TOY-05: STALE, measured with seeds 7, the claim asks for 8; run `rlverify audit --update`",
    ]
    for arguments in (("report", "--check"), ("report",)):
        code, _, errors = toy(*arguments, "--reports", reports, project=project)
        assert (code, errors.splitlines()) == (1, lines)
    assert "**2 stale**, measured for other settings of the claim: NULL-TOY, TOY-05." in (
        reports / "index.md"
    ).read_text(encoding="utf-8")
    text = (reports / "claims.md").read_text(encoding="utf-8")
    assert "**2 stale**, measured for other settings of the claim: TOY-05, NULL-TOY." in text
    assert "| STALE | CONFIRMED |" in text
    assert "NULL-TOY add replaced by itself | arithmetic | STALE |" in text
    content = json.loads(toy("report", "--json", "--reports", reports, project=project)[1])
    assert [each["claim"]["id"] for each in content["claims"] if each["misfits"]] == ["NULL-TOY", "TOY-05"]
    assert toy("audit", "--update", "--jobs", "1", "--reports", reports, project=project)[0] == 0
    assert toy("report", "--check", "--reports", reports, project=project) == (0, "", "")


def test_report_prints_json(toy: Command, audited: Path) -> None:
    content = json.loads(toy("report", "--json", "--reports", audited)[1])["claims"]
    assert {each["claim"]["id"]: each["verdict"] for each in content}["TOY-04"] == "REFUTED"
    assert [each["claim"]["id"] for each in content if each["contradicts_document"]] == ["TOY-01", "TOY-03", "TOY-04"]


def test_help_tells_the_exit_codes(rlverify: Invoke) -> None:
    done = rlverify("--help")
    assert done.returncode == 0
    assert "2 the harness failed" in done.stdout
    assert rlverify("gaet").returncode == 2


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
    ("stop", "number"), [(os.killpg, signal.SIGINT), (os.kill, signal.SIGTERM), (os.killpg, signal.SIGTERM)]
)
@pytest.mark.parametrize("arguments", [["audit", "--update", "--jobs", "2"], ["reproduce", "SLOW"]])
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
    assert _one_line(errors, "interrupted")
    assert [path for path in (slowproject / "reports").rglob("*") if path.is_file()] == []
