"""What a difference to the base commit selects, with a lock file and evidence that no run has given."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlverify.evidence.evidence_files import to_json
from rlverify.evidence.figure_evidence import measured_figure
from rlverify.evidence.lock_file import NAME as LOCK_FILE
from rlverify.evidence.lock_file import Lock, load_lock, lock_json
from rlverify.evidence.staleness import SETTINGS
from rlverify.gating import changes
from rlverify.gating.changes import Selection, select
from rlverify.project.content import open_project
from rlverify.project.current_code import CurrentCode
from rlverify.records.code_records import Executed
from rlverify.records.measured import Evidence
from tests.meta.in_process import fresh_projects
from tests.meta.project_folders import PROJECTS
from tests.meta.test_changes import commit, copy_project, git, replace

MIDDLE = "figureproject.target:middle"
FIGURES = ("FIG-GAIN", "FIG-SPIKE", "FIG-DRIFT", "FIG-BETTER")
EVERYTHING = frozenset({*FIGURES, "LAB-01"})


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A Git checkout of the project of figures with one commit; its claims have all executed one function."""
    copy_project("figureproject", tmp_path)
    (tmp_path / ".gitignore").write_text("__pycache__\n", encoding="utf-8")
    (tmp_path / "reports" / "evidence").mkdir(parents=True)
    lock(tmp_path, *EVERYTHING)
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    commit(tmp_path, "figures")
    return tmp_path


def lock(checkout: Path, *ids: str, executed: str = MIDDLE, of_plots: Sequence[str] = ()) -> None:
    """Write the lock file of claims that executed a function, and plots that executed others, as the code is now."""
    with fresh_projects():
        project = open_project(checkout)
        code = CurrentCode(project)
        claims = {
            name: code.record(
                project.settings_digest(project.claim(name)),
                project.sources(project.claim(name)),
                Executed((executed,)),
                Executed(),
            )
            for name in sorted(ids)
        }
        plots = {
            name: code.record("", [plot.__module__], Executed(tuple(of_plots)), Executed())
            for name, plot in project.plots.items()
        }
        (checkout / "reports" / LOCK_FILE).write_text(lock_json(Lock(claims, plots), code), encoding="utf-8")


def selected(checkout: Path) -> Selection:
    """Compared with the last commit."""
    with fresh_projects():
        project = open_project(checkout)
        return select(project, project.paths, "HEAD")


def write_evidence(checkout: Path, claim_id: str, *values: float) -> Evidence:
    evidence = Evidence(claim_id, tuple(range(len(values))), (), figure=measured_figure(values, (15.0, 25.0)))
    (checkout / "reports" / "evidence" / f"{claim_id}.json").write_text(to_json(evidence), encoding="utf-8")
    return evidence


def head(checkout: Path) -> str:
    return git(checkout, "rev-parse", "HEAD")[:10]


def test_without_a_difference_nothing_is_selected(checkout: Path) -> None:
    found = selected(checkout)
    assert (found.claim_ids, found.in_diff, found.plots, found.relocked, found.before) == (
        frozenset(), frozenset(), frozenset(), frozenset(), {},
    )  # fmt: skip
    assert found.reason == f"those of which a run executed what changed since {head(checkout)}"
    assert found.base is not None
    assert (found.base.commit[:10], found.base.top) == (head(checkout), checkout.resolve())


def test_what_all_claims_executed_selects_all_and_says_so(checkout: Path) -> None:
    replace(checkout / "figureproject/target.py", "(low + high) / 2", "(low + high) / 2.2")
    found = selected(checkout)
    assert found.claim_ids == found.in_diff == EVERYTHING
    assert found.reason == f"all of them executed something that changed since {head(checkout)}"
    assert found.changed == dict.fromkeys(EVERYTHING, (MIDDLE,))


def test_settings_select_all_for_measuring_and_none_for_the_difference(checkout: Path) -> None:
    replace(checkout / "pyproject.toml", 'content = "figureproject"', 'content =  "figureproject"')
    found = selected(checkout)
    assert (found.claim_ids, found.in_diff) == (EVERYTHING, frozenset())
    assert found.reason == f"pyproject.toml changed since {head(checkout)}"


@pytest.mark.parametrize(
    ("text", "told"), [(None, "{} has no digests.json"), ("{", "the digests.json of {} is broken")]
)
def test_a_base_that_says_nothing_of_what_was_executed_selects_all(checkout: Path, text: str | None, told: str) -> None:
    path = checkout / "reports" / LOCK_FILE
    good = path.read_text(encoding="utf-8")
    path.unlink()
    if text is not None:
        path.write_text(text, encoding="utf-8")
    commit(checkout, "bad")
    path.write_text(good, encoding="utf-8")
    found = selected(checkout)
    assert found.claim_ids == found.in_diff == EVERYTHING
    assert (found.reason, found.plots, found.base) == (told.format(head(checkout)), frozenset(), None)


def test_a_source_in_another_encoding_is_compared(checkout: Path) -> None:
    path = checkout / "figureproject" / "words.py"
    head_line = b"# coding: latin-1\n"
    path.write_bytes(head_line + b"WORD = '\xe9'\n\n\ndef word():\n    return 1\n")
    lock(checkout, "FIG-GAIN", executed="figureproject.words:word")
    commit(checkout, "words")
    path.write_bytes(head_line + b"WORD = '\xe9'\n\n\ndef word():\n    return 2\n")
    assert selected(checkout).changed["FIG-GAIN"] == ("figureproject.words:word",)
    path.write_bytes(head_line + b"WORD = '\xe8'\n\n\ndef word():\n    return 1\n")
    assert selected(checkout).changed["FIG-GAIN"] == ("figureproject.words",)


def test_evidence_of_figures_from_before_is_at_hand_where_the_base_has_it(checkout: Path) -> None:
    was = write_evidence(checkout, "FIG-GAIN", 19.0, 21.0, 20.0)
    write_evidence(checkout, "FIG-BETTER", 1.0, 2.0, 3.0)
    (checkout / "reports/evidence/FIG-DRIFT.json").write_text("{", encoding="utf-8")
    commit(checkout, "evidence")
    assert selected(checkout).before == {}
    for name in ("FIG-GAIN", "FIG-DRIFT", "FIG-SPIKE"):  # the last is new
        write_evidence(checkout, name, 19.0, 22.0, 20.0)
    found = selected(checkout)
    assert found.before == {"FIG-GAIN": was}
    assert found.in_diff == {"FIG-GAIN", "FIG-DRIFT", "FIG-SPIKE"}


def test_an_entry_of_the_lock_file_is_new_if_it_lists_something_else_or_other_code(checkout: Path) -> None:
    path = checkout / "reports" / LOCK_FILE
    lock(checkout, "FIG-GAIN", executed="figureproject.experiments.values:transfer")
    with fresh_projects():
        code = CurrentCode(open_project(checkout))
        other = load_lock(path, code).claims["FIG-GAIN"]
    lock(checkout, *EVERYTHING - {"LAB-01"})
    commit(checkout, "fewer")
    lock(checkout, *EVERYTHING)
    assert selected(checkout).relocked == {"LAB-01"}
    with fresh_projects():
        code = CurrentCode(open_project(checkout))
        now = load_lock(path, code)
        path.write_text(lock_json(Lock({**now.claims, "FIG-GAIN": other}, {}), code), encoding="utf-8")
    assert selected(checkout).relocked == {"LAB-01", "FIG-GAIN"}
    commit(checkout, "all")
    marked = {
        "FIG-SPIKE": dataclasses.replace(now.claims["FIG-SPIKE"], repeated=3),
        "FIG-DRIFT": dataclasses.replace(now.claims["FIG-DRIFT"], mentioned=("figureproject.target:far",)),
    }
    path.write_text(lock_json(Lock({**now.claims, "FIG-GAIN": other, **marked}, {}), code), encoding="utf-8")
    assert selected(checkout).relocked == {"FIG-SPIKE", "FIG-DRIFT"}
    git(checkout, "checkout", "--quiet", "--", "reports")
    replace(checkout / "figureproject/target.py", "(low + high) / 2", "(low + high) / 2.2")
    assert selected(checkout).relocked == frozenset()
    lock(checkout, *EVERYTHING)
    assert selected(checkout).relocked == EVERYTHING


@pytest.mark.parametrize(
    ("old", "new", "part", "others"),
    [
        ("(low + high) / 2", "(low + high) / 2.2", MIDDLE, set()),
        ("def middle(", "def new():\n    pass\n\n\ndef middle(", "figureproject.target:new", {"figureproject.target"}),
    ],
)
def test_a_lock_file_of_code_that_is_still_to_come_hides_no_change(
    checkout: Path, old: str, new: str, part: str, others: set[str]
) -> None:
    path = checkout / "figureproject/target.py"
    before = path.read_bytes()
    replace(path, old, new)
    after = path.read_bytes()
    lock(checkout, "FIG-GAIN", executed=part)
    path.write_bytes(before)
    commit(checkout, "ahead")
    path.write_bytes(after)
    found = selected(checkout)
    assert {*found.changed["FIG-GAIN"]} == {part, *others}
    assert "FIG-GAIN" in found.in_diff


def test_other_settings_of_a_claim_are_what_changed(checkout: Path) -> None:
    path = checkout / "figureproject/catalogue/figures.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("runs = 8", "runs = 9", 1), encoding="utf-8")
    found = selected(checkout)
    assert found.changed == {**dict.fromkeys(EVERYTHING, ()), "FIG-GAIN": (SETTINGS,)}
    assert found.in_diff == {*FIGURES}  # those of this file


def test_an_entry_for_another_version_of_a_library_is_not_new(checkout: Path) -> None:
    """Every claim is selected then; what its runs execute need not be recorded again."""
    path = checkout / "reports" / LOCK_FILE
    now = path.read_text(encoding="utf-8")
    start = now.index('"rlverify.verdicts": "') + len('"rlverify.verdicts": "')
    path.write_text(now[:start] + "0" * 16 + now[start + 16 :], encoding="utf-8")
    commit(checkout, "other statistics")
    path.write_text(now, encoding="utf-8")
    found = selected(checkout)
    assert (found.in_diff, found.relocked) == (EVERYTHING, frozenset())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("numpy.py", "numpy.py changed"),
        ("numpy/__init__.py", "numpy/__init__.py changed"),
        (os.fsdecode(b"\xff.py"), r"\xff.py changed"),
        ("numpy/core.py", ""),
        ("numpy.txt", ""),
        ("words.py", ""),  # which is edited
        ("figureproject/new.py", ""),
        ("engine/core.py", "engine/core.py changed"),
        ("engine/core.txt", ""),
    ],
)
def test_the_engine_and_modules_that_may_hide_others_affect_everything(
    checkout: Path, name: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = SimpleNamespace(__file__=str(checkout / "engine" / "__init__.py"))
    monkeypatch.setattr(changes, "rlverify", engine)
    (checkout / "engine").mkdir()
    for old in ("words.py", "engine/core.py"):
        (checkout / old).write_text("WORD = 1\n", encoding="utf-8")
    commit(checkout, "words")
    (checkout / name).parent.mkdir(exist_ok=True)
    (checkout / name).write_text("WORD = 2\n", encoding="utf-8")
    found = selected(checkout)
    assert found.claim_ids == (EVERYTHING if reason else frozenset())
    assert found.in_diff == frozenset()
    assert found.reason.startswith(reason or "those of which")


def test_a_plot_is_selected_by_its_code_and_by_its_files(checkout: Path) -> None:
    shutil.copytree(PROJECTS / "toyproject" / "plots", checkout / "figureproject" / "plots", dirs_exist_ok=True)
    plot = checkout / "figureproject/plots/squares.py"
    plot.write_text(plot.read_text(encoding="utf-8").replace("toyproject", "figureproject"), encoding="utf-8")
    (checkout / "figureproject/probes/make.py").write_text("class Make:\n    pass\n", encoding="utf-8")
    lock(checkout, *EVERYTHING)
    commit(checkout, "plot")
    assert selected(checkout).plots == frozenset()
    folder = checkout / "reports" / "plots"
    folder.mkdir()
    for name, expected in (
        ("other.json", set()),
        ("toy-squares.json", {"toy-squares"}),
        ("toy-squares.svg", {"toy-squares"}),
    ):
        (folder / name).touch()
        assert selected(checkout).plots == expected
        (folder / name).unlink()
    lock(checkout, *EVERYTHING, of_plots=[MIDDLE])
    assert (selected(checkout).plots, selected(checkout).in_diff) == ({"toy-squares"}, frozenset())
    lock(checkout, *EVERYTHING)
    replace(plot, '"Exact."', '"Not exact."')
    assert selected(checkout).plots == frozenset()  # the record has the module, and no run executed the function
    replace(plot, '@plot("toy-squares")', 'LIMIT = 3\n\n\n@plot("toy-squares")')
    assert selected(checkout).plots == {"toy-squares"}
