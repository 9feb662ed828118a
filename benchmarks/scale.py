"""Scale: what a population of 10 to 10,000 members costs without its training, and what executors add to each task.

python -m benchmarks.scale run       measures populations, model and executors, or each --part; others are kept
python -m benchmarks.scale report    writes reports/measured/scale.md and its plots from reports/measured/scale.json
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks import scale_page, scale_plots
from benchmarks.scale_executors import JOBS, WORKERS, Make, overhead, time_per_task
from benchmarks.scale_population import SIZES, one_model, simulate
from rlverify.running.executors import InlineExecutor, ProcessExecutor

FOLDER: Final = Path("reports/measured")
FIGURES: Final = FOLDER / "scale.json"
PAGE: Final = FOLDER / "scale.md"


def populations() -> dict[str, Any]:
    """Every size in a process of its own, so that its peak memory is its own."""
    return {str(size): _alone(simulate, size) for size in SIZES}


def model() -> dict[str, Any]:
    """A live model."""
    return _alone(one_model)


def executors() -> dict[str, Any]:
    """Each executor that is installed: what it adds to a task, and what a task takes with more workers."""
    makes: dict[str, Make] = {"processes": ProcessExecutor}
    if find_spec("ray") is not None:
        from rlverify.running.ray_executor import RayExecutor

        makes["ray"] = partial(RayExecutor, address="")
    return {"inline": _executor(_inline, 1, (1,)), **{name: _executor(make) for name, make in makes.items()}}


def _executor(make: Make, jobs: int = JOBS, workers: Sequence[int] = WORKERS) -> dict[str, Any]:
    return {"overhead": overhead(make, jobs), "workers": [time_per_task(make, each) for each in workers]}


def _inline(_: int) -> InlineExecutor:
    return InlineExecutor()


PARTS: Final[Mapping[str, Callable[[], dict[str, Any]]]] = {
    "populations": populations,
    "model": model,
    "executors": executors,
}


def _alone(work: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """What the function returns in a new process, given a new folder after its arguments."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
        ) as pool,
    ):
        return pool.submit(work, *arguments, Path(folder)).result()


def read() -> dict[str, Any]:
    """The figures that were kept, by part; none where nothing was run yet."""
    found: dict[str, Any] = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.is_file() else {}
    return found


def run(part: str) -> None:
    """Measure a part and keep its figures in place of older ones."""
    load = round(os.getloadavg()[0], 1)
    figures = PARTS[part]()
    machine = {"cores": os.cpu_count(), "architecture": platform.machine(), "load": load}
    kept = {**read(), part: {"machine": machine, "figures": figures}}
    FOLDER.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--part", nargs="*", choices=tuple(PARTS), default=tuple(PARTS))
    given = parser.parse_args()
    for part in given.part if given.what == "run" else ():
        run(part)
    figures = read()
    PAGE.write_text(scale_page.report(figures), encoding="utf-8")
    scale_plots.draw(figures, FOLDER)


if __name__ == "__main__":
    main()
