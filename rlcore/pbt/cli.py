"""The command ``python -m rlcore.pbt``: trains a population and shows how it is doing.

Exit codes: 0 trained to the end; 2 something cannot be used, read or written; 130 interrupted.
"""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import gymnasium as gym
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from rlcore.envs import ResumableEnv
from rlcore.errors import RLCoreError, SettingError
from rlcore.pbt.hyperparams import HyperparamConfig, PBTConfig
from rlcore.pbt.population import MakeModel, MemberStatus, Population, PopulationResult
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.warn import warn_caller

FAILED = 2
INTERRUPTED = 130

EXPLORED = ("learning_rate=1e-5:1e-2:log", "ent_coef=1e-5:1e-2:log", "clip_range=0.1:0.4")

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(help=(__doc__ or "").replace("``", ""))
def train(
    env: Annotated[str, typer.Option(help="Id of a Gymnasium environment.")],
    folder: Annotated[Path, typer.Option(help="Where all is kept; a population that is there goes on.")],
    population: Annotated[int, typer.Option(help="Number of members.")] = 4,
    updates: Annotated[int, typer.Option(help="Updates of each member, in all.")] = 20,
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
) -> None:
    config = PBTConfig(
        population_size=population,
        perturbation_interval=interval,
        hyperparams=[parsed_range(text) for text in hyperparam or EXPLORED],
    )
    _check_updates(updates, interval)
    trained = Population(model_maker(env, n_envs, normalize=normalize), config, folder=folder, seed=seed)
    with MemberBars(trained, updates) as bars:
        result = trained.train(updates, bars.show)
    Console(soft_wrap=True).print(result_table(result), f"best model: {result.model_file}", sep="\n")


def _check_updates(updates: int, interval: int) -> None:
    """
    :raises SettingError: where there would be no best model
    """
    if updates < 1:
        raise SettingError("updates", f"--updates {updates} trains nothing, so no model would be best; give 1 or more")
    if updates <= interval:
        warn_caller(
            f"--interval {interval} is not less than --updates {updates}, so no member copies another until the same "
            "command goes on with more updates",
            UserWarning,
        )


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command; what is wrong is said in one line.

    :param arguments: default those of the process
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
    """
    :param text: ``NAME=LOW:HIGH`` or ``NAME=LOW:HIGH:log``; two whole numbers make a range of whole numbers
    :raises SettingError: for anything else
    """
    name, equals, ends = text.partition("=")
    low, _, rest = ends.partition(":")
    high, _, scale = rest.partition(":")
    try:
        bounds = [_number(low), _number(high)]
    except ValueError as error:
        raise SettingError(
            "hyperparam", f"--hyperparam {text!r} is no range; write NAME=LOW:HIGH, or NAME=LOW:HIGH:log"
        ) from error
    if not equals or scale not in ("", "log"):
        raise SettingError(
            "hyperparam", f"--hyperparam {text!r} is no range; write NAME=LOW:HIGH, or NAME=LOW:HIGH:log"
        )
    return HyperparamConfig(name=name, min_value=bounds[0], max_value=bounds[1], is_log_scale=scale == "log")


def _number(text: str) -> int | float:
    return int(text) if text.strip("+-").isdigit() else float(text)


def model_maker(env_id: str, n_envs: int, *, normalize: bool) -> MakeModel:
    """What builds a member: environments that a resumed run can restore, and the settings' defaults.

    The hyperparameters are the population's to apply: some are options of the optimizer, which no constructor takes.
    """

    def make(hyperparams: Mapping[str, Any], seed: int) -> DistributionalPPO:  # noqa: ARG001
        try:
            envs: VecEnv = make_vec_env(env_id, n_envs=n_envs, seed=seed, wrapper_class=ResumableEnv)
        except ImportError as error:
            raise SettingError("env", f"--env {env_id} cannot be made: {str(error).rstrip('.')}") from error
        return DistributionalPPO("MlpLstmPolicy", VecNormalize(envs) if normalize else envs, seed=seed, device="cpu")

    return make


class MemberBars:
    """One bar a member, with its score and how often it has copied another."""

    def __init__(self, population: Population, updates: int) -> None:
        columns = "{task.description}", "return {task.fields[performance]}, exploits {task.fields[exploits]}"
        self._progress = Progress(
            TextColumn(columns[0]),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(columns[1]),
            console=Console(stderr=True),
        )
        self._tasks: dict[int, TaskID] = {}
        for status in population.statuses():
            self._tasks[status.member_id] = self._progress.add_task(
                f"member {status.member_id}", total=updates, **self._fields(status)
            )

    def __enter__(self) -> MemberBars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, status: MemberStatus) -> None:
        """Move the bar of a member."""
        self._progress.update(self._tasks[status.member_id], **self._fields(status))

    @staticmethod
    def _fields(status: MemberStatus) -> dict[str, Any]:
        return {"completed": status.step, "performance": _shown(status.performance), "exploits": status.exploits}


def result_table(result: PopulationResult) -> Table:
    """Every member, the best first."""
    table = Table("member", "return", "updates", "exploits", "hyperparameters")
    for status in result.table:
        values = ", ".join(f"{name}={_shown(value)}" for name, value in status.hyperparams.items())
        table.add_row(str(status.member_id), _shown(status.performance), str(status.step), str(status.exploits), values)
    return table


def _shown(value: object) -> str:
    return "-" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
