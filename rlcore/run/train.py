"""``python -m rlcore.train CONFIG.yaml``: train what a file describes, a model or a population, and save it.

Exit codes: 0 trained and saved; 2 the configuration or the output cannot be used; 130 interrupted, what was trained is
saved.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from rlcore.checkpoint.formats import with_ending
from rlcore.errors import CheckpointError, RLCoreError
from rlcore.pbt.__main__ import FAILED, shown, watch
from rlcore.pbt.hyperparams import PBTConfig
from rlcore.pbt.population import Population, PopulationResult
from rlcore.pbt.scheduler import PopulationMember
from rlcore.pbt.workers import Executor, InlineExecutor, ProcessExecutor
from rlcore.ppo.saving import continued
from rlcore.run.config_file import TrainingConfig, build_model, load_config

INTERRUPTED: Final = 130

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def train(
    config: Annotated[Path, typer.Argument(help="YAML file; examples/ has some.")],
    output: Annotated[
        str | None,
        typer.Option(
            help="File to save the model in, which must not exist; of a population its folder, and one that is there "
            "goes on. [default: model.zip, or population]"
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the model in --output.")] = False,
    executor: Annotated[
        Literal["inline", "processes"], typer.Option(help="Where members of a population train.")
    ] = "inline",
    jobs: Annotated[int | None, typer.Option(min=1, help="Worker processes. [default: one a core]")] = None,
) -> None:
    """Train what CONFIG describes, and save it with everything that going on needs."""
    try:
        run = load_config(config)
        where = _executor(executor, jobs)
        if run.pbt is not None:
            message, interrupted = train_population(run, run.pbt, output or "population", device, where)
        else:
            message, interrupted = train_model(run, Path(output or "model.zip"), device, resume=resume)
    except (RLCoreError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(FAILED) from error
    typer.echo(message)
    raise typer.Exit(INTERRUPTED if interrupted else 0)


def train_model(config: TrainingConfig, output: Path, device: str, *, resume: bool) -> tuple[str, bool]:
    """Train one model up to the total and save it; return what came of it, and whether Ctrl-C ended it early."""
    output = _usable(output, resume=resume)
    model = build_model(config, device=device)
    if resume:
        model = continued(output, model)
    steps, interrupted = config.total_timesteps - model.num_timesteps, False
    if steps <= 0:
        return f"{output} has trained its {model.num_timesteps} steps already; nothing was trained", False
    try:
        model.learn(steps, reset_num_timesteps=not resume, progress_bar=sys.stdout.isatty())
    except KeyboardInterrupt:  # the model is as its last update left it
        interrupted = True
    model.save(output)
    done = "interrupted after" if interrupted else "trained"
    return f"{done} {model.num_timesteps} steps; saved {output}", interrupted


def train_population(
    config: TrainingConfig, pbt: PBTConfig, folder: str, device: str, executor: Executor
) -> tuple[str, bool]:
    """Train every member for ``total_timesteps``; return what came of it, and whether Ctrl-C ended it early."""
    population = Population(
        lambda _, seed: build_model(config, seed=seed, device=device),
        pbt,
        folder=folder,
        seed=config.seed,
        executor=executor,
    )
    rollout = config.algorithm.n_steps * config.environment.n_envs
    try:
        result = _train_shown(population, math.ceil(config.total_timesteps / rollout))
    except KeyboardInterrupt:
        return f"interrupted: every finished turn is kept in {folder}; the same command goes on", True
    watch(population.folder, once=True)
    steps = min(status.step for status in result.table) * rollout
    return f"trained {len(result.table)} members for {steps} steps; best model: {result.model_file}", False


def _train_shown(population: Population, updates: int) -> PopulationResult:
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


def _executor(kind: str, jobs: int | None) -> Executor:
    """Make the executor of a kind; ``jobs`` is for processes."""
    if kind == "inline":
        return InlineExecutor()
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return ProcessExecutor(cores if jobs is None else jobs)


def _usable(output: Path, *, resume: bool) -> Path:
    """Return the file to save in, with its ending.

    :raises CheckpointError: if nothing could be saved there after the training, or if another file would be lost
    """
    try:
        output = with_ending(output)
        if output.exists() and not resume:
            raise CheckpointError(output, "exists already and would be lost; give another --output, or move it away")
        output.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=output.parent).close()
    except OSError as error:
        raise CheckpointError(output, f"cannot be written ({error.strerror}); give another --output") from error
    return output
