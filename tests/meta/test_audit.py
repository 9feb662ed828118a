"""What an audit measures, repeats, keeps, compares and replaces; measuring gives the same evidence each time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rlverify.evidence.evidence_files import load_folder, to_json
from rlverify.evidence.figure_evidence import measured_figure
from rlverify.evidence.lock_file import NAME as LOCK_FILE
from rlverify.evidence.lock_file import load_lock, lock_json
from rlverify.gating import audit as audit_module
from rlverify.gating.audit import Audit, audit
from rlverify.gating.changes import Selection
from rlverify.gating.committed_evidence import Committed, committed_records, write_report
from rlverify.gating.measuring import Measured
from rlverify.gating.replay import Replayed
from rlverify.project.content import Project
from rlverify.project.current_code import CurrentCode
from rlverify.project.settings import ReportPaths
from rlverify.records.claims import Claim
from rlverify.records.code_records import CodeRecord, Executed
from rlverify.records.measured import Evidence, SymptomEvidence, VariantEvidence
from rlverify.records.problems import Problem
from rlverify.reporting.record import Record
from rlverify.running.executors import ProcessExecutor

FIGURES = ("FIG-GAIN", "FIG-SPIKE", "FIG-DRIFT", "FIG-BETTER")
THREE = ProcessExecutor(3)
REPEATING = {"executor": THREE, "on_progress": min}
PLOTTING = {"executor": THREE, "on_progress": max}  # functions that differ from each other and from those of figures
EVERYTHING = {*FIGURES, "LAB-01"}
FULL = "run `rlverify audit --level full --update`"
OTHER_CODE = "code that they executed has changed, and no repeated run confirms them"
MIDDLE = "figureproject.target:middle"
VALUES = {"FIG-GAIN": (19.0, 21.0) * 4, "FIG-SPIKE": (19.0, 21.0) * 3, "FIG-DRIFT": (18.0, 22.0) * 4}


def figure_of(claim: Claim, values: Sequence[float]) -> Evidence:
    assert claim.figure is not None
    return Evidence(claim.id, claim.seeds, (), figure=measured_figure(values, claim.figure.claimed))


def lab(held: int = 1, after: str = "1", errors: tuple[str, ...] = ()) -> Evidence:
    symptoms = (SymptomEvidence("middle", held, 1, "1", after),)
    return Evidence("LAB-01", (0,), (VariantEvidence("healthy", 1, held, None, symptoms, errors),))


class Setting:
    """A project whose measurements are given here; what an audit asked for is in the lists."""

    def __init__(self, project: Project, folder: Path) -> None:
        self.project, self.paths = project, ReportPaths(folder / "reports", folder)
        self.gives = {"LAB-01": lab()}
        for claim in project.claims:
            if claim.figure is not None:
                self.gives[claim.id] = figure_of(claim, VALUES.get(claim.id, (-1.0, -2.0, -1.0, -2.0, -1.0)))
        self.measured: set[str] = set()
        self.repeated: list[tuple[str, Evidence]] = []
        self.plots: list[frozenset[str]] = []
        self.replaced: list[bool] = []
        self.options: dict[str, Any] = {}
        self.of_runs: tuple[Problem, ...] = ()
        self.of_plots: list[Problem] = []
        self.of_code: dict[str, CodeRecord] = {}
        self.code_of_plots: dict[str, CodeRecord] = {}
        self.executed = Executed((MIDDLE,))
        self.before: dict[str, Evidence] = {}
        self.recorded: frozenset[str] = frozenset()

    def measure(self, project: Project, claims: Sequence[Claim], kept_runs: Path, **options: Any) -> Measured:
        assert (kept_runs, options["on_progress"]) == (self.paths.runs, print)
        self.measured, self.options = {claim.id for claim in claims}, options
        code = options["code"]
        records = {
            each.id: code.record(project.settings_digest(each), project.sources(each), self.executed, Executed())
            for each in claims
            if each.figure is not None or each.id in options["recorded"]
        }
        evidence = {each.id: self.gives[each.id] for each in claims if each.id in self.gives}
        kept = {name: records[name] for name in evidence if name in records}
        return Measured(evidence, {}, kept, "raw\n", {each.id: 2.5 for each in claims if each.figure is not None})

    def replay(self, committed: Committed, figures: Sequence[tuple[Claim, Evidence]], **options: Any) -> Replayed:
        self.before, self.recorded = options.pop("before"), options.pop("recorded")
        assert (committed.paths, options) == (self.paths, REPEATING)
        self.repeated = [(claim.id, evidence) for claim, evidence in figures]
        return Replayed({claim.id: 0.5 for claim, _ in figures}, self.of_runs, self.of_code)

    def check_plots(self, committed: Committed, selected: frozenset[str], **options: Any) -> list[Problem]:
        assert options.pop("recorded") == self.recorded
        assert (committed.paths, options) == (self.paths, PLOTTING)
        self.plots.append(selected)
        return self.of_plots

    def replace_plots(self, committed: Committed, *, all_claims: bool, **options: Any) -> dict[str, CodeRecord]:
        assert (committed.paths, options) == (self.paths, PLOTTING)
        self.replaced.append(all_claims)
        return self.code_of_plots

    def audit(self, **options: Any) -> Audit:
        given = {
            "update": False,
            "executor": THREE,
            "on_progress": print,
            "on_repeats": min,
            "on_plots": max,
            **options,
        }
        return audit(self.project, self.paths, **given)

    def make_older(self, *claims: str) -> None:
        """In the lock file, another digest of a function that the runs of these claims executed."""
        code = CurrentCode(self.project)
        lock = load_lock(self.paths.reports / LOCK_FILE, code)
        found = dict(lock.claims)
        for name in claims:
            parts = {**dict(found[name].parts), MIDDLE: "0" * 16}
            found[name] = replace(found[name], parts=tuple(sorted(parts.items())))
        (self.paths.reports / LOCK_FILE).write_text(lock_json(replace(lock, claims=found), code))


@pytest.fixture
def setting(figureproject: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    """All claims are committed as they are measured again."""
    made = Setting(figureproject, tmp_path)
    for name in ("measure", "replay", "check_plots", "replace_plots"):
        monkeypatch.setattr(audit_module, name, getattr(made, name))
    first = made.audit(update=True, level="full")
    assert (first.problems, first.measured, made.measured, made.repeated) == ((), 5, EVERYTHING, [])
    assert first.seconds == dict.fromkeys(FIGURES, 2.5)
    return made


def selection(*claims: str, in_diff: Sequence[str] = (), plots: Sequence[str] = (), **changed: Any) -> Selection:
    return Selection(frozenset(claims), frozenset(in_diff), frozenset(plots), "because", changed)


def notes(found: Audit) -> list[str]:
    assert found.problems == ()
    return list(found.notes)


def test_the_quick_level_measures_what_is_no_figure_and_takes_figures_as_they_are_committed(setting: Setting) -> None:
    found = setting.audit(on_figures=print, ignore_cache=True)
    assert ([each.claim for each in found.records], notes(found)) == (list(setting.project.claims), [])
    assert (setting.measured, setting.repeated, found.measured, found.exit_code) == ({"LAB-01"}, [], 1, 0)
    assert {each.claim.id: each.evidence for each in found.records} == found.committed == setting.gives
    assert {each.changed for each in found.records} == {()}
    options = setting.options
    assert (options["recorded"], options["executor"], options["ignore_cache"], options["enough"]) == (
        frozenset(),
        THREE,
        True,
        None,
    )
    assert options["on_figures"] is print
    setting.audit(level="full")
    assert (setting.measured, setting.options["ignore_cache"]) == (EVERYTHING, False)
    assert (setting.paths.working / "raw.jsonl").read_text() == "raw\n"
    assert (setting.paths.working / "evidence" / "LAB-01.json").is_file()


@pytest.mark.parametrize(
    ("level", "selected", "measured"),
    [("quick", (), set()), ("quick", EVERYTHING, {"LAB-01"}), ("full", ("FIG-GAIN",), {"FIG-GAIN"})],
)
def test_claims_that_are_not_selected_are_taken_as_they_are_committed(
    setting: Setting, level: str, selected: Sequence[str], measured: set[str]
) -> None:
    assert notes(setting.audit(level=level, selection=selection(*selected), only_selected=True)) == []
    assert setting.measured == measured
    setting.audit(level=level, selection=selection())
    assert setting.measured == (EVERYTHING if level == "full" else {"LAB-01"})  # without `only_selected`


def test_a_claim_without_evidence_is_measured_though_it_is_not_selected(setting: Setting) -> None:
    (setting.paths.evidence / "LAB-01.json").unlink()
    found = setting.audit(selection=selection(), only_selected=True)
    assert setting.measured == {"LAB-01"}
    assert [(each.subject, each.sentence) for each in found.problems] == [("LAB-01", "has no committed evidence")]


def test_a_claim_that_could_never_be_measured_is_trouble_of_the_harness_alone(setting: Setting) -> None:
    left = setting.paths.working / "evidence" / "LAB-01.json"
    for path in (setting.paths.evidence / "LAB-01.json", left):
        path.unlink()
    setting.gives["LAB-01"] = lab(errors=("seed 0: boom",))
    found = setting.audit()
    assert [(each.subject, each.exit_code) for each in found.problems if each.kind == "other"][:1] == [("LAB-01", 2)]
    assert {each.kind for each in found.problems} == {"other"}
    assert not left.exists()


def other_runs(setting: Setting, claim_id: str) -> None:
    """Commit evidence of a figure with fewer runs than the claim asks for."""
    found = figure_of(setting.project.claim(claim_id), VALUES[claim_id][2:])
    (setting.paths.evidence / f"{claim_id}.json").write_text(to_json(found))
    records = committed_records(setting.project, load_folder(setting.paths.evidence))
    write_report(setting.project, setting.paths, records)


def test_evidence_that_does_not_fit_the_claim_is_measured_at_the_full_level_and_else_a_note(setting: Setting) -> None:
    other_runs(setting, "FIG-GAIN")
    setting.make_older("FIG-GAIN")
    found = setting.audit(selection=selection(in_diff=["FIG-GAIN"]), only_selected=True)
    assert (setting.measured, setting.repeated) == (set(), [])
    assert notes(found) == [f"FIG-GAIN: STALE, measured for other settings of the claim; {FULL}"]
    setting.audit(level="full", selection=selection(), only_selected=True)
    assert setting.measured == {"FIG-GAIN"}


def test_runs_of_figures_are_repeated_that_are_in_the_diff_or_executed_other_code(setting: Setting) -> None:
    setting.make_older("FIG-DRIFT")
    found = setting.audit(selection=selection(in_diff=["FIG-GAIN", "LAB-01"]))
    assert setting.repeated == [(name, setting.gives[name]) for name in ("FIG-GAIN", "FIG-DRIFT")]
    assert (found.measured, found.seconds) == (3, {"FIG-GAIN": 0.5, "FIG-DRIFT": 0.5})
    setting.of_runs = (Problem("FIG-DRIFT", 1, "repeated runs differ: seed 1", "values", "do it"),)
    found = setting.audit()
    assert (found.problems, found.notes, setting.repeated[1:]) == (setting.of_runs, (), [])


def test_other_code_with_the_same_values_is_a_note(setting: Setting) -> None:
    setting.make_older("LAB-01")
    told = f"digests only: {MIDDLE} changed since 1 claim was measured, and what was measured again agrees; "
    told += "run `rlverify audit --update`"
    assert notes(setting.audit()) == [told]
    setting.make_older("FIG-GAIN", "FIG-SPIKE")
    found = setting.audit(selection=selection(**{"LAB-01": ("of the base",), "FIG-DRIFT": ("of the base",)}))
    assert notes(found) == [told.replace("1 claim was", "3 claims were")]
    changed = {each.claim.id: each.changed for each in found.records}
    assert changed == {
        "FIG-GAIN": (MIDDLE,),
        "FIG-SPIKE": (MIDDLE,),
        "FIG-DRIFT": ("of the base",),
        "FIG-BETTER": (),
        "LAB-01": (MIDDLE,),
    }
    setting.of_plots = [Problem("plots/x.json", 1, "is missing")]
    assert setting.audit().notes == ()


def test_other_values_and_a_regression_are_problems(setting: Setting) -> None:
    index = setting.paths.reports / "index.md"
    before = index.read_text()
    index.write_text("edited")
    setting.gives["LAB-01"] = lab(after="2")
    (problem,) = setting.audit(level="full").problems  # that the report differs follows
    assert (problem.subject, problem.kind) == ("LAB-01", "values")
    setting.gives["FIG-GAIN"] = figure_of(setting.project.claim("FIG-GAIN"), (16.0, 17.0) * 4)
    found = setting.audit(level="full")
    assert [(each.subject, each.kind) for each in found.problems] == [("FIG-GAIN", "values"), ("LAB-01", "values")]
    index.write_text(before)
    setting.gives["LAB-01"] = lab(held=0)
    (problem,) = setting.audit().problems
    assert (problem.subject, problem.kind) == ("LAB-01", "healthy")
    setting.gives["LAB-01"] = lab(errors=("seed 0: boom",))
    (problem,) = setting.audit().problems
    assert (problem.sentence, problem.kind) == ("ERROR, expected CONFIRMED, healthy, seed 0: boom", "healthy")


def test_after_a_regression_no_note_advises_to_commit_it(setting: Setting) -> None:
    other_runs(setting, "FIG-GAIN")
    setting.gives["LAB-01"] = lab(held=0)
    assert setting.audit().notes == ("FIG-GAIN: STALE, measured for other settings of the claim",)


def test_plots_and_reports_are_compared_where_all_claims_are(setting: Setting) -> None:
    setting.plots.clear()
    setting.audit(selection=selection(plots=["squares"]))
    (setting.paths.reports / "index.md").write_text("edited")
    (problem,) = setting.audit().problems
    sentence = "is not what the committed evidence gives"
    assert problem == Problem("index.md", 1, sentence, remedy="run `rlverify report`")
    assert setting.plots == [frozenset({"squares"}), frozenset()]
    setting.of_plots = [Problem("plots/x.json", 1, "is missing")]
    assert setting.audit().problems == tuple(setting.of_plots)
    setting.plots.clear()
    found = setting.audit(chosen=frozenset({"LAB-01", "FIG-GAIN"}))
    assert (notes(found), setting.plots, setting.measured) == ([], [], {"LAB-01"})
    assert [each.claim.id for each in found.records] == ["FIG-GAIN", "LAB-01"]


def test_with_fail_fast_a_claim_that_is_not_as_expected_is_enough(setting: Setting) -> None:
    setting.plots.clear()
    for name in ("LAB-01", "FIG-SPIKE"):
        del setting.gives[name]
    found = setting.audit(fail_fast=True, level="full")
    assert found.notes == ("a claim is not as expected, so 2 of 5 claims were not measured",)
    assert ([each.claim.id for each in found.records], setting.plots) == (["FIG-GAIN", "FIG-DRIFT", "FIG-BETTER"], [])
    enough, claim = setting.options["enough"], setting.project.claim("LAB-01")
    assert (enough(Record(claim, lab())), enough(Record(claim, lab(held=0)))) == (False, True)


def test_an_update_at_the_quick_level_keeps_figures_and_names_those_of_other_code(setting: Setting) -> None:
    setting.make_older("FIG-GAIN", "LAB-01")
    before = (setting.paths.reports / LOCK_FILE).read_text()
    setting.gives["LAB-01"] = lab(after="2")
    found = setting.audit(update=True)
    assert notes(found) == [f"FIG-GAIN: kept, though {OTHER_CODE}; {FULL}"]
    assert (found.measured, setting.measured, setting.options["recorded"]) == (1, {"LAB-01"}, EVERYTHING)
    again = setting.audit()
    assert again.committed["LAB-01"] == lab(after="2")
    changed = {each.claim.id: each.changed for each in again.records if each.changed}
    assert (changed, before == (setting.paths.reports / LOCK_FILE).read_text()) == ({"FIG-GAIN": (MIDDLE,)}, False)
    assert (setting.paths.working / "raw.jsonl").read_text() == "raw\n"


def test_an_update_does_not_say_of_a_figure_without_evidence_that_it_is_kept(setting: Setting) -> None:
    (setting.paths.evidence / "FIG-GAIN.json").unlink()
    setting.make_older("FIG-GAIN", "FIG-DRIFT")
    found = setting.audit(update=True)
    assert [(each.subject, each.sentence) for each in found.problems] == [("FIG-GAIN", "has no evidence")]
    assert found.notes == (f"FIG-DRIFT: kept, though {OTHER_CODE}; {FULL}",)


def test_evidence_of_a_claim_that_is_in_no_catalogue_is_a_problem(setting: Setting) -> None:
    for name in ("GONE-02", "GONE-01"):
        (setting.paths.evidence / f"{name}.json").write_text(to_json(replace(lab(), claim_id=name)))
    told = {"sentence": "has evidence but is in no catalogue", "remedy": "run `rlverify audit --update`"}
    assert setting.audit().problems == tuple(Problem(name, 1, **told) for name in ("GONE-01", "GONE-02"))


@pytest.mark.usefixtures("ascii_locale")
def test_the_day_of_a_full_audit_stays_until_the_code_changes(setting: Setting) -> None:
    path = setting.paths.reports / LOCK_FILE
    before = load_lock(path, CurrentCode(setting.project))
    assert before.full_audit == datetime.now(UTC).date().isoformat()
    earlier = replace(before, full_audit="2000-01-02")
    path.write_text(lock_json(earlier, CurrentCode(setting.project)))
    for level, older, day in (
        ("full", (), "2000-01-02"),
        ("quick", ("LAB-01",), "2000-01-02"),
        ("full", ("LAB-01",), before.full_audit),
    ):
        setting.make_older(*older)
        setting.audit(update=True, level=level)
        assert load_lock(path, CurrentCode(setting.project)).full_audit == day, (level, older)
    assert f"last full audit {before.full_audit}." in (setting.paths.reports / "index.md").read_text("utf-8")


def test_an_update_removes_evidence_of_claims_that_are_gone_and_no_other_file(setting: Setting) -> None:
    folder = setting.paths.evidence
    (folder / "GONE-01.json").write_text('"claim_id" "schema_version" "é"', encoding="utf-8")
    others = {"a.json": b"{}", "b.json": b'"claim_id"', "c.json": b'"schema_version"', "d.json": b"\xff"}
    for name, content in others.items():
        (folder / name).write_bytes(content)
    (folder / "folder.json").mkdir()
    setting.audit(update=True)
    assert {path.stem for path in folder.iterdir()} == {*EVERYTHING, "a", "b", "c", "d", "folder"}


def test_an_update_of_chosen_claims_leaves_the_others_as_they_are(setting: Setting) -> None:
    setting.gives |= {"LAB-01": lab(after="2"), "FIG-GAIN": lab(after="never measured")}
    found = setting.audit(update=True, level="full", chosen=frozenset({"LAB-01"}))
    assert (setting.measured, [each.claim.id for each in found.records]) == ({"LAB-01"}, ["LAB-01"])
    assert setting.replaced == [True, False]
    again = setting.audit()
    assert (again.problems, {*again.committed}) == ((), EVERYTHING)


def test_an_update_records_the_code_of_plots(setting: Setting) -> None:
    code = CurrentCode(setting.project)
    setting.code_of_plots = {"squares": code.record("", [], Executed((MIDDLE,)), Executed())}
    setting.audit(update=True)
    assert load_lock(setting.paths.reports / LOCK_FILE, code).plots == setting.code_of_plots


def test_an_update_tells_problems_and_keeps_evidence_of_claims_that_crash(setting: Setting) -> None:
    setting.gives["LAB-01"] = lab(errors=("seed 0: boom",))
    found = setting.audit(update=True)
    assert [(each.subject, each.sentence) for each in found.problems] == [("LAB-01", "ERROR, healthy, seed 0: boom")]
    setting.gives["LAB-01"] = lab()
    assert notes(setting.audit()) == []


def test_claims_that_the_lock_file_lists_anew_are_recorded(setting: Setting) -> None:
    """So that whoever drops a function from the lock file is found out while that is in the diff."""
    listed = replace(selection(in_diff=["LAB-01"]), relocked=frozenset({"LAB-01", "FIG-GAIN"}))
    found = setting.audit(selection=listed)
    assert (found.problems, setting.options["recorded"], setting.recorded) == ((), listed.relocked, listed.relocked)
    setting.executed = Executed((MIDDLE, "figureproject.experiments.values:transfer"))
    (problem,) = setting.audit(selection=listed).problems
    assert (problem.subject, problem.exit_code) == ("digests.json", 1)
    assert problem.sentence == (
        "does not list figureproject.experiments.values, figureproject.experiments.values:transfer, which runs of "
        "LAB-01 executed or read"
    )
    assert problem.remedy == FULL


def test_a_figure_of_which_a_run_is_repeated_is_compared_with_the_lock_file_too(setting: Setting) -> None:
    code = CurrentCode(setting.project)
    setting.of_code = {"FIG-GAIN": code.record("", [], Executed(("figureproject.probes.values:middle",)), Executed())}
    (problem,) = setting.audit().problems
    assert problem.sentence.endswith("which runs of FIG-GAIN executed or read")


def test_an_entry_of_older_code_may_lack_something(setting: Setting) -> None:
    """Its claim is measured whatever the change until it is replaced."""
    setting.make_older("LAB-01")
    setting.executed = Executed((MIDDLE, "figureproject.experiments.values:transfer"))
    found = setting.audit(selection=replace(selection(), relocked=frozenset({"LAB-01"})))
    assert (found.problems, len(found.notes)) == ((), 1)


def test_evidence_without_an_entry_in_the_lock_file_is_a_problem(setting: Setting) -> None:
    path = setting.paths.reports / LOCK_FILE
    lock = load_lock(path, CurrentCode(setting.project))
    fewer = {name: each for name, each in lock.claims.items() if name not in ("LAB-01", "FIG-GAIN")}
    path.write_text(lock_json(replace(lock, claims=fewer), CurrentCode(setting.project)))
    (problem,) = setting.audit().problems
    assert (problem.subject, problem.exit_code, problem.remedy) == ("digests.json", 1, FULL)
    assert problem.sentence == "does not say what FIG-GAIN, LAB-01 executed"
    setting.audit(update=True)
    (problem,) = setting.audit().problems
    assert problem.sentence == "does not say what FIG-GAIN executed"  # which only the full level measures


def test_evidence_that_is_to_be_replaced_anyway_needs_no_entry(setting: Setting) -> None:
    other_runs(setting, "FIG-GAIN")
    path = setting.paths.reports / LOCK_FILE
    lock = load_lock(path, CurrentCode(setting.project))
    fewer = {name: each for name, each in lock.claims.items() if name != "FIG-GAIN"}
    path.write_text(lock_json(replace(lock, claims=fewer), CurrentCode(setting.project)))
    assert notes(setting.audit()) == [f"FIG-GAIN: STALE, measured for other settings of the claim; {FULL}"]


def test_what_was_committed_before_is_at_hand_where_runs_are_repeated(setting: Setting) -> None:
    before = {"FIG-GAIN": setting.gives["FIG-GAIN"]}
    setting.audit(selection=replace(selection(in_diff=["FIG-GAIN"]), before=before))
    assert setting.before == before
