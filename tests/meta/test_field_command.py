"""`rlverify field-report` as a user meets it: pages, files, exit codes and bad input."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rlverify.checks.check_records import Status
from rlverify.cli.app import run
from rlverify.field import field_measuring
from rlverify.field.field_file import read_field_report, text_of
from rlverify.field.field_records import FieldReport
from rlverify.reporting.field_report.field_pages import render_field_report
from tests.meta.messages import is_one_line
from tests.report.field_example import field_example

FieldCommand = Callable[..., tuple[int, str, str]]
FILES = ["field-report.html", "field-report.json", "field-report.md"]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> FieldCommand:
    """Runs the command in this process: exit code, output, errors."""

    def invoke(*arguments: str | Path) -> tuple[int, str, str]:
        code = run(["field-report", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return invoke


@pytest.fixture
def measured_with(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The names of each call of `measure`, which gives the example at once."""
    calls: list[list[str]] = []

    def measure(names: list[str], **_more: object) -> FieldReport:
        calls.append(names)
        return field_example()

    monkeypatch.setattr(field_measuring, "measure", measure)
    return calls


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())}


def test_an_optimizer_is_measured_and_its_pages_can_be_written_again(command: FieldCommand, tmp_path: Path) -> None:
    code, output, errors = command("Adam", "--output", tmp_path / "new" / "first", "--jobs", "1")
    assert (code, output) == (0, "")
    assert errors.startswith("1 of 1: Adam, defaults (")
    first = contents(tmp_path / "new" / "first")
    assert list(first) == FILES
    source = tmp_path / "new" / "first" / FILES[1]
    report = read_field_report(source)
    assert report.algorithms == ()
    (adam,) = report.optimizers
    assert (adam.name, adam.factory, adam.problem) == ("Adam", "torch.optim:Adam", "")
    status = {each.check: each.status for each in adam.records}
    assert status["state_dict_continues"] is status["learning_rate_zero_freezes"] is Status.PASS
    assert status["load_state_dict_copies"] is Status.FAIL
    assert "| `load_state_dict_copies` | ✗ |\n" in first[FILES[2]]

    assert command("--from", source, "--output", tmp_path / "second") == (0, "", "")
    second = contents(tmp_path / "second")
    assert second == {name: first[name] for name in second}
    assert list(second) == [FILES[0], FILES[2]]


@pytest.mark.slow
def test_an_algorithm_is_measured_in_both_variants(command: FieldCommand, tmp_path: Path) -> None:
    code, output, errors = command("A2C", "--output", tmp_path, "--jobs", "2")
    assert (code, output) == (0, "")
    assert sorted(line.partition(" (")[0].partition(": ")[2] for line in errors.splitlines()) == [
        "A2C, awkward",
        "A2C, defaults",
    ]
    report = read_field_report(tmp_path / FILES[1])
    defaults, awkward = report.algorithms
    assert (defaults.variant, awkward.variant, report.optimizers) == ("defaults", "awkward", ())
    assert defaults.problem == awkward.problem == ""
    assert awkward.effects == {}
    failed = {each.check for each in defaults.records if each.status is Status.FAIL}
    assert {"resume_is_exact", "set_parameters_copies", "arguments_are_left_alone"} <= failed
    assert set(defaults.effects) == {"resume_is_exact", "set_parameters_copies"}
    assert all(min(each.distance) > 0 for each in defaults.effects.values())
    assert failed <= {each.check for each in report.reproductions}
    assert (tmp_path / FILES[2]).read_text(encoding="utf-8") == render_field_report(report, "md")


def test_pages_and_data_of_a_run(command: FieldCommand, measured_with: list[list[str]], tmp_path: Path) -> None:
    assert command("PPO", "Adam", "--output", tmp_path) == (0, "", "")
    assert measured_with == [["PPO", "Adam"]]
    assert contents(tmp_path) == {
        FILES[0]: render_field_report(field_example(), "html"),
        FILES[1]: text_of(field_example()),
        FILES[2]: render_field_report(field_example(), "md"),
    }


def test_files_are_written_into_the_current_folder_by_default(
    command: FieldCommand, measured_with: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command() == (0, "", "")
    assert measured_with == [[]]
    assert sorted(contents(tmp_path)) == FILES


def test_writing_pages_again_measures_nothing_and_leaves_the_json_alone(
    command: FieldCommand, measured_with: list[list[str]], tmp_path: Path
) -> None:
    source = tmp_path / FILES[1]
    source.write_text(text_of(field_example()).replace("\n", " \n"), encoding="utf-8")
    os.utime(source, ns=(1, 1))
    before = source.read_bytes()
    assert command("--from", source, "--output", tmp_path) == (0, "", "")
    assert measured_with == []
    assert (source.read_bytes(), source.stat().st_mtime_ns) == (before, 1)
    assert contents(tmp_path)[FILES[2]] == render_field_report(field_example(), "md")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("PPO2", "there is no 'PPO2' among the algorithms and optimizers; did you mean 'PPO'?"),
        ("adamw", "there is no 'adamw' among the algorithms and optimizers; did you mean 'AdamW'?"),
        ("Optimizer", "there is no 'Optimizer' among the algorithms and optimizers"),
    ],
)
def test_an_unknown_name(
    name: str, words: str, command: FieldCommand, measured_with: list[list[str]], tmp_path: Path
) -> None:
    code, output, errors = command("SGD", name, "--output", tmp_path)
    assert (code, output, measured_with) == (2, "", [])
    assert is_one_line(errors, words)
    assert list(tmp_path.iterdir()) == []


def test_names_make_no_sense_for_pages_that_are_written_again(command: FieldCommand, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text_of(field_example()), encoding="utf-8")
    code, output, errors = command("PPO", "--from", tmp_path / "run.json", "--output", tmp_path)
    assert (code, output) == (2, "")
    assert is_one_line(errors, "--from writes the pages of a whole run, so it takes no names")
    assert list(contents(tmp_path)) == ["run.json"]


@pytest.mark.parametrize("content", [None, "# Field report\n", "{}"])
def test_a_file_that_is_no_report(content: str | None, command: FieldCommand, tmp_path: Path) -> None:
    source = tmp_path / "run.json"
    if content is not None:
        source.write_text(content, encoding="utf-8")
    code, output, errors = command("--from", source, "--output", tmp_path / "pages")
    assert (code, output) == (2, "")
    assert is_one_line(errors, f"{source} ")


def test_an_output_that_cannot_be_written_is_refused_before_anything_is_measured(
    command: FieldCommand, measured_with: list[list[str]], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    code, output, errors = command("--output", tmp_path / "file")
    assert (code, output, measured_with) == (2, "", [])
    assert f"Error: Invalid value: --output {tmp_path / 'file' / FILES[2]} cannot be written: File exists; " in errors


@pytest.mark.parametrize("name", FILES)
def test_a_folder_with_the_name_of_a_file_is_refused_before_anything_is_measured(
    name: str, command: FieldCommand, measured_with: list[list[str]], tmp_path: Path
) -> None:
    (tmp_path / name).mkdir()
    code, output, errors = command("--output", tmp_path)
    assert (code, output, measured_with) == (2, "", [])
    assert f"Error: Invalid value: --output {tmp_path / name} is not a file; " in errors


@pytest.mark.parametrize("module", ["torch", "stable_baselines3", "sb3_contrib"])
def test_a_missing_library_is_one_sentence(
    module: str,
    command: FieldCommand,
    measured_with: list[list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    code, output, errors = command("--output", tmp_path)
    assert (code, output, measured_with) == (2, "", [])
    assert is_one_line(errors, f"{module} is not installed; install stable-baselines3 and sb3-contrib")
    assert list(tmp_path.iterdir()) == []
