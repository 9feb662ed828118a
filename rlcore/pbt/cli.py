"""The command ``python -m rlcore.pbt``: trains a population and shows how it is doing, or shows one that is training.

Exit codes: 0 trained to the end, or shown; 2 something cannot be used, read or written; 130 interrupted.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import gymnasium as gym
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from rlcore.envs import ResumableEnv
from rlcore.errors import RLCoreError, SettingError
from rlcore.pbt.hyperparams import HyperparamConfig, PBTConfig
from rlcore.pbt.population import MemberStatus, Population, PopulationResult
from rlcore.pbt.turns import MakeModel
from rlcore.pbt.watch import shown
from rlcore.pbt.watch import watch as show_population
from rlcore.pbt.workers import Executor, InlineExecutor, ProcessExecutor
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.warn import warn_caller

FAILED = 2
INTERRUPTED = 130

EXPLORED = ("learning_rate=1e-5:1e-2:log", "ent_coef=1e-5:1e-2:log", "clip_range=0.1:0.4")


def show_instead(context: typer.Context, folder: str | None) -> None:
    """Show a population and end, before any other option is missed; --once is eager, so that it is known here."""
    if folder is not None:
        show_population(Path(folder), once=context.params["_once"])
        raise typer.Exit


ExecutorOption = Annotated[
    Literal["inline", "processes"],
    typer.Option(help="Where members train: one after the other in this process, or in worker processes."),
]
JobsOption = Annotated[
    int | None,
    typer.Option(min=1, help="Members that train at the same time, each on one thread. [default: one a core]"),
]


def make_executor(kind: str, jobs: int | None) -> Executor:
    """Make the executor that the options describe.

    :raises SettingError: if they contradict each other
    """
    if kind == "processes":
        cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
        return ProcessExecutor(cores if jobs is None else jobs)
    if jobs is not None:
        raise SettingError("jobs", f"--jobs {jobs} needs --executor processes, as inline trains one member at a time")
    return InlineExecutor()


app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(help=(__doc__ or "").replace("``", ""))
def train(
    env: Annotated[str, typer.Option(help="Id of a Gymnasium environment.")],
    folder: Annotated[str, typer.Option(help="Where all is kept; a population that is there goes on.")],
    population: Annotated[int, typer.Option(help="Number of members.")] = 4,
    updates: Annotated[int, typer.Option(min=1, help="Updates of each member, in all.")] = 20,
    interval: Annotated[
        int, typer.Option(help="Updates between exploits, of more optimizer steps in all than a warm-up (100).")
    ] = 5,
    hyperparam: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LOW:HIGH[:log]", help=f"Explore this range; may be repeated. [default: {', '.join(EXPLORED)}]"
        ),
    ] = None,
    n_envs: Annotated[int, typer.Option(min=1, help="Environments of each member.")] = 4,
    normalize: Annotated[bool, typer.Option(help="Put the environments behind VecNormalize.")] = False,
    seed: Annotated[int | None, typer.Option(help="Seed of everything. [default: the folder's, or a new one]")] = None,
    _watched: Annotated[
        str | None,
        typer.Option(
            "--watch",
            metavar="DIR",
            callback=show_instead,
            help="Train nothing: show the population in DIR, while another process trains it, until Ctrl-C. Of the "
            "other options only --once counts.",
        ),
    ] = None,
    _once: Annotated[bool, typer.Option("--once", is_eager=True, help="With --watch: show it once and end.")] = False,
    executor: ExecutorOption = "inline",
    jobs: JobsOption = None,
) -> None:
    config = PBTConfig(
        population_size=population,
        perturbation_interval=interval,
        hyperparams=[parsed_range(text) for text in hyperparam or EXPLORED],
    )
    if updates <= interval:
        words = f"--interval {interval} is not less than --updates {updates}, so no member copies another yet"
        warn_caller(words, UserWarning)
    where = make_executor(executor, jobs)
    make_model = model_maker(env, n_envs, normalize=normalize)
    trained = Population(make_model, config, folder=folder, seed=seed, executor=where)
    result = train_shown(trained, updates)
    Console(soft_wrap=True).print(result_table(result), f"best model: {result.model_file}", sep="\n")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and report what is wrong in one line.

    :return: the exit code
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    errors = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
    code: object = INTERRUPTED
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: errors.print(f"warning: {message}")
            app(given, prog_name="python -m rlcore.pbt")
    except SystemExit as exit_:
        code = exit_.code
    except (RLCoreError, gym.error.Error) as error:
        errors.print(f"error: {' '.join(str(error).split())}")
        return FAILED
    except KeyboardInterrupt:
        pass
    if code == INTERRUPTED:
        again = shlex.join(["python", "-m", "rlcore.pbt", *given])
        errors.print(f"interrupted: every finished turn is kept; to go on, run: {again}")
    return code if isinstance(code, int) else FAILED


def parsed_range(text: str) -> HyperparamConfig:
    """``NAME=LOW:HIGH`` or ``NAME=LOW:HIGH:log``; two whole numbers make a range of whole numbers."""
    found = re.fullmatch(r"([^=]*)=([^:]*):([^:]*)(:log)?", text)
    try:
        if found is None:
            raise ValueError("not of that form")
        low, high = (int(end) if end.strip("+-").isdigit() else float(end) for end in found.group(2, 3))
    except ValueError as error:
        words = f"--hyperparam {text!r} is no range; write NAME=LOW:HIGH, or NAME=LOW:HIGH:log"
        raise SettingError("hyperparam", words) from error
    return HyperparamConfig(name=found[1], min_value=low, max_value=high, is_log_scale=found[4] is not None)


def model_maker(env_id: str, n_envs: int, *, normalize: bool) -> MakeModel:
    """Return a function that builds a member with restorable environments and the defaults of all settings."""

    def make(_: Mapping[str, Any], seed: int) -> DistributionalPPO:  # the population applies the hyperparameters
        try:
            envs: VecEnv = make_vec_env(env_id, n_envs=n_envs, seed=seed, wrapper_class=ResumableEnv)
        except ImportError as error:
            raise SettingError("env", f"--env {env_id} cannot be made: {str(error).rstrip('.')}") from error
        return DistributionalPPO("MlpLstmPolicy", VecNormalize(envs) if normalize else envs, seed=seed, device="cpu")

    return make


def train_shown(population: Population, updates: int) -> PopulationResult:
    """Train with one bar a member, which shows its score and how often it has copied another."""

    def fields(status: MemberStatus) -> dict[str, Any]:
        return {"completed": status.step, "performance": shown(status.performance), "exploits": status.exploits}

    figures = TextColumn("return {task.fields[performance]}, exploits {task.fields[exploits]}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), figures)
    with Progress(*columns, console=Console(stderr=True)) as progress:
        tasks = [
            progress.add_task(f"member {status.member_id}", total=updates, **fields(status))
            for status in population.statuses()
        ]
        return population.train(updates, lambda status: progress.update(tasks[status.member_id], **fields(status)))


def result_table(result: PopulationResult) -> Table:
    """Make a table of every member, the best first."""
    table = Table("member", "return", "updates", "exploits", "hyperparameters")
    for status in result.table:
        values = ", ".join(f"{name}={shown(value)}" for name, value in status.hyperparams.items())
        table.add_row(str(status.member_id), shown(status.performance), str(status.step), str(status.exploits), values)
    return table
