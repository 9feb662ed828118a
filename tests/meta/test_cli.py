"""What a user meets: exit codes, words and one line for every trouble."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rlverify.cli.app import run

PAGES = {
    "bug-report.md",
    "findings.md",
    "fix-summary.md",
    "index.md",
    "integration-analysis.md",
    "potential-problems.md",
    "ppo-verification.md",
}
Command = Callable[..., tuple[int, str, str]]
Invoke = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def toy(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs one command on the toy laboratory in this process: exit code, output, errors."""

    def command(*arguments: str | Path, package: str = "toyproject") -> tuple[int, str, str]:
        code = run(["--package", package, *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of reports, freshly updated; treat as read-only."""
    reports = tmp_path_factory.mktemp("audited") / "reports"
    assert run(["--package", "toyproject", "audit", "--update", "--jobs", "1", "--reports", str(reports)]) == 0
    return reports


@pytest.fixture
def reports(audited: Path, tmp_path: Path) -> Path:
    """A copy of the updated reports, to be changed."""
    for path in audited.rglob("*.*"):
        copy = tmp_path / "reports" / path.relative_to(audited)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    return tmp_path / "reports"


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
    assert shown in listed
    assert (len(listed), shown["expected_verdict"]) == (6, "CONFIRMED")


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


def test_list_imports_neither_torch_nor_the_code_under_test(lab_environment: dict[str, str]) -> None:
    code = (
        "import sys; from rlverify.cli.app import run; assert run(['list']) in (0, 2); "
        "assert run(['--package', 'toyproject', 'list']) == 0; "
        "sys.exit(str([name for name in ('torch', 'scipy', 'rlcore', 'toyproject.target') if name in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=lab_environment, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == "[]"


def test_reproduce_shows_before_and_after_in_words(toy: Command) -> None:
    code, output, _ = toy("reproduce", "TOY-02")
    assert code == 0
    assert "-5 -> 0" in output
    assert "-5 -> -5" in output
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
    assert (content["verdict"], content["exit_code"], len(content["runs"])) == ("CONFIRMED", 0, 2)


@pytest.mark.parametrize(
    ("claim", "exit_code", "line"),
    [
        ("REGRESSED", 1, "REGRESSED: REGRESSED, expected CONFIRMED"),
        ("UNREACHED", 2, "UNREACHED: UNREACHED, faulty: the planted fault"),
        ("CRASH", 2, "CRASH: ERROR, healthy, seed 0: ZeroDivisionError: on purpose"),
        ("STALE", 2, "STALE: STALE, fault stale is stale"),
    ],
)
def test_reproduce_answers_with_its_exit_code(toy: Command, claim: str, exit_code: int, line: str) -> None:
    code, output, _ = toy("reproduce", claim, package="troubleproject")
    assert code == exit_code
    assert output.splitlines()[-1].startswith(line)


def test_an_unknown_claim_is_suggested(toy: Command) -> None:
    for command in ("show", "reproduce"):
        code, output, errors = toy(command, "toy-O1")
        assert (code, output) == (2, "")
        assert errors == "rlverify: no claim named 'toy-O1'; did you mean 'TOY-01'?\n"


def test_a_broken_catalogue_is_one_line(toy: Command, tmp_path: Path) -> None:
    (tmp_path / "toy.toml").write_text('document = "toy"\n[[claim]]\nid = "TOY-01"\n', encoding="utf-8")
    for command in ("list", "gate", "report"):
        code, _, errors = toy("--catalogue", tmp_path, command)
        assert code == 2
        assert _one_line(errors, "toy.toml, TOY-01, title: is missing")


def test_a_catalogue_that_names_what_is_not_there_is_one_line(toy: Command, tmp_path: Path) -> None:
    for path in (Path(__file__).parent / "lab" / "toyproject" / "catalogue").iterdir():
        text = path.read_text(encoding="utf-8")
        (tmp_path / path.name).write_text(text.replace('"mean-is-largest"', '"mean-is-last"'), encoding="utf-8")
    for command in ("gate", "report"):
        code, _, errors = toy("--catalogue", tmp_path, command, "--reports", tmp_path / "reports")
        assert code == 2
        assert _one_line(errors, "toy.toml, TOY-04, probe: there is no 'mean-is-last'")
        assert not (tmp_path / "reports").exists()


def test_a_crash_of_the_harness_is_one_line_and_not_a_fallen_claim(toy: Command) -> None:
    code, _, errors = toy("list", package="json")
    assert code == 2
    assert _one_line(errors)
    code, _, errors = toy("reproduce", "X-1", package="")
    assert code == 2
    assert _one_line(errors, "the harness failed: ValueError")


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
    assert working == {*PAGES, "evidence", "plots", "raw.jsonl"}
    assert {path.name for path in reports.iterdir()} == {*PAGES, "evidence", "plots"}


def _edit_evidence(reports: Path, claim: str, old: str, new: str) -> None:
    path = reports / "evidence" / f"{claim}.json"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_the_gate_falls_when_evidence_or_report_are_out_of_date(toy: Command, reports: Path) -> None:
    def gate() -> tuple[int, list[str]]:
        code, output, _ = toy("gate", "--jobs", "2", "--reports", reports)
        return code, output.splitlines()[:-1]

    (reports / "bug-report.md").write_text("edited", encoding="utf-8")
    assert gate() == (1, ["bug-report.md: is not what the committed evidence gives; run `rlverify report`"])
    _edit_evidence(reports, "TOY-02", '"before": "-5"', '"before": "-6"')
    (reports / "evidence" / "TOY-03.json").unlink()
    code, lines = gate()
    assert code == 1
    assert lines[0].startswith(
        "TOY-02: differs from the committed evidence: healthy: 'clip(-5, 0, 3)' -5 -> 0 (holds 1/1) instead of -6"
    )
    assert lines[0].endswith("if that is right, run `rlverify audit --update`")
    assert lines[1:] == ["TOY-03: has no committed evidence; run `rlverify audit --update`"]


def test_broken_evidence_is_one_line(toy: Command, reports: Path) -> None:
    _edit_evidence(reports, "TOY-02", '"verdict": "CONFIRMED"', '"verdict": "REFUTED"')
    for command in ("gate", "report"):
        code, _, errors = toy(command, "--reports", reports)
        assert code == 2
        assert _one_line(errors, "TOY-02.json: says REFUTED")


def test_update_mends_broken_and_orphaned_evidence(toy: Command, reports: Path, audited: Path) -> None:
    (reports / "evidence" / "GONE-1.json").write_bytes((reports / "evidence" / "TOY-02.json").read_bytes())
    _edit_evidence(reports, "TOY-02", "{", "")
    assert toy("audit", "--update", "--jobs", "1", "--reports", reports)[0] == 0
    names = {path.relative_to(reports) for path in reports.rglob("*.*")}
    assert names == {path.relative_to(audited) for path in audited.rglob("*.*")}
    assert all((reports / name).read_bytes() == (audited / name).read_bytes() for name in names)


def test_an_orphan_is_noticed(toy: Command, reports: Path) -> None:
    text = (reports / "evidence" / "TOY-02.json").read_text(encoding="utf-8")
    (reports / "evidence" / "GONE-1.json").write_text(text.replace("TOY-02", "GONE-1"), encoding="utf-8")
    code, _, errors = toy("report", "--check", "--reports", reports)
    assert code == 1
    assert _one_line(errors, "GONE-1: has evidence but stands in no catalogue")


@pytest.mark.parametrize("options", [[], ["--check"]])
def test_committed_evidence_that_is_not_as_expected_fails_the_report(
    options: list[str], toy: Command, reports: Path, tmp_path: Path
) -> None:
    catalogue = tmp_path / "catalogue"
    shutil.copytree(Path(__file__).parent / "lab" / "toyproject" / "catalogue", catalogue)
    for path in catalogue.iterdir():
        path.write_text(path.read_text(encoding="utf-8").replace('"PARTIAL"', '"CURED"'), encoding="utf-8")
    code, _, errors = toy("--catalogue", catalogue, "report", *options, "--reports", reports)
    assert code == 1
    assert _one_line(errors, "TOY-01: fix PARTIAL, expected CURED")


def test_a_fallen_claim_fails_the_gate_even_when_updated(toy: Command, tmp_path: Path) -> None:
    catalogue = tmp_path / "catalogue"
    catalogue.mkdir()
    source = Path(__file__).parent / "lab" / "toyproject" / "catalogue"
    for path in source.iterdir():
        text = path.read_text(encoding="utf-8")
        (catalogue / path.name).write_text(text.replace('"PARTIAL"', '"CURED"').replace('"REFUTED"', '"CONFIRMED"'))
    code, output, _ = toy("--catalogue", catalogue, "audit", "--update", "--reports", tmp_path / "reports", "--json")
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
    assert "| toy | open | NO EVIDENCE | - | `.venv/bin/rlverify reproduce TOY-02` |" in text
    assert "| NO EVIDENCE | CONFIRMED |" in (reports / "findings.md").read_text(encoding="utf-8")


def test_report_renders_the_committed_evidence(toy: Command, reports: Path, audited: Path) -> None:
    (reports / "bug-report.md").unlink()
    assert toy("report", "--check", "--reports", reports)[0] == 1
    assert not (reports / "bug-report.md").exists()
    assert toy("report", "--reports", reports)[0] == 0
    assert (reports / "bug-report.md").read_bytes() == (audited / "bug-report.md").read_bytes()
    assert toy("report", "--check", "--reports", reports) == (0, "", "")


@pytest.mark.parametrize("name", sorted(PAGES))
def test_every_page_is_compared(name: str, toy: Command, reports: Path) -> None:
    (reports / name).write_text("edited", encoding="utf-8")
    code, _, errors = toy("report", "--check", "--reports", reports)
    assert code == 1
    assert _one_line(errors, f"{name}: is not what the committed evidence gives")


def test_a_report_of_evidence_that_does_not_fit_says_so(toy: Command, reports: Path, tmp_path: Path) -> None:
    catalogue = tmp_path / "catalogue"
    catalogue.mkdir()
    for path in (Path(__file__).parent / "lab" / "toyproject" / "catalogue").iterdir():
        text = path.read_text(encoding="utf-8")
        (catalogue / path.name).write_text(text.replace("seeds = [7]", "seeds = [8]"), encoding="utf-8")
    digest = json.loads((reports / "evidence" / "NULL-TOY.json").read_text())["module_digests"]["toyproject.target"]
    _edit_evidence(reports, "NULL-TOY", digest, "0" * 16)
    lines = [
        "rlverify: NULL-TOY: STALE, toyproject.target changed since; run `rlverify audit --update`",
        "rlverify: TOY-05: STALE, measured with seeds 7, the claim asks for 8; the experiment (claim, probe or fault) "
        "has changed since; run `rlverify audit --update`",
    ]
    for arguments in (("report", "--check"), ("report",)):
        code, _, errors = toy("--catalogue", catalogue, *arguments, "--reports", reports)
        assert (code, errors.splitlines()) == (1, lines)
    text = (reports / "findings.md").read_text(encoding="utf-8")
    assert "**2 stale**" in text
    assert "| STALE | CONFIRMED |" in text
    content = json.loads(toy("--catalogue", catalogue, "report", "--json", "--reports", reports)[1])
    assert [each["claim"]["id"] for each in content if each["misfits"]] == ["NULL-TOY", "TOY-05"]
    assert toy("--catalogue", catalogue, "audit", "--update", "--jobs", "1", "--reports", reports)[0] == 0
    assert toy("--catalogue", catalogue, "report", "--check", "--reports", reports) == (0, "", "")


def test_report_prints_json(toy: Command, audited: Path) -> None:
    content = json.loads(toy("report", "--json", "--reports", audited)[1])
    assert {each["claim"]["id"]: each["verdict"] for each in content}["TOY-04"] == "REFUTED"
    assert [each["claim"]["id"] for each in content if each["contradicts_document"]] == ["TOY-01", "TOY-03", "TOY-04"]


def test_gate_prints_json(toy: Command, audited: Path) -> None:
    code, output, _ = toy("gate", "--json", "--jobs", "1", "--reports", audited)
    assert (code, json.loads(output)) == (0, {"exit_code": 0, "notes": [], "problems": []})


def test_help_tells_the_exit_codes(rlverify: Invoke) -> None:
    done = rlverify("--help")
    assert done.returncode == 0
    assert "2 the harness failed" in done.stdout
    assert rlverify("gaet").returncode == 2


@pytest.fixture
def slowlab(tmp_path: Path) -> Path:
    """A laboratory whose only probe says that it has started and then sleeps."""
    toy_catalogue = (Path(__file__).parent / "lab" / "toyproject" / "catalogue" / "toy.toml").read_text(encoding="utf-8")
    rest = toy_catalogue.partition('id = "TOY-04"')[2]
    entry = f'document = "slow"\n[[claim]]\nid = "SLOW"{rest.partition("[[claim]]")[0]}'
    probe = (
        "import time\nfrom pathlib import Path\nfrom verification.probes import probe\n"
        '@probe("slow")\ndef slow(make, seed):\n    Path(__file__).with_name("started").touch()\n    time.sleep(60)\n'
    )
    files = {
        "catalogue/slow.toml": entry.replace('"mean-is-largest"', '"slow"'),
        "probes/slow.py": probe,
        "faults/none.py": "",
    }
    for name, text in {**files, "probes/make.py": "class Make: pass\n"}.items():
        path = tmp_path / "slowlab" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def _started(folder: Path, program: subprocess.Popen[str]) -> bool:
    while program.poll() is None and not (folder / "slowlab" / "probes" / "started").exists():
        time.sleep(0.02)
    return program.poll() is None


def test_an_interrupted_run_is_one_line_and_leaves_nothing_behind(
    slowlab: Path, lab_environment: dict[str, str]
) -> None:
    environment = {**lab_environment, "PYTHONPATH": f"{slowlab}{os.pathsep}{lab_environment['PYTHONPATH']}"}
    command = [sys.executable, "-m", "rlverify.cli.entry", "--package", "slowlab", "audit", "--update", "--jobs", "2"]
    pipe = subprocess.PIPE
    program = subprocess.Popen(
        [*command, "--reports", str(slowlab / "reports")],
        env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True,
    )  # fmt: skip
    assert _started(slowlab, program)
    os.killpg(program.pid, signal.SIGINT)
    output, errors = program.communicate(timeout=30)
    assert (program.returncode, output) == (130, "")
    assert _one_line(errors, "interrupted")
    assert [path for path in (slowlab / "reports").rglob("*") if path.is_file()] == []
