"""What measurements time and count, on clocks, devices and executors whose answer is known."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.autograd import DeviceType

from benchmarks import scale, scale_executors, side_by_side
from benchmarks.cuda import __main__ as cuda
from benchmarks.cuda import launches, marked_tests, optimizers, page, run
from benchmarks.cuda.plan import FULL, Plan, Training
from benchmarks.cuda.timing import Budget, Rounds, comparison
from benchmarks.cuda.timing import side_by_side as timed_on_a_device
from benchmarks.scale_population import INTERVAL, ROUNDS, SimulatedPopulation, config_of, simulate
from benchmarks.side_by_side import Target, compare
from rlcore import PBTScheduler
from rlcore.pbt.population import read_lineage, read_state

CPU = torch.device("cpu")


class Clock:
    """Seconds that actions take by what they are given."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def taking(self, *seconds: float) -> Callable[[], None]:
        """Takes each of some times in turn, the last one from then on."""
        left = list(seconds)

        def action() -> None:
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return action


class OfPytest:
    """Replaces pytest-benchmark's fixture: runs what it is given as often as that would."""

    def __init__(self) -> None:
        self.extra_info: dict[str, Any] = {}

    def pedantic(self, action: Any, *, rounds: int, iterations: int, warmup_rounds: int) -> None:
        for _ in range((rounds + warmup_rounds) * iterations):
            action()


@pytest.mark.parametrize(
    ("ours", "reference", "around", "settings", "expected"),
    [
        ((90, 90, 90, 2, 6, 3), 2, {"floor": 1}, {}, {"ratio": 1.5, "least": 1, "most": 3, "floor": 0.5, "ours_s": 3}),
        ((2,), 6, {}, {"target": Target(2.5, "at least")}, {"ratio": 3, "reference_s": 6}),
        ((8, 2, 2), 2, {}, {"warm": False}, {"ratio": 1, "most": 4}),
        ((1,), 1, {"before": 100}, {}, {"ours_s": 1, "reference_s": 1}),
    ],
    ids=["of each round without those that warm up", "of speeds", "from the first round on", "what comes before"],
)
def test_a_ratio_of_two_actions(
    ours: tuple[float, ...],
    reference: float,
    around: dict[str, float],
    settings: dict[str, Any],
    expected: dict[str, float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, benchmark = Clock(), OfPytest()
    monkeypatch.setattr(side_by_side, "perf_counter", clock)
    given = {"target": Target(2.0), **settings, **{name: clock.taking(each) for name, each in around.items()}}
    found = compare(benchmark, clock.taking(*ours), clock.taking(reference), rounds=3, **given)
    assert {name: getattr(found, name) for name in expected} == expected
    assert (found.rounds, benchmark.extra_info["target"]["bound"]) == (3, given["target"].bound)


def test_a_simulated_population_leaves_the_files_of_a_real_one(tmp_path: Path) -> None:
    figures = json.loads(scale.FIGURES.read_text(encoding="utf-8"))
    found = simulate(4, tmp_path)
    assert (found["members"], found["copies"], found["checkpoint_files"]) == (4, ROUNDS, 8)
    assert found["files"] == 8 + 4 + 2
    assert found["costs"]["report"]["measured"] == found["costs"]["exploit"]["measured"] == 4 * ROUNDS
    assert [set(found["costs"])] * 4 == [set(each["costs"]) for each in figures["populations"]["figures"].values()]
    state = read_state(tmp_path)
    assert state is not None
    assert (state["explored_step"], state["lineage_size"]) == (ROUNDS * INTERVAL, found["lineage_bytes"])
    assert len(read_lineage(tmp_path)) == ROUNDS
    restored = PBTScheduler(config_of(4, tmp_path))
    restored.load_state_dict(state["scheduler"])
    assert restored.state_dict() == state["scheduler"]


def test_measuring_decisions_changes_nothing(tmp_path: Path) -> None:
    simulated = SimulatedPopulation(6, tmp_path)
    simulated.report(INTERVAL)
    before = str(simulated.scheduler.state_dict())
    simulated.decide()
    assert str(simulated.scheduler.state_dict()) == before
    assert simulated.scheduler.config is simulated.config


def test_the_start_of_an_executor_is_no_overhead(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(scale_executors, "perf_counter", clock)
    monkeypatch.setattr(scale_executors, "fixed_work", lambda _: (0.25, 0.125))

    class Executor:
        """Ends a task every second, the first one after a minute."""

        def __init__(self, jobs: int) -> None:
            self.jobs = jobs

        def map(self, function: Callable[[int], Any], tasks: Sequence[int], note: Callable[..., None]) -> list[Any]:
            wait = clock.taking(60.0, 1.0)
            ended = []
            for task in tasks:
                wait()
                ended.append(SimpleNamespace(result=function(task)))
                note(task, ended[-1])
            return ended

        def close(self) -> None:
            pass

    assert scale_executors.overhead(Executor) == {"jobs": 2, "tasks": 200, "per_task_s": 1.0}  # type: ignore[arg-type]
    found = scale_executors.time_per_task(Executor, 4)  # type: ignore[arg-type]
    assert found == {"workers": 4, "tasks": 40, "per_task_s": 1.0, "own_wall_s": 0.25, "own_cpu_s": 0.125}


ONCE = Rounds(planned=2, least_s=0.0, warm_up=1)
SMALLEST = Plan(
    tensors={"two tensors": [(3, 2), (3,)], "one tensor": [(2, 2)]},
    counted="two tensors",
    rounds=ONCE,
    training=Training(envs=1, steps={4: 8, 8: 8}, lstm=4),
    training_rounds=ONCE,
    seconds=dict.fromkeys(["optimizer", "scaler", "training", "launches", "tests"], 60.0),
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


@pytest.fixture(autouse=True, scope="module")
def _no_tests() -> Iterator[pytest.MonkeyPatch]:
    """The section of the tests marked `cuda` starts no process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "marked_tests", SimpleNamespace(run=lambda *_: OUTCOME, ROOT=marked_tests.ROOT))
        yield patch


def test_a_rehearsal_measures_every_section_on_the_cpu(tmp_path: Path) -> None:
    record = run.measure(SMALLEST, CPU, [])
    cuda.write(record, tmp_path)
    text = (tmp_path / "cuda.md").read_text(encoding="utf-8")
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == list(page.TITLES.values())
    assert "A rehearsal on the CPU" in text
    assert "3 passed, 0 failed, 1 skipped." in text
    assert not run.failed(record)
    sections = {name: each["records"] for name, each in record["sections"].items()}
    assert [each["title"] for each in sections["optimizer"]] == list(SMALLEST.tensors)
    for each in sections["optimizer"]:
        assert {"UPGD", "AdaptiveUPGD", *optimizers.REFERENCES} <= set(each["ratios"])
        assert all(set(ratios) == {"foreach", "loop", "fused"} for ratios in each["ratios"].values())
    # Eight steps in minibatches of four are two updates, of eight one.
    assert [each["updates"] for each in sections["training"]] == [2, 2, 1, 1]
    counted = {each["title"]: each for each in sections["launches"]}
    assert counted["AdamW, loop, a step"]["operators"] > counted["AdamW, fused, a step"]["operators"] > 0
    assert all(each["kernels"] == each["waits"] == 0 for each in counted.values())
    assert cuda.main(["report", "--output", str(tmp_path)]) == 0
    assert (tmp_path / "cuda.md").read_text(encoding="utf-8") == text


def test_a_section_without_time_is_a_page_without_numbers() -> None:
    text = page.render(run.measure(replace(SMALLEST, seconds=dict.fromkeys(SMALLEST.seconds, 0.0)), CPU, []))
    assert text.count("0 of 2, as the time budget was spent") == 2 + 2 + 4
    assert "| UPGD, a step | not counted | not counted | not counted | not counted |" in text


@pytest.mark.parametrize("error", [RuntimeError("CUDA error\nmore of it"), torch.OutOfMemoryError("CUDA error")])
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


def test_rounds_on_a_device_stop_when_the_budget_is_spent() -> None:
    """A look at the clock takes a second: two at each of two actions, and one at the budget."""
    looks = count()
    budget = Budget(12.0, lambda: float(next(looks)))
    actions: dict[str, Callable[[], object]] = {"ours": list, "reference": list}
    seconds = timed_on_a_device(actions, CPU, Rounds(planned=10, least_s=0.0), budget)
    assert seconds == {"ours": [1.0] * 3, "reference": [1.0] * 3}
    assert comparison("some size", seconds, {"reference": "reference"}, 10)["rounds"] == 3
    assert sum(FULL.seconds.values()) <= 0.95 * 8 * 60


def test_short_actions_on_a_device_are_timed_in_series_that_take_long_enough() -> None:
    looks, calls = count(), []
    budget = Budget(1e6, lambda: float(next(looks)))
    timed_on_a_device({"ours": lambda: calls.append(1)}, CPU, Rounds(1, least_s=5.0, warm_up=2), budget)
    assert len(calls) == 2 + 1 + 5


@pytest.mark.parametrize(("version", "said"), [(None, "is a build without CUDA"), ("12.6", "a build for CUDA 12.6")])
def test_without_a_device_nothing_is_written(
    version: str | None,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", version)
    assert cuda.main(["--output", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
    assert cuda.main(["--device", "cpu", "--output", str(cuda.MEASURED)]) == 2
    assert "is for pages of a device" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_tests_marked_cuda_alone_run_and_a_failure_fails_the_run(tmp_path: Path) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(MARKED, encoding="utf-8")
    outcome = marked_tests.run([file], 60.0)
    (failure,) = outcome.pop("failures")
    assert outcome == {"passed": 1, "failed": 1, "skipped": 1, "note": ""}
    assert failure["name"].endswith("::test_marked[2]")
    assert failure["message"].startswith("AssertionError: two is not one")
    assert run.failed({"sections": {"tests": {"records": [outcome]}}})
    names = {path.name for path in marked_tests.files_with_marked_tests()}
    assert {"test_upgd.py", "test_scaler_state.py", "test_inference.py"} <= names


@pytest.mark.parametrize("code", [1, 4])
def test_tests_marked_cuda_that_leave_no_result_fail_the_run(
    code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without pytest, Python ends with exit code 1, as pytest does after a failure."""
    done = SimpleNamespace(returncode=code, stdout="", stderr="usage\nno module or file\n")
    monkeypatch.setattr(marked_tests.subprocess, "run", lambda *_, **__: done)
    outcome = marked_tests.run([tmp_path], 60.0)
    assert outcome["note"] == f"pytest ended with exit code {code}: no module or file"
    assert run.failed({"sections": {"tests": {"records": [outcome]}}})


def test_kernels_copies_and_operators_of_a_device_are_counted_apart() -> None:
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


def test_waits_for_a_device_are_the_warnings_of_torch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)

    def action() -> None:
        for _ in range(2):
            warnings.warn("called a synchronizing CUDA operation (Triggered internally)", stacklevel=1)
        warnings.warn("something else", stacklevel=1)

    assert launches.count_waits(action) == 2
    assert modes == ["warn", "default"]
