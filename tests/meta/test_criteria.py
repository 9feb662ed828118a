"""Criteria are frozen before they are measured: the command, the file, and what the gate makes of the history."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from datetime import date
from pathlib import Path

import pytest

from rlverify.cli.app import run
from rlverify.gating.committed_evidence import Committed
from rlverify.gating.criteria_check import ORDER_UNKNOWN, History, check_criteria, history_of
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
        found, _ = check_criteria(Committed(project, project.paths, CurrentCode(project)))
        return list(map(str, found))


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
    shutil.rmtree(checkout / ".git")
    (checkout / "figureproject" / NAME).unlink()
    assert problems(checkout) == []


def test_a_deleted_file_of_criteria_is_reported(checkout: Path) -> None:
    (checkout / "figureproject" / NAME).unlink()
    told = ["criteria.toml: was deleted, so no criterion is checked; restore it from Git"]
    assert problems(checkout) == told
    commit(checkout, "Delete it.")
    assert problems(checkout) == told


def test_a_changed_criterion_is_reported_with_the_day_on_which_it_was_frozen(checkout: Path) -> None:
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


def test_only_the_criteria_of_chosen_claims_are_checked(checkout: Path) -> None:
    change(checkout, "[15.0, 25.0]", "[15.0, 24.0]")
    unrelated = answer(checkout, "audit", "FIG-BETTER", "--jobs", "1")
    assert unrelated.returncode == 0, unrelated.stdout + unrelated.stderr
    assert answer(checkout, "audit", "FIG-GAIN", "--jobs", "1").returncode == 1
    unfreeze(checkout, "FIG-GAIN")
    assert answer(checkout, "audit", "FIG-BETTER", "--jobs", "1").returncode == 0


def unfreeze(checkout: Path, claim_id: str) -> str:
    """Delete the lines of a claim from the file of criteria, and return the digest that was in them."""
    path = checkout / "figureproject" / NAME
    found = re.search(rf'"{claim_id}" = "(.*)"', path.read_text())
    assert found is not None
    path.write_text(re.sub(rf'"{claim_id}".*\n', "", path.read_text()))
    return found[1]


def test_a_figure_that_was_never_frozen_is_reported(checkout: Path) -> None:
    unfreeze(checkout, "FIG-GAIN")
    told, _ = problems(checkout)
    assert told.startswith("FIG-GAIN: its criterion is not frozen; run `rlverify freeze FIG-GAIN --why TEXT`")


def test_a_frozen_criterion_must_stay_in_the_file(checkout: Path) -> None:
    digest = unfreeze(checkout, "FIG-GAIN")
    change(checkout, "[15.0, 25.0]", "[15.0, 24.0]")
    assert freeze(checkout, "FIG-GAIN", "--after-result") == 0
    commit(checkout, "Forget the first one.")
    assert problems(checkout) == [
        f"FIG-GAIN: its frozen criterion {digest} was removed from criteria.toml; restore that line; a criterion that "
        "was changed stays in the file, before the new one"
    ]


def test_a_frozen_criterion_needs_its_claim(checkout: Path) -> None:
    path = checkout / CATALOGUE
    path.write_text(path.read_text().replace('"FIG-BETTER"', '"FIG-WORSE"'))
    assert freeze(checkout, "FIG-WORSE") == 0
    assert problems(checkout) == [
        "FIG-BETTER: has a frozen criterion in criteria.toml, and the catalogue has no such figure; restore the claim, "
        "or the condition, so that its result is shown"
    ]


def freeze(checkout: Path, *arguments: str) -> int:
    return run(["--project", str(checkout), "freeze", "--why", "Narrower.", *arguments])


EARLIER = '[[claim.earlier]]\ncriterion = "15 to 25 %"\nverdict = "REFUTED"\nuntil = 2026-11-21\nwhy = "Wide."\n\n'
KNOWN = (
    "FIG-GAIN: its criterion was changed after an earlier one was measured; say so with `rlverify freeze FIG-GAIN "
    "--after-result --why TEXT`"
)


def add_earlier(checkout: Path) -> None:
    path = checkout / CATALOGUE
    head, _, tail = path.read_text().partition('id = "FIG-GAIN"')
    own, separator, rest = tail.partition("[[claim]]")
    path.write_text(f'{head}id = "FIG-GAIN"{own}{EARLIER}{separator}{rest}')


def test_a_second_criterion_needs_the_first_one_with_its_verdict(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(checkout, "[15.0, 25.0]", "[15.0, 24.0]")
    assert freeze(checkout, "--after-result") == 0
    assert "froze 1 of 4 criteria in criteria.toml" in capsys.readouterr().out
    assert problems(checkout) == [
        "FIG-GAIN: it has 2 criteria, frozen one after the other, and 0 [[claim.earlier]]; add a `[[claim.earlier]]` "
        "table for each criterion that was changed, with its verdict and the reason"
    ]
    add_earlier(checkout)
    assert problems(checkout) == []


def test_a_second_criterion_for_runs_that_were_seen_must_admit_it(checkout: Path) -> None:
    change(checkout, "[15.0, 25.0]", "[15.0, 24.0]")
    add_earlier(checkout)
    assert freeze(checkout) == 0
    assert problems(checkout) == [KNOWN]
    commit(checkout, "more")
    assert problems(checkout) == [KNOWN]
    assert freeze(checkout, "FIG-GAIN", "--after-result") == 0
    assert problems(checkout) == []


def test_a_second_criterion_before_any_result_needs_no_admission(tmp_path: Path) -> None:
    copy_project("figureproject", tmp_path)
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    assert freeze(tmp_path) == 0
    change(tmp_path, "[15.0, 25.0]", "[15.0, 24.0]")
    add_earlier(tmp_path)
    assert freeze(tmp_path) == 0
    commit(tmp_path, "more")
    assert problems(tmp_path) == []


def refrozen(checkout: Path) -> None:
    """The history has FIG-GAIN only with a criterion that was frozen together with its result, after a look at it."""
    git(checkout, "checkout", "--quiet", "--orphan", "other")
    unfreeze(checkout, "FIG-GAIN")
    change(checkout, "[15.0, 25.0]", "[15.0, 24.0]")
    assert freeze(checkout, "FIG-GAIN") == 0
    assert answer(checkout, "audit", "--level", "full", "--update", "--jobs", "1").returncode in (0, 1)
    commit(checkout, "more")
    git(checkout, "branch", "--quiet", "-D", "main")


TOGETHER = (
    "FIG-GAIN: its criterion was committed after its result, or together with it; say so with `rlverify freeze "
    "FIG-GAIN --after-result --why TEXT`"
)


def of_gain(found: list[str]) -> list[str]:
    return [each for each in found if each.startswith("FIG-GAIN: ")]


def test_a_criterion_in_one_commit_with_its_result_is_reported(checkout: Path) -> None:
    refrozen(checkout)
    assert of_gain(problems(checkout)) == [TOGETHER]


def test_a_known_result_can_be_admitted_by_the_advised_command(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refrozen(checkout)
    capsys.readouterr()
    assert freeze(checkout, "FIG-GAIN", "--after-result") == 0
    assert "froze 1 of 1 criteria" in capsys.readouterr().out
    assert of_gain(problems(checkout)) == []
    assert freeze(checkout, "FIG-GAIN", "--after-result") == 0
    assert "nothing to freeze" in capsys.readouterr().out


def test_only_claims_that_are_named_are_admitted(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert freeze(checkout, "--after-result") == 0
    assert "nothing to freeze: 4 criteria" in capsys.readouterr().out


def test_a_shallow_clone_does_not_know_the_order_and_says_so(checkout: Path, tmp_path: Path) -> None:
    refrozen(checkout)
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{checkout}", tmp_path / "clone"], check=True)
    assert problems(tmp_path / "clone") == []
    done = answer(tmp_path / "clone", "audit", "--jobs", "1")
    assert ORDER_UNKNOWN in done.stdout + done.stderr
    assert ORDER_UNKNOWN not in answer(checkout, "audit", "--jobs", "1").stdout


def test_an_update_warns_before_it_measures_what_is_not_frozen(checkout: Path) -> None:
    change(checkout, "[15.0, 25.0]", "[15.0, 24.0]")
    done = answer(checkout, "audit", "FIG-GAIN", "--level", "full", "--update", "--jobs", "1")
    assert done.stderr.startswith(
        "warning: the criteria of FIG-GAIN are not frozen as they are now; run `rlverify freeze`"
    )
    done = answer(checkout, "audit", "FIG-BETTER", "--level", "full", "--update", "--jobs", "1")
    assert "warning" not in done.stderr


# What the history says, in repositories of two files.


@pytest.fixture(params=["content", "a folder, ö"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    made = tmp_path / str(request.param)
    made.mkdir()
    return made


def history(folder: Path) -> History:
    found = history_of(folder / NAME, folder / "digests.json")
    assert found is not None
    return found


def add(folder: Path, *frozen: str, measured: str = "") -> None:
    """A commit with these frozen criteria of A-1, or a result."""
    if frozen:
        text = "".join(f'"A-1" = "{each * 16}"\n' for each in frozen)
        (folder / NAME).write_text(f"[[frozen]]\n[frozen.claims]\n{text}")
    if measured:
        (folder / "digests.json").write_text(f'{{\n  "A-1": {{\n    "settings": "{measured * 16}"\n  }}\n}}\n')
    commit(folder, "more")


def is_first(folder: Path, digest: str = "1") -> bool:
    return history(folder).is_frozen_first("A-1", digest * 16)


def test_what_was_frozen_and_then_measured_is_frozen_first(folder: Path) -> None:
    add(folder, "1")
    assert history(folder).measured == {}
    add(folder, measured="1")
    assert is_first(folder)
    assert not history(folder).is_frozen_first("A-2", "1" * 16)


def test_what_was_measured_and_then_frozen_is_not(folder: Path) -> None:
    add(folder, measured="1")
    add(folder, "1")
    assert not is_first(folder)
    add(folder, measured="2")
    add(folder, measured="1")  # a later result does not hide the first one
    assert not is_first(folder)


def test_what_was_measured_in_the_first_commit_is_not_frozen_first(folder: Path) -> None:
    git(folder, "config", "log.showRoot", "false")
    add(folder, "1", measured="1")
    assert not is_first(folder)


@pytest.mark.parametrize(
    "text",
    [
        '# "{digest}"\n',
        '# "A-1" = "{digest}"\n',
        'why = \'"A-1" = "{digest}"\'\n',
        'why = "x\u2028+"A-1" = "{digest}"\n',
        '"A-2" = "{digest}"\n',
    ],
)
def test_only_the_line_of_the_claim_freezes_its_criterion(text: str, folder: Path) -> None:
    (folder / NAME).write_text(text.format(digest="1" * 16), encoding="utf-8")
    commit(folder, "A comment.")
    add(folder, measured="1")
    add(folder, "1")
    assert not is_first(folder)


def test_only_the_settings_of_a_lock_file_are_a_result(folder: Path) -> None:
    (folder / "digests.json").write_text(f'{{\n  "A-1": {{\n    "source": "{"1" * 16}"\n  }}\n}}\n')
    commit(folder, "Another digest.")
    add(folder, "1")
    assert history(folder).measured == {}


def test_branches_are_compared_by_their_ancestors(folder: Path) -> None:
    add(folder, "2")
    git(folder, "checkout", "--quiet", "-b", "side")
    add(folder, measured="1")
    git(folder, "checkout", "--quiet", "main")
    add(folder, "2", "1")
    git(folder, "merge", "--quiet", "--no-edit", "side")
    assert not is_first(folder)


def test_a_result_on_a_branch_after_the_merge_of_its_criterion_is_right(folder: Path) -> None:
    add(folder, "2")
    git(folder, "checkout", "--quiet", "-b", "side")
    add(folder, measured="3")
    git(folder, "checkout", "--quiet", "main")
    add(folder, "2", "1")
    git(folder, "checkout", "--quiet", "side")
    git(folder, "merge", "--quiet", "--no-edit", "main")
    add(folder, measured="1")
    git(folder, "checkout", "--quiet", "main")
    git(folder, "merge", "--quiet", "--no-ff", "--no-edit", "side")
    assert is_first(folder)


def test_every_result_counts_and_any_earlier_freeze_is_enough(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2026-11-01T12:00:00")

    def on_branch(branch: str, day: int, *frozen: str, measured: str = "") -> None:
        monkeypatch.setenv("GIT_COMMITTER_DATE", f"2026-11-{day:02}T12:00:00")
        git(folder, "checkout", "--quiet", branch)
        add(folder, *frozen, measured=measured)

    def merge(*branches: str) -> None:
        for branch in branches:
            git(folder, "merge", "--quiet", "--no-edit", "--strategy", "ours", branch)

    add(folder, "2")
    for branch in ("early", "late", "wrong"):
        git(folder, "branch", branch)
    on_branch("early", 2, "2", "1")
    on_branch("main", 3, "2", "1")
    on_branch("late", 4, "2", "1")
    on_branch("main", 5, measured="1")
    merge("early", "late")
    assert is_first(folder)
    on_branch("wrong", 7, measured="1")
    git(folder, "checkout", "--quiet", "main")
    merge("wrong")
    assert not is_first(folder)


def test_a_merge_that_adds_a_criterion_and_its_result_is_seen(folder: Path) -> None:
    add(folder, "2")
    git(folder, "checkout", "--quiet", "-b", "side")
    add(folder, measured="3")
    git(folder, "checkout", "--quiet", "main")
    (folder / "other").write_text("x")
    commit(folder, "more")
    git(folder, "merge", "--quiet", "--no-commit", "side")
    add(folder, "2", "1", measured="1")
    assert ("A-1", "1" * 16) in history(folder).frozen
    assert not is_first(folder)


def test_a_criterion_that_a_merge_drops_is_in_the_history(folder: Path) -> None:
    add(folder, "2")
    git(folder, "checkout", "--quiet", "-b", "side")
    add(folder, "2", "1")
    git(folder, "checkout", "--quiet", "main")
    (folder / "other").write_text("x")
    commit(folder, "more")
    git(folder, "merge", "--quiet", "--no-edit", "--strategy", "ours", "side")
    assert ("A-1", "1" * 16) in history(folder).frozen


@pytest.mark.parametrize("attributes", ["* -diff", "* diff=hidden", "* binary"])
def test_attributes_and_configuration_cannot_hide_the_history(attributes: str, folder: Path) -> None:
    git(folder, "config", "diff.hidden.textconv", "true")
    git(folder, "config", "log.diffMerges", "off")
    (folder / ".gitattributes").write_text(f"{attributes}\n")
    add(folder, measured="1")
    add(folder, "1")
    assert not is_first(folder)


def test_without_a_repository_there_is_no_history(tmp_path: Path) -> None:
    assert history_of(tmp_path / NAME, tmp_path / "digests.json") is None


def test_a_reason_may_have_quotes_and_lines() -> None:
    why = 'As "said":\n\\ twice — ja'
    text = frozen_table(date(2026, 11, 25), why, {"A-1": "1"}, after_result=True)
    assert text == (
        '[[frozen]]\nday = 2026-11-25\nwhy = "As \\"said\\":\\n\\\\ twice — ja"\nafter_result = true\n\n'
        '[frozen.claims]\n"A-1" = "1"\n'
    )
    (table,) = tomllib.loads(text)["frozen"]
    assert table == {"day": date(2026, 11, 25), "why": why, "after_result": True, "claims": {"A-1": "1"}}


def test_freeze_asks_for_a_reason_and_freezes_nothing_twice(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (checkout / "figureproject" / NAME).read_text()
    assert run(["--project", str(checkout), "freeze"]) == 2
    assert "--why is missing" in capsys.readouterr().err
    assert freeze(checkout) == 0
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
def test_a_broken_file_is_reported(text: str, told: str, tmp_path: Path) -> None:
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


def test_freeze_freezes_only_what_it_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy_project("figureproject", tmp_path)
    assert freeze(tmp_path, "fig-gain", "FIG-B*") == 0
    assert "froze 2 of 2 criteria" in capsys.readouterr().out
    assert (load_criteria(tmp_path / "figureproject") or {}).keys() == {"FIG-GAIN", "FIG-BETTER"}
    assert freeze(tmp_path) == 0
    text = (tmp_path / "figureproject" / NAME).read_text()
    assert re.sub(r'= ("\w*"|[\d-]*)\n', "= x\n", text).partition("\n")[2] == (
        '\n[[frozen]]\nday = x\nwhy = "Narrower."\n\n[frozen.claims]\n"FIG-BETTER" = x\n"FIG-GAIN" = x\n'
        '\n[[frozen]]\nday = x\nwhy = "Narrower."\n\n[frozen.claims]\n"FIG-DRIFT" = x\n"FIG-SPIKE" = x\n'
    )


CONDITION = """
[[claim.condition]]
name = "half"
title = "half as long"
experiment = "transfer"
runs = 8
expected = "CONFIRMED"
"""


def test_freeze_takes_the_conditions_of_a_claim_with_it(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = checkout / CATALOGUE
    path.write_text(path.read_text() + CONDITION)
    claim_id = path.read_text().rpartition('\nid = "')[2].partition('"')[0]
    assert freeze(checkout, claim_id, "--after-result") == 0
    assert "froze 2 of 2 criteria" in capsys.readouterr().out
    frozen = (load_criteria(checkout / "figureproject") or {})[f"{claim_id}@half"]
    assert len(frozen) == 1
    assert freeze(checkout, f"{claim_id}@HALF") == 0
    assert "nothing to freeze: 1 criteria" in capsys.readouterr().out


@pytest.mark.parametrize("named", [["LAB-01"], ["LAB-*"], ["FIG-GAIN", "LAB-01"]])
def test_freeze_takes_claims_that_have_a_criterion(
    named: list[str], checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (checkout / "figureproject" / NAME).read_text()
    assert freeze(checkout, *named, "--after-result") == 2
    assert f"{named[-1]!r} has no figure and no condition" in capsys.readouterr().err
    assert (checkout / "figureproject" / NAME).read_text() == before


def test_freeze_reports_an_unknown_id(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert freeze(checkout, "FIG-GIAN") == 2
    assert "FIG-GAIN" in capsys.readouterr().err


@pytest.fixture
def conditioned(checkout: Path) -> Path:
    """The checkout after FIG-GAIN got a condition that is measured and another verdict than its own."""
    path = checkout / CATALOGUE
    head, _, tail = path.read_text().partition('id = "FIG-GAIN"')
    own, separator, rest = tail.partition("[[claim]]")
    condition = CONDITION.replace('"CONFIRMED"', '"REFUTED"\nclaimed = [100.0, 200.0]\nrepeats = true')
    path.write_text(f'{head}id = "FIG-GAIN"{own}{condition}\n{separator}{rest}')
    assert freeze(checkout, "FIG-GAIN") == 0
    done = answer(checkout, "audit", "--level", "full", "--update", "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    return checkout


def test_all_formats_give_the_verdict_that_conditions_leave(conditioned: Path) -> None:
    found = json.loads(answer(conditioned, "report", "--format", "json").stdout)["claims"]
    verdicts = {each["claim"]["id"]: each["verdict"] for each in found}
    assert (verdicts["FIG-GAIN"], verdicts["FIG-GAIN@half"]) == ("UNDECIDED", "REFUTED")
    assert "UNDECIDED: CONFIRMED under the claim" in answer(conditioned, "report", "--format", "junit").stdout
    assert "**UNDECIDED**" in (conditioned / "reports/claims.md").read_text()
    done = answer(conditioned, "report", "--check")
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("chosen", ["FIG-GAIN", "FIG-GAIN@half", "FIG-GAIN*"])
def test_a_page_about_some_claims_shows_conditions_with_their_claim(chosen: str, conditioned: Path) -> None:
    done = answer(conditioned, "report", chosen, "--format", "html")
    assert done.returncode == 0, done.stderr
    assert "half as long" in done.stdout
    assert "FIG-BETTER" not in done.stdout
    (found,) = json.loads(answer(conditioned, "report", "FIG-GAIN@half", "--format", "json").stdout)["claims"]
    assert found["claim"]["id"] == "FIG-GAIN@half"


@pytest.mark.parametrize("claim_id", ["FIG-GAIN@half", "fig-gain@half", "FIG-GAIN@HALF"])
def test_a_condition_is_shown_in_any_case(claim_id: str, conditioned: Path) -> None:
    assert answer(conditioned, "show", claim_id).stdout.startswith("FIG-GAIN@half: ")
