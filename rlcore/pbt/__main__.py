"""The command ``python -m rlcore.pbt``: trains a population and shows how it is doing, or shows one that is training.

Exit codes: 0 trained to the end, or shown; 2 something cannot be used, read or written; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import gymnasium as gym
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from rlcore.envs.resumable import ResumableEnv
from rlcore.errors import CheckpointError, RLCoreError
from rlcore.pbt.hyperparams import HyperparamValue, PBTConfig
from rlcore.pbt.population import Population, PopulationResult, ancestors, read_lineage, read_state
from rlcore.pbt.scheduler import PopulationMember, rank
from rlcore.pbt.turns import MakeModel
from rlcore.pbt.workers import Executor, InlineExecutor, ProcessExecutor
from rlcore.ppo.algorithm import DistributionalPPO

FAILED: Final = 2
INTERRUPTED: Final = 130
EXPLORED: Final = ("learning_rate=1e-5:1e-2:log", "ent_coef=1e-5:1e-2:log", "clip_range=0.1:0.4")


def options_of(arguments: Sequence[str] | None) -> Namespace:
    """Parse the command line; exit with code 2 if it cannot be used."""
    parser = ArgumentParser("python -m rlcore.pbt", description=__doc__, formatter_class=ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--env", help="id of a Gymnasium environment")
    add("--folder", help="where all is kept; a population that is there goes on")
    add("--population", type=int, default=4, help="number of members")
    add("--updates", type=int, default=20, help="updates of each member, in all")
    add("--interval", type=int, default=5, help="updates between exploits, longer than the warm-up (100 steps)")
    words = f"explore this range; may be repeated; without it, {', '.join(EXPLORED)}"
    add("--hyperparam", action="append", type=parsed_range, metavar="NAME=LOW:HIGH[:log]", help=words)
    add("--n-envs", type=int, default=4, help="environments of each member")
    add("--normalize", action="store_true", help="put the environments behind VecNormalize")
    add("--seed", type=int, help="seed of everything; without it the folder's, or a new one")
    add("--executor", choices=["inline", "processes"], default="inline", help="train in this process, or in workers")
    add("--jobs", type=int, help="worker processes, each on one thread; without it one a core")
    add("--watch", metavar="DIR", help="train nothing: show the population in DIR while it trains, until Ctrl-C")
    add("--once", action="store_true", help="with --watch: show it once and end")
    options = parser.parse_args(arguments)
    if options.watch is None and None in (options.env, options.folder):
        parser.error("give --env and --folder, or --watch")
    return options


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command, report an error or a warning in one line, and return the exit code."""
    errors, options = Console(stderr=True, soft_wrap=True, markup=False, highlight=False), options_of(arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: errors.print(f"warning: {message}")
            if options.watch is not None:
                watch(Path(options.watch), once=options.once)
            else:
                train(options)
    except (RLCoreError, gym.error.Error, OSError, ImportError) as error:
        errors.print(f"error: {' '.join(str(error).split())}")
        return FAILED
    except KeyboardInterrupt:
        errors.print("interrupted: every finished turn is kept; the same command goes on")
        return INTERRUPTED
    return 0


def train(options: Namespace) -> None:
    """Train what the options describe, and print it."""
    config = PBTConfig(
        population_size=options.population,
        perturbation_interval=options.interval,
        hyperparams=options.hyperparam or [parsed_range(text) for text in EXPLORED],
    )
    make_model = model_maker(options.env, options.n_envs, normalize=options.normalize)
    executor = make_executor(options.executor, options.jobs)
    population = Population(make_model, config, folder=options.folder, seed=options.seed, executor=executor)
    result = train_shown(population, options.updates)
    watch(population.folder, once=True)
    Console(soft_wrap=True).print(f"best model: {result.model_file}")


def make_executor(kind: str, jobs: int | None) -> Executor:
    """Make the executor of a kind; ``jobs`` is for processes."""
    if kind == "inline":
        return InlineExecutor()
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return ProcessExecutor(cores if jobs is None else jobs)


def parsed_range(text: str) -> dict[str, Any]:
    """Read ``NAME=LOW:HIGH`` or ``NAME=LOW:HIGH:log``; two whole numbers make a range of whole numbers."""
    name, _, ends = text.removesuffix(":log").partition("=")
    try:
        low, high = (int(end) if end.strip("+-").isdigit() else float(end) for end in ends.split(":"))
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is no range; write NAME=LOW:HIGH, or NAME=LOW:HIGH:log") from error
    return {"name": name, "min_value": low, "max_value": high, "is_log_scale": text.endswith(":log")}


def model_maker(env_id: str, n_envs: int, *, normalize: bool) -> MakeModel:
    """Return a function that builds a member with restorable environments and the defaults of all settings."""

    def make(_: Mapping[str, Any], seed: int) -> DistributionalPPO:  # the population applies the hyperparameters
        envs: VecEnv = make_vec_env(env_id, n_envs=n_envs, seed=seed, wrapper_class=ResumableEnv)
        return DistributionalPPO("MlpLstmPolicy", VecNormalize(envs) if normalize else envs, seed=seed, device="cpu")

    return make


def train_shown(population: Population, updates: int) -> PopulationResult:
    """Train with one bar a member, which shows its score and how often it has copied another."""

    def fields(member: PopulationMember) -> dict[str, Any]:
        return {"completed": member.step, "performance": shown(member.performance), "exploits": member.exploits}

    figures = TextColumn("return {task.fields[performance]}, exploits {task.fields[exploits]}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), figures)
    with Progress(*columns, console=Console(stderr=True)) as progress:
        tasks = [
            progress.add_task(f"member {member.member_id}", total=updates, **fields(member))
            for member in population.scheduler.population
        ]
        return population.train(updates, lambda member: progress.update(tasks[member.member_id], **fields(member)))


def watch(
    folder: Path, *, once: bool = False, console: Console | None = None, pause: Callable[[float], None] = time.sleep
) -> None:
    """Show a population until Ctrl-C, or once if asked or if the output is no terminal.

    :raises CheckpointError: if the folder holds no population, or its state is damaged
    """
    console = console or Console(highlight=False)
    if once or not console.is_terminal:
        console.width = max(console.width, 160)
        console.print(view(folder), soft_wrap=True)
        return
    with suppress(KeyboardInterrupt), Live(view(folder), console=console, auto_refresh=False) as live:
        while True:
            pause(1.0)
            with suppress(RLCoreError, OSError):  # what cannot be read now is shown as it was
                live.update(view(folder), refresh=True)


def view(folder: Path) -> Group:
    """Lay out a population: what its scores are, and its members from best to worst."""
    state = read_state(folder)
    if state is None:
        raise CheckpointError(folder, "holds no population; give the folder of one")
    # A run that was killed may have left one more event, which is not committed.
    events = read_lineage(folder, state["lineage_size"])
    mode, interval = state["config"]["metric_mode"], state["config"]["perturbation_interval"]
    members = [PopulationMember(**each) for each in state["scheduler"]["members"]]
    names = list(dict.fromkeys(name for each in members for name in each.hyperparams))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("rank", "member", "score", "update"):
        table.add_column(name, justify="right")
    for name in (*names, "exploits", "copied from"):
        table.add_column(name, overflow="fold")
    for place, each in enumerate(rank(members, mode), start=1):
        number, values = each.member_id, [shown(each.hyperparams.get(name)) for name in names]
        sources = " <- ".join(str(source) for source, _ in ancestors(events, number)) or "-"
        row = place, number, shown(each.performance), each.step, *values, each.exploits, sources
        table.add_row(*map(str, row))
    best, after = "largest" if mode == "max" else "smallest", state["explored_step"] + interval
    title = f"population in {folder}\nscore: {state['config']['metric_name']}, the {best} is best; members copy after "
    title += f"every {interval} updates, next after update {after}\n"
    return Group(Text(title, overflow="fold"), table)


def shown(value: HyperparamValue) -> str:
    """Return a value in three digits."""
    return "-" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(run())
