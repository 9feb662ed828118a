"""The measurement of a CUDA device, rehearsed on the CPU: its page, its budgets and what it says without a device."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.autograd import DeviceType

from benchmarks.cuda import __main__ as command
from benchmarks.cuda import device, launches, marked_tests, optimizers, page, run
from benchmarks.cuda.plan import FULL, Plan, Training
from benchmarks.cuda.timing import Budget, Rounds, comparison, side_by_side

CPU = torch.device("cpu")
ONCE = Rounds(planned=2, least_s=0.0, warm_up=1)
SMALLEST = Plan(
    tensors={"two tensors": [(3, 2), (3,)], "one tensor": [(2, 2)]},
    counted="two tensors",
    rounds=ONCE,
    training=Training(envs=1, steps={4: 8, 8: 8}, lstm=4),
    training_rounds=ONCE,
    seconds={"optimizer": 60.0, "scaler": 60.0, "training": 60.0, "launches": 60.0, "tests": 60.0},
)
OUTCOME = {"passed": 3, "failed": 0, "skipped": 1, "failures": [], "note": ""}
MARKED = """
import pytest

@pytest.mark.cuda
@pytest.mark.parametrize("number", [1, 2])
def test_marked(number):
    assert number == 1, "two is not one"

@pytest.mark.cuda
def test_without_a_device():
    pytest.skip("needs a device")

def test_other():
    raise AssertionError("is not to be run")
"""


@pytest.fixture
def no_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The section of the tests starts no process."""
    monkeypatch.setattr(marked_tests, "run", lambda *_: OUTCOME)


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marked_tests, "run", lambda *_: OUTCOME)
        return run.measure(SMALLEST, CPU, [])


def without_device(monkeypatch: pytest.MonkeyPatch, cuda: str | None) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)


class Seconds:
    """A clock that shows one second more at each look."""

    def __init__(self) -> None:
        self._numbers = count()

    def __call__(self) -> float:
        return float(next(self._numbers))


class TestRehearsal:
    def test_the_page_has_every_section_and_says_that_no_device_ran(self, record: dict[str, Any]) -> None:
        text = page.render(record)
        assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == list(page.TITLES.values())
        assert "A rehearsal on the CPU" in text
        assert "| device | none: the CPU |" in text
        assert "Failed" not in text
        assert "3 passed, 0 failed, 1 skipped." in text
        assert not run.failed(record)

    def test_every_optimizer_is_compared_with_every_adamw_at_every_size(self, record: dict[str, Any]) -> None:
        comparisons = record["sections"]["optimizer"]["records"]
        assert [each["title"] for each in comparisons] == list(SMALLEST.tensors)
        for each in comparisons:
            assert {"UPGD", "AdaptiveUPGD", *optimizers.REFERENCES} <= set(each["ratios"])
            assert all(set(ratios) == {"foreach", "loop", "fused"} for ratios in each["ratios"].values())
            assert (each["rounds"], each["planned"]) == (2, 2)

    def test_training_counts_the_updates_of_a_call(self, record: dict[str, Any]) -> None:
        """Eight steps in minibatches of four are two updates, of eight one."""
        assert [each["updates"] for each in record["sections"]["training"]["records"]] == [2, 2, 1, 1]

    def test_launches_are_counted_of_optimizers_scaling_and_training(self, record: dict[str, Any]) -> None:
        counted = {each["title"]: each for each in record["sections"]["launches"]["records"]}
        assert counted["AdamW, loop, a step"]["operators"] > counted["AdamW, fused, a step"]["operators"] > 0
        assert counted["train() with one minibatch of 2"]["operators"] > 100
        assert all(each["kernels"] == each["waits"] == 0 for each in counted.values())

    def test_the_same_json_gives_the_same_page(self, record: dict[str, Any], tmp_path: Path) -> None:
        command.write(record, tmp_path)
        first = (tmp_path / "cuda.md").read_bytes()
        (tmp_path / "cuda.md").unlink()
        assert command.main(["report", "--output", str(tmp_path)]) == 0
        assert (tmp_path / "cuda.md").read_bytes() == first
        assert json.loads((tmp_path / "cuda.json").read_text(encoding="utf-8")) == record


@pytest.mark.parametrize("error", [RuntimeError("CUDA error\nmore of it"), torch.OutOfMemoryError("CUDA error")])
@pytest.mark.usefixtures("no_tests")
def test_a_section_that_fails_is_on_the_page_next_to_the_others(
    error: RuntimeError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> list[Any]:
        raise error

    monkeypatch.setattr(run, "SECTIONS", {"optimizer": optimizers.measure, "scaler": fail})
    record = run.measure(SMALLEST, CPU, [])
    text = page.render(record)
    assert f"**Failed**: `{type(error).__name__}: CUDA error`" in text
    assert "### two tensors" in text
    assert run.failed(record)


class TestBudget:
    def test_rounds_stop_when_the_budget_is_spent_and_the_page_says_so(self) -> None:
        """A look at the clock takes a second: two at each of two actions, and one at the budget."""
        actions: dict[str, Callable[[], object]] = {"ours": list, "reference": list}
        budget = Budget(12.0, Seconds())
        seconds = side_by_side(actions, CPU, Rounds(planned=10, least_s=0.0), budget)
        assert seconds == {"ours": [1.0] * 3, "reference": [1.0] * 3}
        record = comparison("some size", seconds, {"reference": "reference"}, 10)
        section = {"seconds": 9.0, "budget_s": 8.0, "records": [record]}
        text = page.render(
            {"rehearsal": False, "date": "", "commit": "", "device": {}, "sections": {"optimizer": section}}
        )
        assert "Rounds: 3 of 10, as the time budget was spent." in text

    def test_a_section_without_time_is_a_page_without_numbers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(marked_tests, "run", lambda *_: OUTCOME)
        record = run.measure(replace(SMALLEST, seconds=dict.fromkeys(SMALLEST.seconds, 0.0)), CPU, [])
        text = page.render(record)
        assert text.count("0 of 2, as the time budget was spent") == 2 + 2 + 4
        assert "| UPGD, a step | not counted | not counted | not counted | not counted |" in text

    def test_all_budgets_together_are_under_eight_minutes(self) -> None:
        assert sum(FULL.seconds.values()) <= 0.95 * 8 * 60
        assert set(FULL.seconds) == {*run.SECTIONS, "tests"} == set(page.TITLES)

    def test_short_actions_are_timed_in_series_that_take_long_enough(self) -> None:
        calls: list[int] = []
        side_by_side({"ours": lambda: calls.append(1)}, CPU, Rounds(1, least_s=5.0, warm_up=2), Budget(1e6, Seconds()))
        assert len(calls) == 2 + 1 + 5


class TestCommand:
    @pytest.mark.parametrize(
        ("cuda", "said"),
        [(None, "is a build without CUDA"), ("12.6", "a build for CUDA 12.6, so nothing was measured")],
    )
    def test_without_a_device_one_line_says_what_to_install_and_nothing_is_written(
        self,
        cuda: str | None,
        said: str,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        tmp_path: Path,
    ) -> None:
        without_device(monkeypatch, cuda)
        assert command.main(["--output", str(tmp_path)]) == 2
        output = capsys.readouterr()
        (line,) = output.err.splitlines()
        assert line.startswith("No CUDA device was found")
        assert f"torch {torch.__version__}" in line
        assert said in line
        assert "make bench-cuda TORCH_INDEX=https://" in line
        assert output.out == ""
        assert list(tmp_path.iterdir()) == []

    def test_a_rehearsal_does_not_overwrite_the_page_of_a_device(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(command, "measure", lambda *_: pytest.fail("it was run"))
        assert command.main(["--device", "cpu", "--output", str(command.MEASURED)]) == 2
        assert "Give another folder" in capsys.readouterr().err

    @pytest.mark.parametrize(("outcome", "code"), [({}, 0), ({"failed": 1}, 1), ({"note": "stopped"}, 1)])
    def test_the_exit_code_says_whether_all_tests_passed(
        self,
        outcome: dict[str, Any],
        code: int,
        record: dict[str, Any],
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        tests = {**record["sections"]["tests"], "records": [{**OUTCOME, **outcome}]}
        monkeypatch.setattr(
            command, "measure", lambda *_: {**record, "sections": {**record["sections"], "tests": tests}}
        )
        assert command.main(["--device", "cpu", "--output", str(tmp_path)]) == code
        assert (tmp_path / "cuda.md").is_file()


class TestMarkedTests:
    def test_the_marked_ones_alone_run_and_a_failure_has_its_name_and_message(self, tmp_path: Path) -> None:
        file = tmp_path / "test_some.py"
        file.write_text(MARKED, encoding="utf-8")
        outcome = marked_tests.run([file], 60.0)
        assert {name: outcome[name] for name in ("passed", "failed", "skipped", "note")} == {
            "passed": 1,
            "failed": 1,
            "skipped": 1,
            "note": "",
        }
        (failure,) = outcome["failures"]
        assert failure["name"].endswith("::test_marked[2]")
        assert failure["message"].startswith("AssertionError: two is not one")

    @pytest.mark.parametrize("code", [1, 4])
    def test_a_process_that_ends_without_a_result_is_said(
        self, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """Without pytest, Python ends with exit code 1, as pytest does after a failure."""
        done = SimpleNamespace(returncode=code, stdout="", stderr="usage\nno module or file\n")
        monkeypatch.setattr(marked_tests.subprocess, "run", lambda *_, **__: done)
        outcome = marked_tests.run([tmp_path], 60.0)
        assert outcome["passed"] == outcome["failed"] == 0
        assert outcome["note"] == f"pytest ended with exit code {code}: no module or file"

    def test_every_file_with_a_marked_test_is_found(self) -> None:
        names = {path.name for path in marked_tests.files_with_marked_tests()}
        assert {"test_upgd.py", "test_scaler_state.py", "test_inference.py"} <= names


@pytest.mark.parametrize(("program", "driver"), [(None, "unknown: no nvidia-smi"), ("nvidia-smi", "570.86")])
def test_a_device_is_described_with_its_versions(
    program: str | None, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = SimpleNamespace(name="Some GPU", total_memory=8 * 2**30, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91002)
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    monkeypatch.setattr(device.shutil, "which", lambda _: program)
    monkeypatch.setattr(device.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout="570.86\n570.86\n"))
    found = device.describe(torch.device("cuda"))
    assert {**found, "Python": "", "CPU": ""} == {
        "device": "Some GPU, 8 GiB",
        "compute capability": "9.0",
        "driver": driver,
        "CUDA of torch": "12.6",
        "cuDNN": "91002",
        "torch": torch.__version__,
        "Python": "",
        "CPU": "",
    }


class TestCounting:
    def test_kernels_copies_and_operators_are_told_apart(self) -> None:
        outer = SimpleNamespace(name="aten::add", device_type=DeviceType.CPU, cpu_parent=None)
        step = SimpleNamespace(name="Optimizer.step#UPGD.step", device_type=DeviceType.CPU, cpu_parent=None)
        events = [
            step,
            outer,
            SimpleNamespace(name="aten::mul", device_type=DeviceType.CPU, cpu_parent=step),
            SimpleNamespace(name="aten::empty", device_type=DeviceType.CPU, cpu_parent=outer),
            *[SimpleNamespace(name="kernel", device_type=DeviceType.CUDA, is_user_annotation=False)] * 3,
            SimpleNamespace(name="Memcpy DtoH", device_type=DeviceType.CUDA, is_user_annotation=False),
            SimpleNamespace(name="Optimizer.step", device_type=DeviceType.CUDA, is_user_annotation=True),
        ]
        assert launches.count_events(events) == {"operators": 2, "kernels": 3, "copies": 1}

    def test_waits_are_the_warnings_of_torch_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        modes: list[str] = []
        monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)

        def action() -> None:
            for _ in range(2):
                warnings.warn("called a synchronizing CUDA operation (Triggered internally)", stacklevel=1)
            warnings.warn("something else", stacklevel=1)

        assert launches.count_waits(action) == 2
        assert modes == ["warn", "default"]
