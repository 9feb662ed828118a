"""The gate lists what a change weakens, each forgery that a reviewer should see, and no change that only adds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rlverify.records.problems import Weakening
from rlverify.reporting.formats import table_of_weakened
from rlverify.reporting.outcome import lines_of_weakened
from tests.engine.checkouts import answer, commit, copy_project, git, replace
from tests.engine.project_folders import once_in_a_process, write_settings, write_toy_tests

TOYS, FIGURES = "toyproject/catalogue/toy.toml", "figureproject/catalogue/figures.toml"
PROBES, TESTS, NOTES = "toyproject/probes/arithmetic.py", "tests/test_toy.py", "toyproject/documents/notes.md"
POINTS, PAGE, TEMPLATE = "reports/measured/points.json", "reports/notes.md", "engine/page.md.j2"
HELPER, OTHER, SETTINGS = "tests/conftest.py", "tests/test_other.py", "pyproject.toml"
AUDIT, GAIN, EVIDENCE = "reports/full_audit.json", "reports/evidence/FIG-GAIN.json", "reports/evidence/TOY-02.json"
FILES = {
    NOTES: "# Notes\n\nOf all averages that there are here, the mean is not the largest.\n",
    POINTS: '{"logarithmic": true, "x": [1, 10],\n"y": [0.01, 0.95]}\n',
    TEMPLATE: "it is {{ verdict }}\n",
    PAGE: "All is well.\n",
    HELPER: '"""Words."""\n\nLIMIT = 1  # at most\n',
    OTHER: "def test_other():\n    assert 1 + 1 == 2\n",
}
SEEDS_OF_04 = 'probe = "mean-is-largest"\nmodules = ["toyproject.target"]\nseeds = [0]\n'
EARLIER = '\n[[claim.earlier]]\ncriterion = "near"\nverdict = "REFUTED"\nuntil = 2026-11-25\nwhy = "it was vague"\n'
BEFORE_SPIKE = '\n\n[[claim]]\nid = "FIG-SPIKE"'
CLAIMED = "What is claimed of"
PILOT = f'pilot = "8 seeds (1000..1007)"{BEFORE_SPIKE}'
CONDITION = '\n[[claim.condition]]\nname = "b"\ntitle = "t"\nexperiment = "transfer"\nruns = 8\nexpected = "REFUTED"\n'


@pytest.fixture(scope="module")
@once_in_a_process
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Git checkout of the toy project, measured, with a file of each kind; treat as read-only."""
    folder = tmp_path_factory.mktemp("toys") / "checkout"
    copy_project("toyproject", folder)
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    replace(folder / TOYS, SEEDS_OF_04, f'cites = ["notes:3"]\n{SEEDS_OF_04}{EARLIER}')
    write_toy_tests(write_settings(folder, "toyproject", pythonpath=["."]))
    for command in ("audit", "matrix"):
        done = answer(folder, command, "--update")
        assert done.returncode == 0, done.stdout + done.stderr
    git(folder, "init", "--quiet")
    commit(folder, "toys")
    return folder


@pytest.fixture(scope="module")
@once_in_a_process
def conditional(figures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with figures, of which one has a condition; treat as read-only."""
    checkout = shutil.copytree(figures, tmp_path_factory.mktemp("conditional") / "checkout")
    replace(checkout / FIGURES, PILOT, PILOT.replace(BEFORE_SPIKE, f"\n{CONDITION}{BEFORE_SPIKE}"))
    replace(checkout / FIGURES, "runs = 6", "runs = 6\ntolerance = 1.0")
    commit(checkout, "a condition and a tolerance")
    return checkout


@pytest.fixture
def checkout(toys: Path, tmp_path: Path) -> Path:
    """A copy of the toy project to be changed."""
    return shutil.copytree(toys, tmp_path / "checkout")


def gate(checkout: Path, *arguments: str) -> tuple[int, list[Weakening], str]:
    """Exit code, what is weakened and the sentences of all problems; measures one claim."""
    claim = "TOY-02" if (checkout / TOYS).exists() else "FIG-GAIN"
    done = answer(checkout, "gate", claim, "--base", "HEAD", "--json", "-", *arguments)
    assert done.stdout, done.stderr
    content = json.loads(done.stdout)
    problems = "\n".join(f"{each['subject']}: {each['sentence']}" for each in content["problems"])
    return done.returncode, [Weakening(**each) for each in content["weakened"]], problems


WEAKER = [
    ("severity", "TOY-01", TOYS, '"critical"', '"none"', "critical", "none"),
    ("expected verdict", "TOY-04", TOYS, '"REFUTED"\nc', '"CONFIRMED"\nc', "REFUTED", "CONFIRMED"),
    ("earlier 1 verdict", "TOY-04", TOYS, '"REFUTED"\nu', '"CONFIRMED"\nu', "REFUTED", "CONFIRMED"),
    ("earlier 1 criterion", "TOY-04", TOYS, '"near"', '"far"', "near", "far"),
    ("seeds", "TOY-01", TOYS, "seeds = [0, 1]", "seeds = [1, 2]", "0, 1", "1, 2"),
    ("cites", "TOY-04", TOYS, 'cites = ["notes:3"]', "", "notes:3", ""),
    ("killed by", "TOY-01", TOYS, "::test_restore", "", f"{TESTS}::test_restore", TESTS),
    ("document", NOTES, NOTES, "not ", "", "... not the largest.", "... the largest."),
    ("probe", PROBES, PROBES, "before.add(value)", "before.add(1)", "before.add(value)", "before.add(1)"),
    ("helper of tests", HELPER, HELPER, "= 1", "= 2", "LIMIT = 1", "LIMIT = 2"),
    ("test removed", OTHER, OTHER, "test_other", "other", "test_other", ""),
    ("template", TEMPLATE, TEMPLATE, "{{ verdict }}", "CURED", "it is {{ verdict }}", "it is CURED"),
    ("page or measured result", PAGE, PAGE, "All", "Half", "All is well.", "Half is well."),
    ("page or measured result", POINTS, POINTS, "0.01", "0.029", "y.1: 0.01", "y.1: 0.029"),
    ("settings", SETTINGS, SETTINGS, "content", 'command = "x"\ncontent', "", "command: x"),
    ("figure claimed", "FIG-SPIKE", FIGURES, "[5.0, 10.0]", "[5.0, 40.0]", "5.0, 10.0", "5.0, 40.0"),
    ("figure tolerance", "FIG-SPIKE", FIGURES, "tolerance = 1.0", "tolerance = 7.0", "1.0", "7.0"),
    ("statement", "FIG-GAIN", FIGURES, "d of the gain", "d of gain", f"{CLAIMED} the gain.", f"{CLAIMED} gain."),
    ("figure runs", "FIG-SPIKE", FIGURES, "runs = 6", "runs = 5", "6", "5"),
    ("condition removed", "FIG-GAIN@b", FIGURES, CONDITION, "", "REFUTED", ""),
]
"""Of each edit: the kind and the subject that are listed, the file, text and replacement, and what is shown of them."""


@pytest.mark.parametrize("files", ["toys", "conditional"])
def test_what_is_weaker_than_at_the_base_is_listed(files: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    checkout = shutil.copytree(request.getfixturevalue(files), tmp_path / "checkout")
    rows = [row for row in WEAKER if (row[2] == FIGURES) is (files == "conditional")]
    for _, _, file, old, new, _, _ in rows:
        replace(checkout / file, old, new)
    code, weakened, problems = gate(checkout)
    expected = [Weakening(kind, subject, before, after) for kind, subject, _, _, _, before, after in rows]
    assert code == 0, problems
    assert sorted(weakened, key=str) == sorted(expected, key=str)


def test_a_claim_deleted_with_its_evidence_is_listed(checkout: Path) -> None:
    text = (checkout / TOYS).read_text()
    (checkout / TOYS).write_text(text[: text.index('[[claim]]\nid = "TOY-05"')])
    (checkout / "reports/evidence/TOY-05.json").unlink()
    assert gate(checkout)[:2] == (0, [Weakening("claim removed", "TOY-05", "CONFIRMED", "")])


def test_evidence_that_rests_on_one_run_is_listed(checkout: Path) -> None:
    replace(checkout / TOYS, "seeds = [0, 1]", "seeds = [0]")
    assert answer(checkout, "audit", "TOY-01", "--update").returncode == 0
    in_evidence = Weakening("runs in the evidence", "TOY-01", "2", "1")
    assert gate(checkout)[:2] == (0, [Weakening("seeds", "TOY-01", "0, 1", "0"), in_evidence])


NOT_WEAKER = [
    (TOYS, "seeds = [0, 1]", "seeds = [0, 1, 2]"),
    (TOYS, 'killed_by = ["tests/test_toy.py::', f'killed_by = ["{TESTS}::test_clip", "tests/test_toy.py::'),
    (TOYS, 'title = "values count twice"', 'title = "each value counts twice"'),
    (HELPER, "at most", "at least"),
    (HELPER, "Words", "More words"),
    (OTHER, "def test_other", "def test_more():\n    pass\n\n\ndef test_other"),
    (POINTS, "[1, 10],\n", "[1,\n10],"),
    ("toyproject/target.py", "max(self.count, 1)", "max(1, self.count)"),
    ("reports/index.md", "\n\n", "\n\n\n"),
    (SETTINGS, "[tool.rlverify]", "[tool.other]\nx = 1\n[tool.rlverify]"),
    (FIGURES, "tolerance = 1.0", "tolerance = 0.5"),
]


@pytest.mark.parametrize("files", ["toys", "conditional"])
def test_what_only_adds_or_is_compared_elsewhere_is_not_listed(
    files: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    checkout = shutil.copytree(request.getfixturevalue(files), tmp_path / "checkout")
    for file, old, new in NOT_WEAKER:
        if (file == FIGURES) is (files == "conditional"):
            text = (checkout / file).read_text()
            assert old in text
            (checkout / file).write_text(text.replace(old, new, 1))
    code, weakened, _ = gate(checkout, "--no-weakening")
    assert (code, weakened) == (0, [])


def test_a_killing_test_that_kills_no_more_fails(checkout: Path) -> None:
    replace(checkout / TESTS, "assert clip(-5, 0, 3) == 0", "assert True")
    replace(checkout / TESTS, "assert average.count == 1", "assert True")
    code, weakened, problems = gate(checkout)
    lost = "assert clip(-5, 0, 3) == 0 / assert average.count == 1"
    assert weakened == [Weakening("killing test", TESTS, lost, "assert True / assert True")]
    assert (code, "clip-one-sided: (defect) UNREACHED" in problems) == (1, True), problems


def test_a_figure_that_was_not_measured_or_not_for_this_claim_fails(conditional: Path, tmp_path: Path) -> None:
    checkout = shutil.copytree(conditional, tmp_path / "checkout")
    replace(checkout / FIGURES, f"\n{CONDITION}", "\ntolerance = 7.0\n")
    code, weakened, problems = gate(checkout)
    criterion = "judged by another criterion: the claim now names another experiment, quantity or tolerance"
    stale = Weakening("STALE evidence", "FIG-GAIN", "", criterion)
    removed = Weakening("condition removed", "FIG-GAIN@b", "REFUTED", "")
    assert (code, weakened) == (1, [Weakening("figure tolerance", "FIG-GAIN", "0.0", "7.0"), removed, stale])
    assert problems == f"FIG-GAIN: STALE, {criterion}"
    (checkout / GAIN).unlink()
    code, weakened, problems = gate(checkout)
    assert (code, problems) == (1, "FIG-GAIN: has no evidence")
    assert weakened[2:] == [Weakening("evidence removed", "FIG-GAIN", "CONFIRMED", "")]


def test_a_date_of_a_full_audit_that_no_commit_supports_fails(conditional: Path, tmp_path: Path) -> None:
    checkout = shutil.copytree(conditional, tmp_path / "checkout")
    assert AUDIT not in gate(checkout)[2]
    content = json.loads((checkout / AUDIT).read_text())
    for day, revision in (("2030-01-01", ""), ("2001-01-01", "HEAD"), ("2030-01-01", "gone")):
        (checkout / AUDIT).write_text(json.dumps({**content, "date": day, "revision": revision}))
        code, (listed,), problems = gate(checkout)
        assert (code, listed.kind, f"date: {day}" in listed.after) == (1, "full audit", True)
        assert problems.startswith(f"full_audit.json: its date is {day}, and no commit supports it")
    commit(checkout, "forged")
    assert gate(checkout)[:2] == (1, [])


@pytest.mark.parametrize(("file", "name"), [(EVIDENCE, '"verdict"'), (POINTS, '"logarithmic"'), (AUDIT, '"date"')])
def test_a_name_that_stands_twice_in_a_json_file_is_an_error(file: str, name: str, checkout: Path) -> None:
    if file == AUDIT:
        (checkout / file).write_text('{"date": "2026-11-01"}')
    replace(checkout / file, name, f"{name}: 1, {name}")
    done = answer(checkout, "gate", "TOY-02", "--base", "HEAD")
    assert (done.returncode, f"has the name {name}".replace('"', "'") in done.stderr) == (2, True), done.stderr


def test_a_catalogue_of_the_base_that_cannot_be_read_is_listed(checkout: Path) -> None:
    text = (checkout / TOYS).read_text()
    (checkout / TOYS).write_text("claim =")
    commit(checkout, "broken")
    (checkout / TOYS).write_text(text)
    code, weakened, _ = gate(checkout)
    assert (code, weakened[0].kind, "toy.toml" in weakened[0].before) == (0, "catalogue", True)


def test_a_project_that_is_new_since_the_base_weakens_nothing(checkout: Path) -> None:
    git(checkout, "rm", "--quiet", "-r", "--cached", "toyproject", "reports", "tests", SETTINGS)
    git(checkout, "commit", "--quiet", "-m", "nothing")
    assert gate(checkout)[:2] == (0, [])


def test_files_of_any_bytes_are_compared(checkout: Path) -> None:
    (checkout / PAGE).write_bytes(b"caf\xe9\n")
    commit(checkout, "Latin-1")
    (checkout / PAGE).unlink()
    assert gate(checkout)[:2] == (0, [Weakening("page or measured result", PAGE, "caf\ufffd", "")])


def test_it_is_a_note_that_an_option_makes_an_error(checkout: Path) -> None:
    replace(checkout / TOYS, '"critical"', '"none"')
    summary = checkout / "summary.md"
    done = answer(checkout, "gate", "TOY-02", "--base", "HEAD", "--summary", str(summary))
    told = ["what this change weakens, or may weaken (1):", "  severity: TOY-01: critical -> none"]
    assert (done.returncode, done.stdout.splitlines()) == (0, [*told, "1 of 1 claims as expected; see the notes"])
    assert "| severity | TOY-01 | critical | none |" in summary.read_text()
    done = answer(checkout, "gate", "TOY-02", "--base", "HEAD", "--no-weakening")
    head = git(checkout, "rev-parse", "HEAD")[:10]
    sentence = f"--no-weakening: the change since {head} weakens, or may weaken, what is listed"
    assert (done.returncode, done.stdout.splitlines()[0]) == (1, sentence)
    shutil.rmtree(checkout / ".git")
    done = answer(checkout, "gate", "TOY-02", "--no-weakening")
    assert (done.returncode, "name one with --base" in done.stdout) == (2, True)


def test_the_text_has_some_of_each_kind_and_the_table_all() -> None:
    of_one_kind = [Weakening("severity", f"TOY-{n}", "high | low", "none " * 40) for n in range(5)]
    many = [*of_one_kind, *(Weakening(f"kind {n}", "TOY-9", "", "x") for n in range(30))]
    lines = lines_of_weakened(many)
    assert (len(lines), lines[4]) == (22, "  kind 0: TOY-9: nothing -> x")
    assert lines[1].startswith("  severity: TOY-0: high | low -> none none")
    assert lines[1].endswith(" none...")
    assert lines[-1] == "  and 15 more; see --summary FILE or --json FILE"
    assert table_of_weakened(many).count("\n| ") == 1 + 35
    assert "| severity | TOY-0 | high \\| low | none none" in table_of_weakened(many)
    assert lines_of_weakened(()) == []
    assert table_of_weakened(()) == ""


def test_zeros_are_no_base_as_github_gives_them_for_a_new_branch(checkout: Path) -> None:
    done = answer(checkout, "gate", "TOY-02", "--base", "0" * 40)
    assert (done.returncode, "knows no commit" in done.stderr) == (0, False)
