"""The work of a member between two decisions: train for a turn, or take over what another has learnt."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import cloudpickle
import numpy as np
from stable_baselines3.common.utils import set_random_seed

from rlcore.errors import CheckpointError, NonFiniteError, SettingError
from rlcore.pbt.exploit import OptimizerStrategy, apply_exploit
from rlcore.pbt.hyperparams import Hyperparams, HyperparamValue
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.live import set_hyperparameters
from rlcore.ppo.saving import continued
from rlcore.state.position import apply_generators, capture_generators

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

    def pickled(self) -> bytes:
        """Pickle it for :func:`work_from_file`.

        :raises SettingError: if it cannot be pickled
        """
        try:
            content: bytes = cloudpickle.dumps(self)
        except Exception as error:
            raise SettingError(
                "make_model",
                f"make_model={self.make_model!r:.80} or performance={self.performance!r:.80} cannot be sent to workers "
                f"({error}); build what cannot be pickled inside of make_model, or give executor=InlineExecutor()",
            ) from error
        return content


@dataclass(frozen=True)
class MemberTask:
    """A piece of a member's work, in plain data, so that any process of this machine can do it.

    :param seed: the member's
    :param hyperparams: under which its last file was saved, or the first ones
    :param saved: its last file; None if it has none
    :param target: its new model file
    :param total: updates of the member in all, by which schedules count
    :param updates: to train for; 0 for an exploit
    :param figures: logged with every rollout, next to the model's own
    :param explored: of an exploit, the hyperparameters to go on with
    :param parameters: of an exploit, those of the source; None if only hyperparameters change
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

    :param score: of a turn; NaN if the member diverged, None after an exploit
    :param parameters: of a turn, for other members to copy
    :param diverged: why the member diverged, or None
    :param vgs_transferred: True if an exploit brought statistics of variance gradient scaling
    """

    score: float | None = None
    parameters: dict[Any, Any] | None = None
    diverged: str | None = None
    vgs_transferred: bool = False


class LiveMember:
    """A member's model and generators in this process.

    :param saved: the file that it goes on from, or None for a new model
    :raises SettingError: if the model of the file was trained with other settings
    :raises CheckpointError: if the file cannot be read as a model
    """

    def __init__(self, recipe: Recipe, member_id: int, seed: int, hyperparams: Hyperparams, saved: Path | None) -> None:
        self._recipe = recipe
        self._name = f"member_{member_id}"
        self._generators = OwnGenerators(seed)
        self._training: TurnwiseTraining | None = None
        with self._generators.in_place():
            self.model = recipe.make_model(dict(hyperparams), seed)
            set_hyperparameters(self.model, hyperparams)
            if saved is not None:
                try:
                    self.model = continued(saved, self.model)
                except CheckpointError as error:
                    raise CheckpointError(
                        saved,
                        f"{error.reason}; to go on, bring it back from a copy, or begin again in another folder",
                    ) from error

    def begin(self, total: int) -> None:
        """Put the environments and generators where the run was.

        :param total: updates in all
        """
        timesteps = total * self.model.n_steps * self.model.n_envs
        with self._generators.in_place():
            self._training = TurnwiseTraining(self.model, timesteps, self._name)

    def work(self, task: MemberTask) -> TurnResult:
        """Do a task of this member after :meth:`begin`, and save its model."""
        with self._generators.in_place():
            result = self._turn(task) if task.updates else self._take_over(task.explored, task.parameters)
            self.model.save(task.target)
            return result

    def close(self) -> None:
        """End the environments, which may be processes."""
        if self.model.env is not None:
            self.model.env.close()

    def _turn(self, turn: MemberTask) -> TurnResult:
        assert self._training is not None, "begin() comes first"
        score, diverged = math.nan, None
        try:
            self._training.advance(turn.updates, turn.figures)
        except NonFiniteError as error:
            diverged = str(error)
        else:
            score = float(self._recipe.performance(self.model))
        return TurnResult(score, self.model.get_parameters(), diverged)

    def _take_over(self, explored: Hyperparams, parameters: Mapping[Any, Any] | None) -> TurnResult:
        """Apply an exploit; episodes that the old weights played no longer count."""
        model, strategy = self.model, self._recipe.optimizer_exploit_strategy
        if parameters is None:
            set_hyperparameters(model, explored)
            return TurnResult()
        apply_exploit(model, parameters, explored, optimizer_exploit_strategy=strategy)
        for window in (model.ep_info_buffer, model.ep_success_buffer):
            if window is not None:
                window.clear()
        transferred = model.variance_gradient_scaler is not None and parameters.get("vgs_state") is not None
        return TurnResult(vgs_transferred=transferred)


def work_from_file(recipe: bytes, task: MemberTask) -> TurnResult:
    """Do a task in a process that has no live model of the member.

    :param recipe: of :meth:`Recipe.pickled`
    """
    live = LiveMember(cloudpickle.loads(recipe), task.member_id, task.seed, task.hyperparams, task.saved)
    try:
        live.begin(task.total)
        return live.work(task)
    finally:
        live.close()
