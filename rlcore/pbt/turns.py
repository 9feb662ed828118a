"""The work of a member between two decisions: train for a turn, or take over what another has learnt."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import VecEnv

from rlcore.checkpoint.formats import save_checkpoint
from rlcore.errors import NonFiniteError, ResumeWarning, SettingError, StateError, warn_caller
from rlcore.pbt.hyperparams import Hyperparams, HyperparamValue
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.live import apply_learning_rate, plan_change, set_hyperparameters
from rlcore.ppo.saving import continued
from rlcore.state.training import LEARNT, Scope, apply_generators, capture_generators

OPTIMIZER_STATE = "policy.optimizer"
RETURN_SCALE_STATE = "return_scale_state"

OptimizerStrategy = Literal["reset", "copy"]
OPTIMIZER_STRATEGIES: tuple[OptimizerStrategy, ...] = get_args(OptimizerStrategy)

MakeModel: TypeAlias = Callable[[Mapping[str, HyperparamValue], int], DistributionalPPO]
"""Builds a member's model, with environments of its own, from its hyperparameters and its seed."""
Performance: TypeAlias = Callable[[DistributionalPPO], float]
"""Scores a model."""


class OwnGenerators:
    """The state of Python's, NumPy's and torch's generators for one member, seeded at first."""

    def __init__(self, seed: int) -> None:
        self._state = capture_generators()
        with self.in_place():
            set_random_seed(seed)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Make these generators the global ones inside of the block, and restore the former ones after it."""
        outside = capture_generators()
        apply_generators(self._state)
        try:
            yield
        finally:
            self._state = capture_generators()
            apply_generators(outside)


class TurnwiseTraining:
    """``learn()`` in pieces: after all of them the model has the bits that one call would have left.

    :param total_timesteps: of the whole run, with those that the model has made already; schedules count by it
    :param name: of the run in TensorBoard
    """

    def __init__(self, model: DistributionalPPO, total_timesteps: int, name: str) -> None:
        self.model = model
        left = max(0, total_timesteps - model.num_timesteps)
        self.total_timesteps, self._callback = model._setup_learn(left, reset_num_timesteps=False, tb_log_name=name)

    def advance(self, updates: int, figures: Mapping[str, float]) -> None:
        """Collect a rollout and update, several times.

        :param figures: logged with every rollout, next to the model's own
        :raises NonFiniteError: if a rollout or an update cannot be made, which leaves no trace; the next turn goes on
            from where the environments are, or from a reset if they returned NaN
        """
        model = self.model
        assert model.env is not None, "learn() cannot be entered without an environment"
        try:
            for _ in range(updates):
                self._reset_if_lost()
                model.collect_rollouts(model.env, self._callback, model.rollout_buffer, n_rollout_steps=model.n_steps)
                model._update_current_progress_remaining(model.num_timesteps, self.total_timesteps)
                for key, value in figures.items():
                    model.logger.record(key, value)
                model.dump_logs(model.num_timesteps // (model.n_steps * model.n_envs))
                model.train()
        except NonFiniteError:
            model._boundary = None
            with suppress(NonFiniteError):  # an environment that returns NaN again is reset in the next turn
                self._reset_if_lost()
            raise

    def turn(self, updates: int, figures: Mapping[str, float], performance: Performance) -> tuple[float, str | None]:
        """Advance, and return the score; of a member that diverged NaN, and why."""
        try:
            self.advance(updates, figures)
        except NonFiniteError as error:
            return math.nan, str(error)
        return float(performance(self.model)), None

    def _reset_if_lost(self) -> None:
        model = self.model  # without observations if those that came last could not be used
        if model._last_obs is None and model.env is not None:
            model._last_obs = model.env.reset()
            model._last_episode_starts = np.ones(model.n_envs, dtype=bool)


@dataclass(frozen=True)
class Recipe:
    """Holds what every member and every turn of a population needs."""

    make_model: MakeModel
    performance: Performance
    optimizer_exploit_strategy: OptimizerStrategy


@dataclass(frozen=True)
class MemberTask:
    """A piece of a member's work, in plain data, so that any process of this machine can do it.

    :param hyperparams: under which its last file ``saved`` was written, or the first ones
    :param target: its new model file
    :param total: updates of the member in all, by which schedules count
    :param updates: to train for; 0 for an exploit
    :param figures: logged with every rollout
    :param explored: the hyperparameters to go on with after an exploit
    :param parameters: those of the source of an exploit; None if only hyperparameters change
    """

    member_id: int
    seed: int
    hyperparams: Hyperparams
    saved: Path | None
    target: Path
    total: int
    updates: int = 0
    figures: Mapping[str, float] = field(default_factory=dict)
    explored: Hyperparams = field(default_factory=dict)
    parameters: Mapping[Any, Any] | None = None

    def __str__(self) -> str:
        return f"member {self.member_id}, {f'turn of {self.updates} updates' if self.updates else 'exploit'}"


@dataclass(frozen=True)
class TurnResult:
    """The result of a piece of work, next to the new model file.

    :param score: NaN if the member diverged, for the reason ``diverged``, and after an exploit
    :param parameters: for other members to copy; None after an exploit
    :param vgs_transferred: True if an exploit brought statistics of variance gradient scaling
    """

    score: float = math.nan
    parameters: dict[Any, Any] | None = None
    diverged: str | None = None
    vgs_transferred: bool = False


class LiveMember:
    """A member's model and generators in this process, new or from the file ``saved``.

    :raises SettingError: if the model of the file was trained with other settings
    :raises CheckpointError: if the file cannot be read as a model
    """

    def __init__(self, recipe: Recipe, seed: int, hyperparams: Hyperparams, saved: Path | None) -> None:
        self._recipe = recipe
        self._generators = OwnGenerators(seed)
        self._training: TurnwiseTraining | None = None
        with self._generators.in_place():
            self.model = recipe.make_model(dict(hyperparams), seed)
            set_hyperparameters(self.model, hyperparams)
            if saved is not None:
                self.model = continued(saved, self.model)

    def work(self, task: MemberTask) -> TurnResult:
        """Do a task of this member, and save its model."""
        timesteps = task.total * self.model.n_steps * self.model.n_envs
        with self._generators.in_place():
            if self._training is None or self._training.total_timesteps != timesteps:
                self._training = TurnwiseTraining(self.model, timesteps, f"member_{task.member_id}")
            if task.updates:
                score, diverged = self._training.turn(task.updates, task.figures, self._recipe.performance)
                result = TurnResult(score, self.model.get_parameters(), diverged)
            else:
                result = self._take_over(task)
            self.model.save(task.target)
            return result

    def close(self) -> None:
        """End the environments, which may be processes."""
        if self.model.env is not None:
            self.model.env.close()

    def _take_over(self, task: MemberTask) -> TurnResult:
        """Apply an exploit; episodes that the old weights played no longer count."""
        model, parameters = self.model, task.parameters
        if parameters is None:
            set_hyperparameters(model, task.explored)
            return TurnResult()
        strategy = self._recipe.optimizer_exploit_strategy
        apply_exploit(model, parameters, task.explored, optimizer_exploit_strategy=strategy)
        for window in filter(None, (model.ep_info_buffer, model.ep_success_buffer)):
            window.clear()
        transferred = model.variance_gradient_scaler is not None and parameters.get("vgs_state") is not None
        return TurnResult(vgs_transferred=transferred)


def work_from_file(recipe: Recipe, task: MemberTask) -> TurnResult:
    """Do a task in a process that has no live model of the member."""
    with closing(LiveMember(recipe, task.seed, task.hyperparams, task.saved)) as live:
        return live.work(task)


def apply_exploit(
    model: DistributionalPPO,
    parameters: Mapping[Any, Any],
    hyperparams: Mapping[str, Any],
    *,
    optimizer_exploit_strategy: OptimizerStrategy = "reset",
) -> None:
    """Let ``model`` go on from what another member has learnt, under hyperparameters of its own.

    The model takes over copies of everything learnt: weights, statistics of variance gradient scaling and of
    VecNormalize, and whatever else ``get_parameters()`` names. It keeps the position of its environments, its
    generators and the seed of its noise. Its LSTM states become zero. Call it between updates.

    :param parameters: of ``get_parameters()`` or a checkpoint's ``data``. A missing part starts fresh, with a
        ResumeWarning; the model keeps its own statistics of VecNormalize and return scale, with another
    :param hyperparams: settings to change, as :func:`rlcore.ppo.live.set_hyperparameters` takes them
    :param optimizer_exploit_strategy: ``"reset"`` starts a fresh optimizer, ``"copy"`` takes the source's moments
    :raises StateError: the parameters do not fit, or only one side has a VecNormalize; nothing is changed
    :raises SettingError: a hyperparameter cannot be used; nothing is changed
    :raises ResumeWarning: where a filter makes an error of it; nothing is changed
    """
    if optimizer_exploit_strategy not in OPTIMIZER_STRATEGIES:
        words = f"optimizer_exploit_strategy={optimizer_exploit_strategy!r} cannot be used; give 'reset' or 'copy'"
        raise SettingError("optimizer_exploit_strategy", words)
    change = plan_change(model, hyperparams)
    transferred = transferred_parts(model, parameters, optimizer_exploit_strategy)
    going_on = {"vgs_state": transferred.get("vgs_state")}
    if optimizer_exploit_strategy == "copy":
        going_on[OPTIMIZER_STATE] = transferred.get(OPTIMIZER_STATE)
        if parameters.get(OPTIMIZER_STATE) is None:
            warn_caller(f"no state for {OPTIMIZER_STATE} to copy: the optimizer starts fresh", ResumeWarning)
    warn_of_what_is_kept(model, parameters)
    change.warn_of_losses(model, going_on)
    groups = model.policy.optimizer.param_groups
    seeds = [{"seed": group["seed"]} if group.get("seed") is not None else {} for group in groups]
    model.set_parameters(transferred)
    for group, seed in zip(model.policy.optimizer.param_groups, seeds, strict=True):
        group.update(seed)  # the noise is the member's own, as its generators are
    change.apply(model)
    apply_learning_rate(model)  # of a schedule at the present progress
    settle_optimizer(model, parameters.get(OPTIMIZER_STATE), optimizer_exploit_strategy)
    model.reset_lstm_states_to_initial()


def transferred_parts(
    model: DistributionalPPO, parameters: Mapping[Any, Any], strategy: OptimizerStrategy
) -> dict[str, Any]:
    """Select the parts of the source's parameters that the model restores, without the position of the source's run.

    The optimizer's part is the model's own if nothing is to be copied. So is the return scale if none is given: the
    critics of both members use units that come from the same returns.

    :raises StateError: one side has statistics of its environments and the other has none
    """
    parts, own = model._training_state().parts, model.get_parameters()
    taken = {key: state for key, state in parameters.items() if key not in parts or parts[key].scope in LEARNT}
    for key in (key for key, part in parts.items() if part.scope is Scope.COLLECTED):
        if key in taken and (taken[key] is None) != (own[key] is None):
            with_it, without = ("this model", "the source") if taken[key] is None else ("the source", "this model")
            words = (
                f"{key}: {with_it} was trained behind VecNormalize and {without} was not; give both the same wrappers"
            )
            raise StateError(words)
        taken.setdefault(key, own[key])
    taken.setdefault(RETURN_SCALE_STATE, own[RETURN_SCALE_STATE])
    if strategy == "reset" or taken.get(OPTIMIZER_STATE) is None:
        taken[OPTIMIZER_STATE] = own[OPTIMIZER_STATE]
    return taken


def settle_optimizer(model: DistributionalPPO, source: Mapping[str, Any] | None, strategy: OptimizerStrategy) -> None:
    """Keep the source's moments for ``"copy"`` if there are any, and start a fresh optimizer otherwise."""
    if strategy == "reset" or source is None:
        model.rebuild_optimizer()


def warn_of_what_is_kept(model: DistributionalPPO, parameters: Mapping[Any, Any]) -> None:
    """Warn of statistics of the environments that the source does not bring, so that this model's own are used."""
    parts = model._training_state().parts
    of_environments = [*(key for key, part in parts.items() if part.scope is Scope.COLLECTED), RETURN_SCALE_STATE]
    kept = [key for key in of_environments if key not in parameters and parts[key].capture() is not None]
    if kept:
        message = (
            f"no state for {', '.join(kept)}: this model keeps its own; the weights were learnt under the source's"
        )
        warn_caller(message, ResumeWarning)


def save_pbt_checkpoint(
    model: DistributionalPPO,
    env: VecEnv | None,
    path: str | PathLike[str],
    *,
    step: int | None = None,
    performance: float | None = None,
) -> Path:
    """Write what ``model`` has learnt, with the statistics of its VecNormalize, as one v2 checkpoint; return the file.

    :param step: default ``model.num_timesteps``
    :param performance: default :func:`mean_episode_return`
    :raises SettingError: if ``env`` is not the model's, as the weights were trained on other statistics
    :raises CheckpointError: if the file cannot be written
    """
    if env is not None and env is not model.get_env():
        raise SettingError("env", f"env={type(env).__name__} is not the environment of this model; give None")
    save_checkpoint(
        path,
        {str(key): state for key, state in model.get_parameters().items()},
        step=model.num_timesteps if step is None else step,
        performance=mean_episode_return(model) if performance is None else performance,
    )
    return Path(path)


def mean_episode_return(model: BaseAlgorithm) -> float:
    """Return what the logger calls ``rollout/ep_rew_mean``; NaN while no episode has ended."""
    returns = [float(episode["r"]) for episode in model.ep_info_buffer or ()]
    return sum(returns) / len(returns) if returns else math.nan
