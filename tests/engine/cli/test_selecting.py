"""Which claims a pattern or an area names, and what is suggested where it names none."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rlverify.cli.options import select_claims
from rlverify.evidence.files import sealed
from rlverify.project.content import Project
from rlverify.records.claims import Claim
from rlverify.records.errors import UnknownNameError, suggestion
from rlverify.records.measured import Run
from rlverify.running import runner
from rlverify.running.executors import InlineExecutor, ProcessExecutor
from tests.engine.project_folders import project_in, toy_catalogue, write_toy_tests

Command = Callable[..., tuple[int, str, str]]
EVERY = ["NULL-TOY", "TOY-01", "TOY-02", "TOY-03", "TOY-04", "TOY-05"]


@pytest.mark.parametrize(
    ("patterns", "areas", "expected"),
    [
        ([], [], EVERY),
        (["TOY-02"], [], ["TOY-02"]),
        (["toy-04", "Toy-02"], [], ["TOY-02", "TOY-04"]),
        (["TOY-*"], [], EVERY[1:]),
        (["*-0[12]", "null-???"], [], ["NULL-TOY", "TOY-01", "TOY-02"]),
        ([], ["state"], ["TOY-01"]),
        ([], ["State", "arithmetic"], EVERY),
        (["TOY-01", "TOY-05"], ["arithmetic"], ["TOY-05"]),
    ],
)
def test_claims_fit_one_of_the_patterns_and_one_of_the_areas(
    patterns: list[str], areas: list[str], expected: list[str], toyproject: Project
) -> None:
    assert [claim.id for claim in select_claims(toyproject.claims, patterns, areas)] == expected


@pytest.mark.parametrize(
    ("patterns", "areas", "told"),
    [
        (["TOY-02", "TOY-1"], [], "no claim fits 'TOY-1'; did you mean 'TOY-01'?"),
        (["tyo-*"], [], "no claim fits 'tyo-*'"),
        (["NULL-TOX"], [], "no claim fits 'NULL-TOX'; did you mean 'NULL-TOY'?"),
        (["something"], [], "no claim fits 'something'"),
        (["TOY-02"], ["aritmetic"], "no claim is in area 'aritmetic'; did you mean 'arithmetic'?"),
        ([], ["xyz"], "no claim is in area 'xyz'; the areas are arithmetic, state"),
        (["TOY-04", "TOY-05"], ["state"], "no claim fits 'TOY-04' or 'TOY-05' and is in area 'state'"),
    ],
)
def test_what_fits_no_claim_is_an_error_with_a_suggestion(
    patterns: list[str], areas: list[str], told: str, toyproject: Project
) -> None:
    with pytest.raises(UnknownNameError, match=f"^{re.escape(told)}$"):
        select_claims(toyproject.claims, patterns, areas)


@pytest.mark.parametrize(
    ("name", "suggested"),
    [("PPO-1", "PPO-01"), ("ppo-0003", "PPO-03"), ("PPO-T2", "PPO-T1"), ("ppo-10", "PPO-10"), ("PPO-100", "PPO-10")],
)
def test_the_same_number_is_suggested_before_a_similar_name(name: str, suggested: str) -> None:
    assert suggestion(name, ["PPO-T1", "PPO-10", "PPO-01", "PPO-03"]) == f"; did you mean {suggested!r}?"


def test_nothing_is_suggested_where_nothing_is_similar() -> None:
    assert suggestion("xyz", ["PPO-01"]) == ""


@pytest.fixture
def reports(auditedproject: Path, tmp_path: Path) -> Path:
    """A copy of the updated reports, to be changed."""
    for path in (auditedproject / "reports").rglob("*.*"):
        copy = tmp_path / path.relative_to(auditedproject)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    return tmp_path / "reports"


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def _forge(path: Path, old: str, new: str) -> None:
    """Edit evidence, and give it a digest that fits."""
    _replace(path, old, new)
    content = json.loads(path.read_text(encoding="utf-8"))
    del content["digest"]
    path.write_text(sealed(content), encoding="utf-8")


def test_list_shows_the_chosen_claims(toy: Command) -> None:
    claims = json.loads(toy("list", "toy-0[34]", "TOY-01", "--json")[1])["claims"]
    assert [each["id"] for each in claims] == ["TOY-01", "TOY-03", "TOY-04"]
    assert toy("list", "TOY-1") == (2, "", "rlverify: no claim fits 'TOY-1'; did you mean 'TOY-01'?\n")


def test_an_id_may_be_typed_in_any_case(toy: Command) -> None:
    assert toy("show", "toy-02") == toy("show", "TOY-02")
    assert toy("reproduce", "Toy-02")[0] == 0


def test_the_gate_says_nothing_about_other_claims(toy: Command, reports: Path) -> None:
    (reports / "evidence" / "TOY-03.json").unlink()
    _forge(reports / "evidence" / "TOY-02.json", '"before": "-5"', '"before": "-6"')
    (reports / "claims.md").write_text("edited", encoding="utf-8")
    code, output, _ = toy("gate", "TOY-01", "TOY-05", "--reports", reports)
    assert (code, output) == (0, "2 of 2 claims as expected; nothing to report\n")
    code, output, _ = toy("gate", "TOY-01", "TOY-03", "--reports", reports)
    assert code == 1
    assert output.splitlines()[-1].startswith("2 of 2 claims as expected")
    assert "TOY-03: has no committed evidence" in output
    assert "TOY-02" not in output


def test_audit_tells_of_the_chosen_claims_alone(toy: Command, reports: Path) -> None:
    content = json.loads(toy("audit", "TOY-0[15]", "--json", "--reports", reports)[1])
    assert [each["claim"]["id"] for each in content["claims"]] == ["TOY-01", "TOY-05"]


def test_an_update_of_one_claim_leaves_the_evidence_of_others(toy: Command, reports: Path) -> None:
    before = {path: path.read_bytes() for path in reports.rglob("*.*")}
    edited = [reports / "evidence" / f"TOY-0{number}.json" for number in (2, 3)]
    for path in edited:
        _replace(path, '"schema_version": 2', '"schema_version": 2 ')
    edited_bytes = edited[1].read_bytes()
    (reports / "claims.md").unlink()
    assert toy("audit", "toy-02", "--update", "--reports", reports)[0] == 0
    assert edited[1].read_bytes() == edited_bytes
    assert {path: path.read_bytes() for path in reports.rglob("*.*")} == {**before, edited[1]: edited_bytes}


def test_an_update_of_one_claim_needs_the_evidence_of_others(toy: Command, reports: Path) -> None:
    (reports / "evidence" / "TOY-02.json").write_text("{", encoding="utf-8")
    before = {path: path.read_bytes() for path in reports.rglob("*.*")}
    code, _, errors = toy("audit", "TOY-03", "--update", "--reports", reports)
    assert (code, "TOY-02.json" in errors) == (2, True)
    assert {path: path.read_bytes() for path in reports.rglob("*.*")} == before
    assert toy("audit", "TOY-02", "--update", "--reports", reports)[0] == 0


@pytest.mark.parametrize("name", ["json", "junit", "step-summary"])
def test_a_text_has_the_chosen_claims_alone(name: str, toy: Command, reports: Path) -> None:
    (reports / "evidence" / "TOY-03.json").unlink()
    code, output, errors = toy("report", "TOY-01", "--format", name, "--reports", reports)
    assert (code, errors) == (0, "")
    assert {found for found in EVERY if re.search(rf"{found}\b", output)} == {"TOY-01"}


@pytest.mark.parametrize(
    "options", [["TOY-01"], ["--area", "toy"], ["TOY-01", "--check"], ["TOY-01", "--check", "--json"]]
)
def test_pages_of_some_claims_are_an_error(options: list[str], toy: Command, reports: Path) -> None:
    code, output, errors = toy("report", *options, "--reports", reports)
    assert (code, output) == (2, "")
    assert errors == (
        "rlverify: the pages are about all claims; for one file or for some claims, name a --format "
        "(json, junit, step-summary, html)\n"
    )


def test_fail_fast_leaves_out_what_was_not_measured(toy: Command, reports: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project_in(project, catalogue=toy_catalogue(project / "catalogue", {'"REFUTED"': '"CONFIRMED"'}))
    write_toy_tests(project)
    code, output, _ = toy("gate", "--fail-fast", "--executor", "inline", "--reports", reports, project=project)
    *lines, note, last = output.splitlines()
    (told,) = [line for line in lines if line.startswith("TOY-")]
    assert (code, " ".join(told.split())) == (1, "TOY-04 the mean is the largest value REFUTED (expected CONFIRMED)")
    assert note == "a claim is not as expected, so 1 of 6 claims were not measured"
    assert last == "4 of 5 claims as expected; 1 claim fell"
    everything = toy("gate", "--reports", reports, project=project)[1]
    assert everything.endswith("5 of 6 claims as expected; 1 claim fell\n")


def test_runs_stop_once_a_claim_is_enough(toyproject: Project) -> None:
    asked = []

    def stop(claim: Claim, runs: Sequence[Run]) -> bool:
        asked.append((claim.id, len(runs)))
        return claim.id == "TOY-02"

    runs = runner.run_claims(
        toyproject, toyproject.claims, executor=InlineExecutor(), on_progress=lambda *_: None, stop=stop
    )
    variants = {claim.id: len(claim.variants) * len(claim.seeds) for claim in toyproject.claims}
    assert asked == [(name, variants[name]) for name in EVERY[:3]]
    assert {name: len(found) for name, found in runs.items()} == dict(asked)


def _touch(task: tuple[str, int]) -> None:
    folder, number = task
    time.sleep(0.05)
    (Path(folder) / str(number)).touch()


def test_tasks_that_have_not_started_never_start_once_one_was_enough(tmp_path: Path) -> None:
    def note(*_: object) -> None:
        raise KeyError("enough")

    tasks = [(str(tmp_path), number) for number in range(200)]
    with pytest.raises(KeyError, match="enough"):
        ProcessExecutor(1).map(_touch, tasks, note=note)
    assert 1 <= len(list(tmp_path.iterdir())) < len(tasks)


def test_texts_of_other_claims_may_be_unwritten(toy: Command, reports: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    changes = {'title = "values count twice"': 'title = "The bug in a few words"'}
    project_in(project, catalogue=toy_catalogue(project / "catalogue", changes))
    write_toy_tests(project)
    unwritten = "TOY-05: its title is still 'The bug in a few words'"
    for claim, code in (("TOY-02", 0), ("TOY-05", 1)):
        found, output, _ = toy("gate", claim, "--reports", reports, project=project)
        assert (found, unwritten in output) == (code, bool(code))
        found, output, _ = toy("audit", claim, "--reports", reports, project=project)
        assert (found, f"note: the gate will fail: {unwritten}" in output) == (0, bool(code))
        assert ("nothing to report" in output) == (code == 0)
