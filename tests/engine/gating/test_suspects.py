"""Which files and symptoms are named where a claim fell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rlverify.gating.fallen import seconds_of, symptom_changes
from rlverify.gating.suspects import FILE, edit_of, files_of, line_of, suspects
from rlverify.project.content import Project
from rlverify.records.measured import Evidence, Observation, Run, SymptomEvidence, Variant, VariantEvidence
from rlverify.reporting.outcome import SymptomChange
from rlverify.verdicts.verdict import Record
from tests.engine.project_folders import PROJECTS
from tests.engine.reporting.records import figure, simple

TARGET = str(PROJECTS / "toyproject" / "target.py")
RESTORED = "    def restored(cls, state: dict[str, Any]) -> Average:"
CLIP = "def clip(value: float, low: float, high: float) -> float:"
PROBE = str(PROJECTS / "toyproject" / "probes" / "arithmetic.py")
TRACEBACK = f"""Traceback (most recent call last):
  File "/usr/lib/engine.py", line 1, in attempt
  File "{PROBE}", line 30, in clip
    found = target.clip(value, 0, 3)
  File "{TARGET}", line 51, in clip
    return min(max(value, lower), high)
  File "/usr/lib/python/numbers.py", line 7, in check
NameError: name 'lower' is not defined
"""
CLAIM = simple(1, modules=(), seeds=(0, 1))
UNDER_TEST = (PROJECTS / "toyproject",)


def crashed(*changed: str) -> Record:
    return Record(CLAIM, None, runs=(Run("healthy", 0, error="boom", traceback=TRACEBACK),), changed=changed)


def test_the_deepest_file_of_a_crash_under_test_is_suspected() -> None:
    """Whether or not the claim names modules."""
    assert suspects(crashed(), UNDER_TEST) == (TARGET, PROBE)
    assert suspects(crashed(), (Path(TARGET),)) == (TARGET,)


def test_what_changed_comes_before_where_it_crashed_unless_it_crashed_in_what_changed() -> None:
    assert suspects(crashed("/toy/other.py"), UNDER_TEST) == ("/toy/other.py", TARGET, PROBE)
    assert suspects(crashed("/toy/other.py", TARGET), UNDER_TEST) == (TARGET, "/toy/other.py", PROBE)
    assert suspects(Record(CLAIM, None, changed=("/toy/other.py",)), UNDER_TEST) == ("/toy/other.py",)


def test_changed_functions_come_before_code_that_runs_on_import_and_a_file_is_named_once(toyproject: Project) -> None:
    imports = ("toyproject.probes.arithmetic", "toyproject.target")
    functions = ("toyproject.target:clip", "toyproject.target:Average.add")
    assert files_of(toyproject, imports) == (PROBE, TARGET)
    assert files_of(toyproject, imports + functions) == (TARGET, PROBE)
    assert files_of(toyproject, ()) == ()


def test_the_line_is_that_of_the_first_changed_function_in_the_file() -> None:
    lines = Path(TARGET).read_text(encoding="utf-8").splitlines()
    restored, clip = (lines.index(each) + 1 for each in (RESTORED, CLIP))
    assert 1 < restored < clip
    assert line_of(TARGET, ("toyproject.target:clip",)) == clip
    assert line_of(TARGET, ("toyproject.target:clip", "toyproject.target:Average.restored")) == restored
    assert line_of(TARGET, ("toyproject.probes.arithmetic:clip", "toyproject.target:clip")) == clip
    assert line_of(PROBE, ("toyproject.target:clip",)) == 1


@pytest.mark.parametrize(
    "part", ["toyproject.target", "toyproject.target:gone", "toyproject.gone:clip", f"{FILE}pyproject.toml"]
)
def test_the_line_is_the_first_where_no_function_changed(part: str) -> None:
    assert line_of(TARGET, (part,)) == 1


def test_the_line_of_a_file_that_is_not_python_is_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "brokenmodule.py").write_text("\ndef clip(\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert line_of(str(tmp_path / "brokenmodule.py"), ("brokenmodule:clip",)) == 1


def test_the_line_of_a_function_that_is_defined_twice_is_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import os\nif os:\n    def twice(): ...\nelse:\n    @staticmethod\n    def twice(): ...\n"
    (tmp_path / "twicemodule.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert line_of(str(tmp_path / "twicemodule.py"), ("twicemodule:twice",)) == 3


def test_data_that_a_run_read_comes_after_code(toyproject: Project) -> None:
    data = f"{FILE}data/limits.json"  # which may be gone
    path = str(toyproject.root / "data" / "limits.json")
    assert files_of(toyproject, (data, "toyproject.target", "toyproject.probes.arithmetic:clip")) == (
        PROBE,
        TARGET,
        path,
    )
    assert line_of(path, (data,)) == 1


def test_no_other_files_are_named(toyproject: Project) -> None:
    others = ("torch", "toyprojects:clip")
    gone = ("toyproject.gone", "toyproject.gone.too:clip")
    assert files_of(toyproject, (*others, *gone, "toyproject.target:clip")) == (TARGET,)


def variant(name: Variant, *symptoms: SymptomEvidence) -> VariantEvidence:
    return VariantEvidence(
        name, 2, min(each.held_runs for each in symptoms), None if name == "healthy" else True, symptoms
    )


def symptom(name: str, held: int, after: str | None, before: str | None = "16") -> SymptomEvidence:
    return SymptomEvidence(name, held, 2, before, after)


def evidence(*variants: VariantEvidence) -> Evidence:
    return Evidence(CLAIM.id, (0, 1), variants)


def record(*variants: VariantEvidence, runs: tuple[Run, ...] = ()) -> Record:
    return Record(CLAIM, evidence(*variants), runs=runs)


GOOD = evidence(
    variant("healthy", symptom("steps", 2, "16"), symptom("mean", 2, None, None)),
    variant("faulty", symptom("steps", 0, "0"), symptom("mean", 0, None, None)),
)


def test_a_violated_symptom_has_its_committed_and_its_observed_value() -> None:
    runs = (
        Run("healthy", 0, (Observation("mean", "0.5", "0.5", True, repeats=False),)),
        Run("healthy", 1, (Observation("mean", "0.25", "nan", False, repeats=False),)),
        Run("faulty", 0, (Observation("mean", "0.5", "7", False, repeats=False),)),
    )
    now = record(
        variant("healthy", symptom("mean", 1, None, None), symptom("steps", 0, "0")),
        variant("faulty", symptom("steps", 2, "16")),
        runs=runs,
    )
    assert symptom_changes(now, GOOD)[:2] == (
        SymptomChange("mean", "0.25", "nan"),
        SymptomChange("steps", "16", "0"),
    )
    regressed = record(variant("healthy", symptom("steps", 0, "0")), variant("faulty", symptom("steps", 2, "16")))
    assert symptom_changes(regressed, GOOD) == (SymptomChange("steps", "16", "0"),)
    assert symptom_changes(regressed, None) == (SymptomChange("steps", "16", "0"),)


def test_of_runs_that_differ_one_is_shown_that_came_out_otherwise_than_before() -> None:
    runs = (
        Run("faulty", 0, (Observation("mean", "0.5", "7", False, repeats=False),)),
        Run("faulty", 1, (Observation("mean", "0.25", "0.25", True, repeats=False),)),
    )
    now = record(variant("faulty", symptom("mean", 1, None, None)), runs=runs)
    assert symptom_changes(now, GOOD) == (SymptomChange("with the fault, mean", "violated", "0.25 (holds)"),)


def test_a_fault_without_effect_is_told_of_the_variant_and_before_other_values() -> None:
    now = record(
        variant("healthy", symptom("steps", 2, "17"), symptom("mean", 2, None, None)),
        variant("faulty", symptom("steps", 0, "0"), symptom("mean", 2, None, None)),
    )
    assert symptom_changes(now, GOOD) == (
        SymptomChange("with the fault, mean", "violated", "holds"),
        SymptomChange("steps", "16", "17"),
    )


@pytest.mark.parametrize(
    ("committed", "observed", "texts"),
    [
        ((2, "16"), (0, "0"), ("16", "0")),  # and not what the probe expected, which is 20
        ((2, "16"), (0, "16"), ("holds", "16 (violated)")),
        ((0, "16"), (2, "16"), ("violated", "16 (holds)")),
        ((2, "16"), (0, None), ("holds", "violated")),
        ((2, None), (0, "7"), ("holds", "7 (violated)")),
        ((2, None), (0, ""), ("holds", "(empty) (violated)")),
        ((2, ""), (0, "7"), ("(empty)", "7")),
        ((2, "16"), (0, ""), ("16", "(empty)")),
        ((2, "16"), (2, "16"), None),
    ],
)
def test_texts_that_repeat_are_shown_and_else_whether_a_symptom_held(
    committed: tuple[int, str | None], observed: tuple[int, str | None], texts: tuple[str, str] | None
) -> None:
    was = evidence(variant("healthy", symptom("other", 2, "1")), variant("faulty", symptom("steps", *committed)))
    now = record(
        variant("healthy", symptom("other", 2, "1")), variant("faulty", symptom("steps", *observed, before="20"))
    )
    assert symptom_changes(now, was) == (() if texts is None else (SymptomChange("with the fault, steps", *texts),))


def test_of_a_regression_healthy_symptoms_alone_are_shown_with_what_was_committed() -> None:
    steps, mean = symptom("steps", 0, "0", before="20"), symptom("mean", 2, None, None)
    now = record(variant("healthy", steps, mean), variant("faulty", symptom("steps", 2, "16")))
    assert symptom_changes(now, GOOD) == (SymptomChange("steps", "16", "0"),)
    assert symptom_changes(now, None) == (SymptomChange("steps", "20", "0"),)  # as the probe expected


def test_a_figure_has_what_is_claimed_and_the_interval() -> None:
    assert symptom_changes(figure(-2.0, 3.0), None) == (
        SymptomChange(figure(-2.0, 3.0).claim.figure.quantity, "15 to 25 %", "0.5 % (-2 to 3)"),  # type: ignore[union-attr]
    )
    assert symptom_changes(Record(CLAIM, None), None) == ()


def test_a_figure_without_runs_has_no_values() -> None:
    crashed = figure(-2.0, 3.0)
    assert crashed.evidence is not None
    assert crashed.evidence.figure is not None
    none = replace(crashed.evidence, figure=replace(crashed.evidence.figure, values=(), errors=("seed 0: boom",)))
    assert symptom_changes(replace(crashed, evidence=none), None) == ()
    assert symptom_changes(replace(crashed, evidence=GOOD), None) == ()  # measured when it claimed no figure


def test_claims_that_share_a_run_share_its_time() -> None:
    shared, own = Run("healthy", 0, seconds=2.0), Run("faulty", 0, seconds=0.5)
    found = seconds_of({"A": (shared, own), "B": (replace(shared, variant="faulty"),), "C": ()})
    assert found == {"A": 1.5, "B": 1.0, "C": 0}


BEFORE = "import a\n\n\ndef f():\n    # why\n    x = 1\n    return x\n\n\ndef g():\n    return 2\n"


@pytest.mark.parametrize(
    ("old", "new", "line", "edit"),
    [
        ("x = 1", "x = 7", 4, ("- x = 1", "+ x = 7")),
        ("    x = 1\n", "", 4, ("- x = 1",)),
        ("    return 2\n", "    y = 2\n    return y\n", 10, ("- return 2", "+ y = 2", "+ return y")),
        ("# why", "# because", 4, ()),
        ("def g():", "\n\ndef g():", 4, ()),
    ],
    ids=["other value", "removed", "two lines", "comment", "blank"],
)
def test_an_edit_is_quoted_without_indentation_comments_and_blank_lines(
    old: str, new: str, line: int, edit: tuple[str, ...]
) -> None:
    assert BEFORE.count(old) == 1
    assert edit_of(BEFORE, BEFORE.replace(old, new), line) == edit


def test_the_edit_in_the_suspected_function_is_quoted_before_others() -> None:
    now = BEFORE.replace("import a", "import b").replace("x = 1", "x = 7").replace("return 2", "return 3")
    assert edit_of(BEFORE, now, 1) == ("- import a", "+ import b")
    assert edit_of(BEFORE, now, 2) == edit_of(BEFORE, now, 6) == ("- x = 1", "+ x = 7")
    assert edit_of(BEFORE, now, 7) == ("- return 2", "+ return 3")
    assert edit_of(BEFORE, now, 12) == ("- import a", "+ import b")
    assert edit_of(BEFORE, BEFORE, 1) == ()


def test_an_edit_that_begins_above_the_function_and_reaches_into_it_is_its_edit() -> None:
    now = BEFORE.replace("\n\ndef f():", "\n@cached\ndef f(x):").replace("return 2", "return 3")
    assert edit_of(BEFORE, now, now.splitlines().index("def f(x):") + 1) == ("- def f():", "+ @cached", "+ def f(x):")
