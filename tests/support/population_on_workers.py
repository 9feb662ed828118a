"""A small population whose files hold no time, so that two runs of it must leave the same bytes.

``python -m tests.support.population_on_workers FOLDER`` trains it in two processes, which write their ids into FOLDER
and then wait to be stopped.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

from rlcore import DistributionalPPO, PBTConfig
from rlcore.pbt.population import Population
from rlcore.pbt.turns import MakeModel
from rlcore.pbt.workers import InlineExecutor, ProcessExecutor
from tests.support.population_run import CONFIG, UPDATES
from tests.support.training import SMALL, laid_over, make_envs


class Untimed(DistributionalPPO):
    """Takes out of what Monitor notes of an episode how long it took."""

    def _update_info_buffer(self, infos: list[dict[str, Any]], dones: Any = None) -> None:
        for info in infos:
            if "episode" in info:
                info["episode"]["t"] = 0.0
        super()._update_info_buffer(infos, dones)


class FromFiles(InlineExecutor):
    """Does in this process what workers do in theirs."""

    in_process = False


class LastFirst(InlineExecutor):
    """Ends its tasks in the opposite order."""

    def map(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        yield from reversed([(task, function(task)) for task in tasks])


def build_model(hyperparams: Mapping[str, Any], seed: int) -> DistributionalPPO:
    settings = {"learning_rate": hyperparams["learning_rate"], "optimizer_kwargs": {"sigma": hyperparams["sigma"]}}
    envs = make_envs(n_envs=2, normalize=True, seed=seed)
    sizes: dict[str, Any] = {"n_steps": 32, "batch_size": 32}
    return Untimed("MlpLstmPolicy", envs, **laid_over(SMALL, {"seed": seed, **sizes, **settings}))


def build(folder: str | Path, make_model: MakeModel = build_model, **options: Any) -> Population:
    return Population(make_model, PBTConfig(**CONFIG), folder=folder, seed=6, **options)


def contents(folder: str | Path) -> dict[str, bytes]:
    """Every file of a population, by its name in the folder."""
    folder = Path(folder)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("[!.]*") if path.is_file()}


def trained_inline(folder: Path) -> dict[str, bytes]:
    """The files that one process leaves, in a population that has the same relative name for every test."""
    with chdir(folder):
        build("population").train(UPDATES)
        return contents("population")


if __name__ == "__main__":
    where = sys.argv[1]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which is ignored below a background job of a shell

    def wait(model: DistributionalPPO) -> float:
        Path(where, f"{os.getpid()}.pid").touch()
        time.sleep(600)
        return float(model.num_timesteps)

    build(Path(where) / "population", performance=wait, executor=ProcessExecutor(2)).train(1)
