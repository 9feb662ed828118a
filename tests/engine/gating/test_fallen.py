"""What a reader is told of each claim that fell in an audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rlverify.gating.fallen import outcome_of_audit
from rlverify.gating.git_base import Base
from rlverify.gating.replay import CRASHES, DIFFERS
from rlverify.gating.suspects import FILE
from rlverify.project.content import Project
from rlverify.records.claims import FixGrade
from rlverify.records.measured import Evidence, Observation, Run, Variant
from rlverify.records.problems import Problem, ProblemKind
from rlverify.reporting.outcome import FallenClaim, Outcome, SymptomChange
from rlverify.verdicts.verdict import Record
from tests.engine.project_folders import PROJECTS, project_in, toy_catalogue
from tests.engine.reporting.records import CLAIM, figure, measured, simple

PARTIAL = replace(CLAIM, document="toy", expected_fix_grade=FixGrade.PARTIAL, fault="restored-forgets")
PLAIN = simple(1, document="toy", fault="restored-forgets")
GOOD = measured(PLAIN, healthy=2, faulty=0)


def fell(kind: ProblemKind, sentence: str = "it differs", subject: str = "TOY-01") -> Problem:
    return Problem(subject, 1, sentence, kind)


def fallen(
    project: Project, record: Record, *problems: Problem, committed: Record | None = GOOD
) -> tuple[Outcome, FallenClaim]:
    """The outcome of an audit of one claim that fell, and that claim."""
    evidence: dict[str, Evidence] = {}
    if committed is not None and committed.evidence is not None:
        evidence[record.claim.id] = committed.evidence
    found = outcome_of_audit(
        project, Outcome((record,), problems, notes=("a note",), committed=evidence), "a selection"
    )
    (claim,) = found.fallen
    return found, claim


GONE, BACK = "NOT REPRODUCED (expected CONFIRMED)", "REGRESSED (expected CONFIRMED)"


@pytest.mark.parametrize(
    ("record", "kinds", "headline"),
    [
        (measured(PLAIN, healthy=2, faulty=2), ["verdict"], f"{GONE}: the planted fault has no effect"),
        (measured(PLAIN, healthy=0, faulty=0), ["values", "healthy"], f"{BACK}: its check fails with no fault planted"),
        (GOOD, ["values"], "CONFIRMED, with other values than committed"),
        (measured(PARTIAL, healthy=2, faulty=0, documented_fix=0), ["grade"], "fix NO EFFECT (expected PARTIAL)"),
        (
            measured(PARTIAL, healthy=2, faulty=0, documented_fix=2),
            ["values", "grade"],
            "fix CURED (expected PARTIAL)",
        ),
        (measured(PARTIAL, healthy=2, faulty=0), ["grade"], "fix no grade (expected PARTIAL)"),
        (
            measured(replace(PARTIAL, expected_fix_grade=None), healthy=2, faulty=2, documented_fix=0),
            ["grade", "verdict"],
            "NOT REPRODUCED (expected CONFIRMED), fix HARMFUL (expected no grade)",
        ),
    ],
)
def test_the_headline_has_what_was_measured_and_expected(
    toyproject: Project, record: Record, kinds: Sequence[ProblemKind], headline: str
) -> None:
    _, claim = fallen(toyproject, record, *map(fell, kinds))
    assert claim.headline == headline
    assert claim.kind == next(each for each in ("healthy", "verdict", "grade", "values") if each in kinds)


def test_symptoms_that_differ_from_what_is_committed_are_the_reason(toyproject: Project) -> None:
    violated, held = measured(PLAIN, healthy=0, faulty=0), measured(PLAIN, healthy=2, faulty=2)
    assert held.evidence is not None
    count, ema = held.evidence.variants[0].symptoms
    healthy = replace(held.evidence.variants[0], symptoms=(replace(count, after="319"), ema))
    committed = replace(GOOD, evidence=replace(held.evidence, variants=(healthy,)))
    _, claim = fallen(toyproject, violated, fell("healthy"), fell("values"), committed=committed)
    assert (claim.changes, claim.reason) == ((SymptomChange("count | all", "319", "0"),), "")
    _, claim = fallen(toyproject, GOOD, fell("values"), committed=committed)
    assert (claim.changes, claim.reason) == ((SymptomChange("count | all", "319", "320"),), "")


@pytest.mark.parametrize(("kind", "reason"), [("values", "it differs"), ("verdict", "")])
def test_other_values_that_no_symptom_shows_are_told_in_a_sentence(
    toyproject: Project, kind: ProblemKind, reason: str
) -> None:
    _, claim = fallen(toyproject, GOOD, fell(kind))
    assert (claim.changes, claim.reason) == ((), reason)


def test_of_a_crash_its_error_is_told_and_no_values(toyproject: Project) -> None:
    assert GOOD.evidence is not None
    healthy, faulty = measured(PLAIN, healthy=0, faulty=0).evidence.variants  # type: ignore[union-attr]
    crashed = replace(GOOD.evidence, variants=(replace(healthy, runs=1, errors=("seed 1: boom",)), faulty))
    _, claim = fallen(toyproject, replace(GOOD, evidence=crashed), fell("healthy"))
    assert (claim.changes, claim.reason) == ((), "healthy, seed 1: boom")
    unreached = replace(GOOD.evidence, variants=(healthy, replace(faulty, held_runs=2, reached=False)))
    unreached = replace(unreached, variants=(GOOD.evidence.variants[0], unreached.variants[1]))
    _, claim = fallen(toyproject, replace(GOOD, evidence=unreached), fell("verdict"), committed=None)
    assert claim.reason == "faulty: the planted fault was never executed, so the probe proves nothing"


@pytest.mark.parametrize("told", [DIFFERS, CRASHES])
def test_of_a_repeated_run_the_difference_is_told_and_not_the_committed_interval(
    toyproject: Project, told: str
) -> None:
    record = replace(figure(15.0, 25.0), claim=replace(figure(15.0, 25.0).claim, id="TOY-01"))
    _, claim = fallen(toyproject, record, fell("verdict", f"{told}: seed 3: 1 %, committed 2 %"))
    assert (claim.headline, claim.changes, claim.reason) == (told, (), "seed 3: 1 %, committed 2 %")


def test_a_figure_is_told_with_its_interval_and_other_values_of_it_in_a_sentence(toyproject: Project) -> None:
    record = figure(-2.0, 3.0)
    _, claim = fallen(toyproject, record, fell("verdict", subject=record.claim.id))
    assert claim.changes == (SymptomChange("efficiency lost", "15 to 25 %", "0.5 % (-2 to 3)"),)
    _, claim = fallen(toyproject, record, fell("values", "a mean of 1", record.claim.id))
    assert (claim.changes, claim.reason) == ((), "a mean of 1")
    assert (claim.declared_in, claim.line) == ("catalogue/figures.toml", 1)  # which is not there


TRACEBACK = f"""Traceback (most recent call last):
  File "{PROJECTS / "toyproject" / "probes" / "arithmetic.py"}", line 30, in clip
  File "/usr/lib/python/numbers.py", line 7, in check
"""


def crashed_in_a_probe() -> Record:
    runs = (Run("healthy", 0, error="boom", traceback=TRACEBACK, seconds=3.0), Run("faulty", 0, seconds=0.5))
    return replace(measured(PLAIN, healthy=0, faulty=0), runs=runs, changed=("toyproject.target:clip",))


def test_suspects_and_the_claim_are_placed_relative_to_the_project(toyproject: Project) -> None:
    found, claim = fallen(toyproject, crashed_in_a_probe(), fell("healthy"))
    assert claim.suspects == ("target.py", "probes/arithmetic.py")
    assert claim.changed == ("target.py",)
    assert (claim.declared_in, claim.line) == ("catalogue/toy.toml", 4)
    assert claim.command == f"{toyproject.settings.command} reproduce TOY-01"
    assert found.seconds == {"TOY-01": 3.5}


@pytest.mark.usefixtures("ascii_locale")
def test_files_outside_the_project_have_their_whole_path(tmp_path: Path) -> None:
    catalogue = toy_catalogue(tmp_path / "catalogue", {'id = "TOY-02"': 'id="TOY-02"', "-5 stays -5": "é stays é"})
    project = project_in(tmp_path, catalogue=catalogue)
    record = replace(crashed_in_a_probe(), claim=replace(PLAIN, id="TOY-02"))
    _, claim = fallen(project, record, fell("healthy", subject="TOY-02"))
    assert claim.changed == (str(PROJECTS / "toyproject" / "target.py"),)
    assert (claim.declared_in, claim.line) == ("catalogue/toy.toml", 25)


def test_all_that_an_audit_found_is_in_its_outcome(toyproject: Project) -> None:
    """Claims without a problem, or with one that makes no claim fall, are no fallen claims."""
    good, stale = (replace(GOOD, claim=replace(PLAIN, id=name)) for name in ("TOY-02", "TOY-03"))
    regressed = measured(PLAIN, healthy=0, faulty=0)
    problems = (fell("stale", subject="TOY-03"), fell("values"), fell("healthy", "violated"), fell("other", "", "x"))
    result = Outcome((good, stale, regressed), problems, notes=("a note",), seconds={"TOY-02": 2.0})
    found = outcome_of_audit(toyproject, result, "a selection")
    assert (found.records, found.problems, found.notes, found.selection) == (
        (good, stale, regressed),
        problems,
        ("a note",),
        "a selection",
    )
    assert [each.claim for each in found.fallen] == [PLAIN]
    assert found.exit_code == 1
    assert found.seconds == {"TOY-01": 0, "TOY-02": 2.0, "TOY-03": 0}
    assert outcome_of_audit(toyproject, result).selection == ""


def run_of(seed: int, *, holds: bool = True, error: str | None = None, variant: Variant = "healthy") -> Run:
    observations = () if error else (Observation("count", "1", "1" if holds else "0", holds),)
    return Run(variant, seed, observations, error=error)


@pytest.mark.parametrize(
    ("runs", "committed", "option"),
    [
        ((run_of(0), run_of(1, holds=False), run_of(2, holds=False)), GOOD, " --seed 1"),
        ((run_of(0), run_of(1, holds=False)), None, " --seed 1"),
        ((run_of(0), run_of(1, error="boom")), GOOD, " --seed 1"),
        ((run_of(0, holds=False), run_of(1, holds=False)), GOOD, ""),
        ((run_of(0), run_of(1), run_of(1, holds=False, variant="faulty")), GOOD, ""),
        ((run_of(0, holds=False), run_of(1)), measured(PLAIN, healthy=0, faulty=0), " --seed 1"),
    ],
)
def test_the_command_repeats_a_run_that_is_not_as_it_was(
    toyproject: Project, runs: tuple[Run, ...], committed: Record | None, option: str
) -> None:
    record = replace(measured(PLAIN, healthy=0, faulty=0), runs=runs)
    _, claim = fallen(toyproject, record, fell("healthy"), committed=committed)
    assert claim.command == f"{toyproject.settings.command} reproduce TOY-01{option}"


@pytest.mark.parametrize(("seed", "option"), [(18, " --seed 18"), (0, "")])
def test_the_command_repeats_the_run_of_a_figure_that_differs(toyproject: Project, seed: int, option: str) -> None:
    record = figure(15.0, 25.0)
    problem = fell("values", f"{DIFFERS}: seed {seed} gives 1 %, committed 2", record.claim.id)
    _, claim = fallen(toyproject, record, problem, committed=None)
    assert claim.command == f"{toyproject.settings.command} reproduce {record.claim.id}{option}"


class Before(Base):
    """A commit with these texts, by the names of the files."""

    texts: dict[str, str]

    def text(self, path: Path) -> str | None:
        return self.texts.get(path.name)


def first_suspect(project: Project, part: str, **texts: str) -> tuple[int, tuple[str, ...]]:
    """The line and the edit that are told of it; of a claim that fell after a change of this part."""
    base = Before(project.root, "0" * 40)
    vars(base)["texts"] = {name.replace("_", "."): text for name, text in texts.items()}
    record = replace(measured(PLAIN, healthy=0, faulty=0), changed=(part,))
    (claim,) = outcome_of_audit(project, Outcome((record,), (fell("healthy"),)), base=base).fallen
    assert claim.changed_parts == (part,)
    return claim.suspect_line, claim.edit


def test_what_changed_in_the_first_suspect_is_quoted(toyproject: Project) -> None:
    path = PROJECTS / "toyproject" / "target.py"
    now = path.read_text(encoding="utf-8")
    clip = "return min(max(value, low), high)"
    line = now[: now.index("def clip(")].count("\n") + 1
    before = now.replace(clip, "return value").replace("made = cls()", "made = cls(0)")
    found = first_suspect(toyproject, "toyproject.target:clip", target_py=before)
    assert found == (line, ("- return value", f"+ {clip}"))
    assert first_suspect(toyproject, "toyproject.target:clip") == (line, ())  # the base does not have it
    assert first_suspect(toyproject, "rlverify.verdicts", target_py=before) == (1, ())  # no file is suspected


@pytest.mark.usefixtures("ascii_locale")
def test_data_in_any_encoding_is_quoted_and_what_is_gone_is_not(tmp_path: Path) -> None:
    project = project_in(tmp_path)
    (tmp_path / "limits.txt").write_bytes(b"\xe9\xc3\xa9\n")
    assert first_suspect(project, f"{FILE}limits.txt", limits_txt="e\n") == (1, ("- e", "+ \N{REPLACEMENT CHARACTER}é"))
    assert first_suspect(project, f"{FILE}gone.txt", gone_txt="e\n") == (1, ())
