"""Ray's own PBT with real actors: who copies trains under the explored values, and no process of Ray is left."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("ray")

from rlcore import DistributionalPPO
from tests.support import ray_run
from tests.support.ray_trials import as_ray_gives, results_in
from tests.support.training import differing

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
STEPS = 4
VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else Ray warns that this will become the default
    "OMP_NUM_THREADS": "1",
}


class Run(NamedTuple):
    process: subprocess.Popen[str]
    ray: Path
    results: Path

    def left(self) -> list[str]:
        """The command lines of processes that work in Ray's folder."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(self.ray) in command and "tests.support.ray_run" not in command:
                found.append(command)
        return found

    def trials(self) -> dict[str, list[dict[str, Any]]]:
        """What the trials reported, by their ids."""
        files = sorted(self.results.glob("run/*/result.json"))
        read = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
        return {results[0]["trial_id"]: results for results in read if results}


@pytest.fixture
def started(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    """A run of so many steps, in a short folder, as the names of sockets have few characters."""
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    command = [sys.executable, "-W", "error", "-m", "tests.support.ray_run", str(folder), str(tmp_path)]
    environment = {**os.environ, **VARIABLES}
    with (tmp_path / "output").open("w") as output:
        process = subprocess.Popen(
            [*command, str(request.param)], cwd=ROOT, env=environment, stdout=output, stderr=output, text=True
        )
        try:
            yield Run(process, folder, tmp_path)
        finally:
            process.kill()
            process.wait()
            shutil.rmtree(folder, ignore_errors=True)


def wait_until(what: Any, seconds: float = 120.0) -> bool:
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        time.sleep(0.1)
    return bool(what())


def differing_models(one: Path, other: Path) -> list[str]:
    """Where two model files differ, but for the times at which episodes ended."""
    states = (DistributionalPPO.load(folder / "model.zip").__getstate__()["state"] for folder in (one, other))
    return [path for path in differing(*states) if not path.endswith("/t")]


@pytest.mark.parametrize("started", [STEPS], indirect=True)
def test_a_trial_that_copied_trains_under_the_explored_values(started: Run, tmp_path: Path) -> None:
    assert started.process.wait(240) == 0, (tmp_path / "output").read_text()
    assert wait_until(lambda: not started.left(), 30.0)
    copies = [json.loads(line) for line in (tmp_path / "run" / "pbt_global.txt").read_text().splitlines()]
    trials = started.trials()
    assert len(copies) == 1
    assert len(trials) == len(ray_run.RATES)
    ((receiver, source, _, _, theirs, explored),) = copies
    assert (receiver.partition("_")[0], source.partition("_")[0]) == ("3", "0")
    names = ("learning_rate", "clip_range")
    assert all(explored[name] != theirs[name] for name in names)
    for number, results in enumerate(trials[key] for key in sorted(trials)):
        for each in results:
            assert {name: each["effective"][name] for name in names} == {name: each["config"][name] for name in names}
        own = {name: ray_run.RATES[number] if name == "learning_rate" else 0.2 for name in names}
        last = explored if number == 3 else own
        assert {name: results[-1]["config"][name] for name in names} == {name: last[name] for name in names}
        # Where Ray runs the receiver after the source has ended, it copies the end and trains one step from there.
        assert results[-1]["timesteps_total"] in (STEPS * 32, (STEPS + 1) * 32)
    # The copy was made from the source's file, from which the source itself went on later.
    (folder,) = (tmp_path / "run").glob("*_00000_0_*")
    config = {"learning_rate": ray_run.RATES[0], "clip_range": 0.2, "optimizer_class": "adam"}
    with results_in(tmp_path / "own"):
        again = ray_run.kind(STEPS)(as_ray_gives(config, sorted(trials)[0]))
    again.load_checkpoint(str(folder / "checkpoint_000000"))
    assert again.model.num_timesteps == ray_run.INTERVAL * 32
    for _ in range(STEPS - ray_run.INTERVAL):
        again.step()
    (tmp_path / "again").mkdir()
    again.save_checkpoint(str(tmp_path / "again"))
    assert differing_models(tmp_path / "again", folder / "checkpoint_000001") == []
    assert differing_models(tmp_path / "again", folder / "checkpoint_000000") != []


def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/ray.md").read_text(encoding="utf-8")
    ((name, example),) = re.findall(r"<!-- (population\.py) -->\n```python\n(.*?)```", page, re.DOTALL)
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    small = f"num_cpus=2, include_dashboard=False, object_store_memory=100 * 2**20, _temp_dir={str(folder)!r}"
    (tmp_path / name).write_text(f"import ray\nray.init({small})\n{example}\nprint(best.metrics['timesteps_total'])\n")
    environment = {**os.environ, **VARIABLES, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    try:
        command = [sys.executable, name]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == re.findall(r"total_timesteps=(\d+)", example)[0]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("started", [10**6], indirect=True)
def test_ctrl_c_leaves_no_process_of_ray(started: Run, tmp_path: Path) -> None:
    assert wait_until(started.trials), (tmp_path / "output").read_text()
    assert started.left() != []
    started.process.send_signal(signal.SIGINT)
    started.process.wait(120)
    assert wait_until(lambda: not started.left(), 30.0)
