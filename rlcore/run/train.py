"""``python -m rlcore.train CONFIG.yaml``: train what a file describes, a model or a population, and save it.

Exit codes: 0 trained and saved; 2 the configuration or the output cannot be used (a file that appeared under its name
during the training stays, and the model is saved next to it); 130 interrupted, what was trained is saved.
"""

from __future__ import annotations

import io
import math
import os
import tempfile
from itertools import count
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from stable_baselines3.common.callbacks import BaseCallback

from rlcore.checkpoint.storage import write_new
from rlcore.errors import CheckpointError, RLCoreError, SettingError
from rlcore.pbt.cli import ExecutorOption, JobsOption, make_executor, result_table, train_shown
from rlcore.pbt.exploit import mean_episode_return
from rlcore.pbt.files import make_folder
from rlcore.pbt.hyperparams import PBTConfig
from rlcore.pbt.population import Population
from rlcore.pbt.workers import Executor
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.continuing import continued
from rlcore.ppo.model_content import with_ending
from rlcore.run.config_file import TrainingConfig, build_model, load_config, updates_in_all

FAILED = 2
INTERRUPTED = 130

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
    executor: ExecutorOption = "inline",
    jobs: JobsOption = None,
) -> None:
    """Train what CONFIG describes, and save it with everything that going on needs."""
    try:
        run = load_config(config)
        where = make_executor(executor, jobs)
        if output is not None and "://" in output:
            raise SettingError("output", f"--output {output} is a URL; give a path of this machine")
        if run.pbt is not None:
            message, interrupted = train_population(run, run.pbt, output or "population", device, where)
        elif where.in_process:
            message, interrupted = train_model(run, Path(output or "model.zip"), device, resume=resume)
        else:
            raise SettingError(
                "executor",
                f"--executor {executor} trains the members of a population, and {config} has no section pbt; leave "
                "--executor out",
            )
    except RLCoreError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(FAILED) from error
    typer.echo(message)
    raise typer.Exit(INTERRUPTED if interrupted else 0)


def train_model(config: TrainingConfig, output: Path, device: str, *, resume: bool) -> tuple[str, bool]:
    """Train one model up to the total and save it; what came of it, and whether Ctrl-C ended it early."""
    require_no_folder(output)
    output = with_ending(output)
    if not resume:
        require_free(output)
    require_writable(output)
    model = build_model(config, device=device)
    if resume:
        model = continued(output, model)
    if model.num_timesteps >= config.total_timesteps:
        return (
            f"{output} has already trained {model.num_timesteps} steps, at least the {config.total_timesteps} of "
            "total_timesteps; nothing was trained"
        ), False
    interrupted = _learn(model, config.total_timesteps - model.num_timesteps, anew=not resume)
    if resume:
        model.save(output)
    else:
        save_new(model, output)
    done = "interrupted after" if interrupted else "trained"
    return f"{done} {model.num_timesteps} steps; saved {output}", interrupted


def train_population(
    config: TrainingConfig, pbt: PBTConfig, folder: str, device: str, executor: Executor
) -> tuple[str, bool]:
    """Train every member for ``total_timesteps``; what came of it, and whether Ctrl-C ended it early."""

    # The population applies the hyperparameters.
    population = Population(
        lambda _, seed: build_model(config, seed=seed, device=device),
        pbt,
        folder=folder,
        seed=config.seed,
        executor=executor,
    )
    make_folder(population.folder)
    try:
        result = train_shown(population, updates_in_all(config))
    except KeyboardInterrupt:
        return f"interrupted: every finished turn is kept in {folder}; the same command goes on", True
    Console(soft_wrap=True).print(result_table(result))
    steps = min(status.step for status in result.table) * config.algorithm.n_steps * config.environment.n_envs
    return f"trained {len(result.table)} members for {steps} steps; best model: {result.model_file}", False


def require_no_folder(output: Path) -> None:
    """Raise CheckpointError if a folder has this name."""
    if os.path.isdir(output):  # noqa: PTH112 - no error for a name that is too long
        raise CheckpointError(output, f"is a folder; name a file, such as {output / 'model.zip'}")


def require_free(output: Path) -> None:
    """Raise CheckpointError if another file would be lost."""
    if os.path.exists(output):  # noqa: PTH110 - no error for a name that is too long
        raise CheckpointError(output, "exists already and would be lost; give another --output, or move it away")


def require_writable(output: Path) -> None:
    """Raise CheckpointError if no model could be saved there when it is trained."""
    try:
        output.exists()  # which raises an error for a name that is too long
    except OSError as error:
        raise CheckpointError(output, f"cannot be written ({error.strerror}); give another --output") from error
    folder = next(parent for parent in output.absolute().parents if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        reason = f"cannot be written, as {folder} is no folder to write in ({error.strerror}); give another --output"
        raise CheckpointError(output, reason) from error


def save_new(model: DistributionalPPO, output: Path) -> None:
    """Save without replacing what came to be there meanwhile: then raise CheckpointError with the name it has now."""
    content = io.BytesIO()
    model.save(content)
    make_folder(output.parent)
    names = (output.with_stem(f"{output.stem}-{number}") if number > 1 else output for number in count(1))
    saved = next(name for name in names if write_new(name, content.getvalue()))
    if saved != output:
        raise CheckpointError(
            output,
            f"appeared during the training and was not replaced; the model of {model.num_timesteps} steps is saved in "
            f"{saved}",
        )


def _learn(model: DistributionalPPO, total_timesteps: int, *, anew: bool) -> bool:
    """Train with a progress bar; whether Ctrl-C ended it early, in which case the model stands at its last update."""
    bar = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    columns, console = (*bar, TextColumn("{task.fields[mean]}")), Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("training", total=model.num_timesteps + total_timesteps, mean="")
        try:
            model.learn(total_timesteps, callback=ProgressBar(progress, task), reset_num_timesteps=anew)
        except KeyboardInterrupt:
            return True
    return False


class ProgressBar(BaseCallback):
    """Shows the steps done and the mean return of the latest episodes."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        super().__init__()
        self.progress = progress
        self.task = task

    def _on_step(self) -> bool:
        self.progress.update(self.task, completed=self.num_timesteps)
        return True

    def _on_rollout_end(self) -> None:
        mean = mean_episode_return(self.model)
        self.progress.update(self.task, mean="" if math.isnan(mean) else f"mean return {mean:.2f}")
