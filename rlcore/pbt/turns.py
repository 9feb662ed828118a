"""The work of a member between two decisions: train for a turn, or take over what another has learnt."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from stable_baselines3.common.utils import set_random_seed

from rlcore.errors import NonFiniteError
from rlcore.pbt.exploit import OptimizerStrategy, apply_exploit
from rlcore.pbt.hyperparams import Hyperparams, HyperparamValue
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.live import set_hyperparameters
from rlcore.ppo.saving import continued
from rlcore.state.generators import apply_generators, capture_generators

MakeModel: TypeAlias = Callable[[Mapping[str, HyperparamValue], int], DistributionalPPO]
"""Builds a member's model, with environments of its own, from its hyperparameters and its seed."""

Performance: TypeAlias = Callable[[DistributionalPPO], float]
"""Scores a model."""


class OwnGenerators:
    """The state of the global generators for one member, which other members do not change.

    :param seed: of Python's, NumPy's and torch's generators at first
    """

    def __init__(self, seed: int) -> None:
        self._state = capture_generators()
        with self.in_place():
            set_random_seed(seed)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Apply them, and restore the others afterwards."""
        outside = capture_generators()
        apply_generators(self._state)
        try:
            yield
        finally:
            self._state = capture_generators()
            apply_generators(outside)


class TurnwiseTraining:
    """``learn()`` in pieces: after all of them the model has the bits that one call would have left.

    A model that was loaded goes on where its run was.

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
        :raises NonFiniteError: if a rollout or an update cannot be made; it leaves no trace, the rollout is lost, and
            the next turn goes on from where the environments are, or from a reset if they returned NaN
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
        """Reset the environments if what they returned last could not be used."""
        model = self.model
        if model._last_obs is None and model.env is not None:
            model._last_obs = model.env.reset()
            model._last_episode_starts = np.ones(model.n_envs, dtype=bool)


@dataclass(frozen=True)
class Recipe:
    """The part of the work that is the same for all members and all turns."""

    make_model: MakeModel
    performance: Performance
    optimizer_exploit_strategy: OptimizerStrategy


@dataclass(frozen=True)
class MemberTask:
    """A piece of a member's work, in plain data, so that any process of this machine can do it.

    :param hyperparams: under which its last file was saved, or the first ones
    :param saved: its last file; None if it has none
    :param target: its new model file
    :param total: updates of the member in all, by which schedules count
    :param updates: to train for; 0 for an exploit
    :param figures: logged with every rollout, next to the model's own
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

    :param score: NaN if the member diverged or after an exploit
    :param parameters: for other members to copy; None after an exploit
    :param diverged: why the member diverged, or None
    :param vgs_transferred: True if an exploit brought statistics of variance gradient scaling
    """

    score: float = math.nan
    parameters: dict[Any, Any] | None = None
    diverged: str | None = None
    vgs_transferred: bool = False


class LiveMember:
    """A member's model and generators in this process.

    :param saved: the file that it goes on from, or None for a new model
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
        for window in (model.ep_info_buffer, model.ep_success_buffer):
            if window is not None:
                window.clear()
        transferred = model.variance_gradient_scaler is not None and parameters.get("vgs_state") is not None
        return TurnResult(vgs_transferred=transferred)


def work_from_file(recipe: Recipe, task: MemberTask) -> TurnResult:
    """Do a task in a process that has no live model of the member."""
    live = LiveMember(recipe, task.seed, task.hyperparams, task.saved)
    try:
        return live.work(task)
    finally:
        live.close()
