"""Criteria are frozen before they are measured: the command, the file, and what the gate makes of the history."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from datetime import date
from pathlib import Path

import pytest

from rlverify.cli.app import run
from rlverify.gating.committed_evidence import Committed
from rlverify.gating.criteria_check import check_criteria, history_of
from rlverify.project.content import open_project
from rlverify.project.criteria import NAME, FrozenCriterion, frozen_table, load_criteria
from rlverify.project.current_code import CurrentCode
from rlverify.records.errors import CatalogueError
from tests.meta.in_process import fresh_projects
from tests.meta.project_folders import once_in_a_process
from tests.meta.test_changes import answer, commit, copy_project, git

CATALOGUE = "figureproject/catalogue/figures.toml"


@pytest.fixture(scope="module")
@once_in_a_process
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Git checkout in which the criteria were committed before the results; treat as read-only."""
    checkout = tmp_path_factory.mktemp("criteria")
    copy_project("figureproject", checkout)
    (checkout / ".gitignore").write_text(".rlverify\n__pycache__\n")
    git(checkout, "init", "--quiet", "--initial-branch", "main")
    assert run(["--project", str(checkout), "freeze", "--why", 'As the "notes" say.']) == 0
    commit(checkout, "more")
    done = answer(checkout, "audit", "--level", "full", "--update", "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    commit(checkout, "more")
    return checkout


@pytest.fixture
def checkout(frozen: Path, tmp_path: Path) -> Path:
    """A copy of it to be changed."""
    return shutil.copytree(frozen, tmp_path / "checkout")


def problems(checkout: Path) -> list[str]:
    with fresh_projects():
        project = open_project(checkout)
        return list(map(str, check_criteria(Committed(project, project.paths, CurrentCode(project)))))


def change(checkout: Path, old: str, new: str) -> None:
    path = checkout / CATALOGUE
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_what_was_frozen_first_passes(checkout: Path) -> None:
    assert problems(checkout) == []
    criteria = load_criteria(checkout / "figureproject")
    assert criteria is not None
    assert set(criteria) == {"FIG-GAIN", "FIG-SPIKE", "FIG-DRIFT", "FIG-BETTER"}
    assert {each.why for found in criteria.values() for each in found} == {'As the "notes" say.'}


def test_a_project_without_the_file_freezes_nothing(checkout: Path) -> None:
    (checkout / "figureproject" / NAME).unlink()
    assert problems(checkout) == []


def test_a_criterion_that_was_changed_is_told_with_the_day(checkout: Path) -> None:
    change(checkout, "[15.0, 25.0]", "[15.0, 24.0]")
    (told,) = problems(checkout)
    assert re.fullmatch(
        r"FIG-GAIN: its criterion was changed since it was frozen on \d{4}-\d\d-\d\d; run `rlverify freeze FIG-GAIN "
        r"--why TEXT`, and commit that before you measure",
        told,
    )


def test_the_gate_fails_where_a_criterion_was_changed(checkout: Path) -> None:
    change(checkout, "[15.0, 25.0]", "[15.0, 24.0]")
    done = answer(checkout, "audit", "--jobs", "1")
    assert done.returncode == 1
    assert "its criterion was changed since it was frozen" in done.stdout + done.stderr


def test_a_figure_that_was_never_frozen_is_told(checkout: Path) -> None:
    path = checkout / "figureproject" / NAME
    path.write_text(re.sub(r'"FIG-GAIN".*\n', "", path.read_text()))
    (told,) = problems(checkout)
    assert told.startswith("FIG-GAIN: its criterion is not frozen; run `rlverify freeze FIG-GAIN --why TEXT`")


def test_a_second_criterion_needs_the_first_one_with_its_verdict(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(checkout, "[15.0, 25.0]", "[15.0, 24.0]")
    assert run(["--project", str(checkout), "freeze", "--why", "Narrower."]) == 0
    assert "froze 1 of 4 criteria in criteria.toml" in capsys.readouterr().out
    (told,) = problems(checkout)
    assert told.startswith("FIG-GAIN: its criterion was frozen 2 times, and its claim has 0 [[claim.earlier]]")
    earlier = '[[claim.earlier]]\ncriterion = "15 to 25 %"\nverdict = "REFUTED"\nuntil = 2026-11-21\nwhy = "Wide."\n\n'
    path = checkout / CATALOGUE
    head, _, tail = path.read_text().partition('id = "FIG-GAIN"')
    own, separator, rest = tail.partition("[[claim]]")
    path.write_text(f'{head}id = "FIG-GAIN"{own}{earlier}{separator}{rest}')
    assert problems(checkout) == []


def refrozen(checkout: Path, *options: str) -> None:
    """A criterion is changed together with its result, as after a look at it."""
    change(checkout, "[15.0, 25.0]", "[15.0, 24.0]")
    path = checkout / "figureproject" / NAME
    path.write_text(re.sub(r'"FIG-GAIN".*\n', "", path.read_text()))  # so that no earlier one is asked for
    assert run(["--project", str(checkout), "freeze", "FIG-GAIN", "--why", "After a look.", *options]) == 0
    assert answer(checkout, "audit", "--level", "full", "--update", "--jobs", "1").returncode in (0, 1)


def test_a_criterion_in_one_commit_with_its_result_is_told(checkout: Path) -> None:
    refrozen(checkout)
    commit(checkout, "more")
    assert problems(checkout) == [
        "FIG-GAIN: its criterion was committed after its result, or together with it; say so with `rlverify freeze "
        "FIG-GAIN --after-result --why TEXT`"
    ]


def test_a_result_that_was_known_may_be_admitted(checkout: Path) -> None:
    refrozen(checkout, "--after-result")
    commit(checkout, "more")
    assert problems(checkout) == []


def test_a_shallow_clone_does_not_know_the_order(checkout: Path, tmp_path: Path) -> None:
    refrozen(checkout)
    commit(checkout, "more")
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{checkout}", tmp_path / "clone"], check=True)
    assert problems(tmp_path / "clone") == []


def test_without_a_repository_there_is_no_history(tmp_path: Path) -> None:
    assert history_of(tmp_path / NAME, tmp_path / "digests.json") is None


def test_a_reason_may_have_quotes_and_lines() -> None:
    why = 'As "said":\n\\ twice — ja'
    text = frozen_table(date(2026, 11, 25), why, {"A-1": "1"}, after_result=True)
    (table,) = tomllib.loads(text)["frozen"]
    assert table == {"day": date(2026, 11, 25), "why": why, "after_result": True, "claims": {"A-1": "1"}}


def test_freeze_asks_for_a_reason_and_freezes_nothing_twice(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (checkout / "figureproject" / NAME).read_text()
    assert run(["--project", str(checkout), "freeze"]) == 2
    assert "--why is missing" in capsys.readouterr().err
    assert run(["--project", str(checkout), "freeze", "--why", "Again."]) == 0
    assert "nothing to freeze: 4 criteria are as they were frozen" in capsys.readouterr().out
    assert (checkout / "figureproject" / NAME).read_text() == before


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[frozen]]\nday = 2026-11-25\n", "frozen.0.why: Field required"),
        ("[[frozen]\n", "cannot be read"),
        ('[[frozen]]\nday = 2026-11-25\nwhy = "x"\n[frozen.claims]\n', "frozen.0.claims"),
    ],
)
def test_a_broken_file_is_told(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(text)
    with pytest.raises(CatalogueError) as caught:
        load_criteria(tmp_path)
    assert told in str(caught.value)


def test_the_latest_criterion_comes_last(tmp_path: Path) -> None:
    tables = [f'[[frozen]]\nday = 2026-11-2{n}\nwhy = "x{n}"\n[frozen.claims]\n"A-1" = "{n}"\n' for n in (1, 2)]
    (tmp_path / NAME).write_text("\n".join([*tables]))
    criteria = load_criteria(tmp_path)
    assert criteria is not None
    assert [each.digest for each in criteria["A-1"]] == ["1", "2"]
    assert isinstance(criteria["A-1"][0], FrozenCriterion)
