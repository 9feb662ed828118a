"""DistributionalPPO: sb3-contrib's RecurrentPPO with distributional critics, gradient scaling and exact resume."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib import RecurrentPPO
from sb3_contrib.common.recurrent.type_aliases import RecurrentRolloutBufferSamples
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback
from stable_baselines3.common.vec_env import VecEnv
from torch.distributions import Distribution

from rlcore.checkpoint.container import refusals_name, unusable
from rlcore.envs import vec_state as env_state
from rlcore.errors import NonFiniteObservationError, ResumeWarning, SettingError, StateError, warn_caller
from rlcore.optim.transfers import send
from rlcore.optim.upgd import UPGD
from rlcore.ppo import adaptive, construction, logging, losses, saving, state_parts
from rlcore.ppo.adaptive import EntropySchedule, KLPenalty
from rlcore.ppo.live import set_hyperparameters
from rlcore.ppo.logging import UpdateLog
from rlcore.ppo.policy import POLICIES, set_learning_rate
from rlcore.ppo.settings import MARKS, check_schedule, described, require_effect, whole_number
from rlcore.state.training import LEARNT, Observations, Scope, StatePart, TrainingState


def _non_finite_rows(observations: Any) -> tuple[int, ...]:
    parts = observations.values() if isinstance(observations, dict) else [] if observations is None else [observations]
    bad = [part for part in parts if not np.isfinite(part).all()]
    return tuple(sorted({int(row) for part in bad for row in np.argwhere(~np.isfinite(part))[:, 0]}))


@contextmanager
def _unchecked_distributions() -> Iterator[None]:
    """Keep distributions from checking their parameters, for which the CPU would wait for a device."""
    checks = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(checks)


class DistributionalPPO(saving.SavablePPO):
    """Recurrent PPO whose one or two critics predict the distribution of the return.

    An unknown or misplaced setting raises :class:`rlcore.errors.UnknownSettingError`, which names the right one. A
    setting that is assigned to later (``model.vgs_alpha = 0.5``) changes what trains, or raises if it cannot change.

    :param policy: ``"MlpLstmPolicy"``, ``"CnnLstmPolicy"`` for images, ``"MultiInputLstmPolicy"`` for Dict
        observations, or a subclass of :class:`rlcore.ppo.policy.DistributionalRecurrentPolicy`
    :param env: a Gymnasium environment, its id or a ``VecEnv``
    :raises SettingError: for a setting that cannot be used

    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {**POLICIES}
    _checked_obs: Observations | None = None

    @property
    def _last_obs(self) -> Observations | None:
        """What the environments returned last, as SB3 assigns it; None before the first reset, and after NaN."""
        return self._checked_obs

    @_last_obs.setter
    def _last_obs(self, returned: Any) -> None:
        self._checked_obs = None
        if found := _non_finite_rows(returned):
            normalizer = self._vec_normalize_env  # in which one NaN makes the observations of all environments NaN
            found = found if normalizer is None else _non_finite_rows(normalizer.get_original_obs()) or found
            raise NonFiniteObservationError(
                found,
                f"the observation of environment {', '.join(map(str, found))} holds NaN or infinity, so no action "
                "would follow. Look at what reset() and step() return; nothing that was learnt has changed.",
            )
        self._checked_obs = returned

    def __setattr__(self, name: str, value: Any) -> None:
        """Assign to an attribute; a setting changes what trains, or raises SettingError if it cannot change."""
        if name in MARKS and self._is_set_up:
            require_effect(name, value, self)
            set_hyperparameters(self, {name: value})
        else:
            super().__setattr__(name, value)

    def _setup_model(self) -> None:
        both = getattr(self, "observation_space", None), getattr(self, "action_space", None)  # None without environment
        construction.require_spaces(*both, self.policy_class)
        self.set_random_seed(self.seed)
        self._setup_network()
        self.rollout_buffer = construction.make_buffer(self)
        self._last_lstm_states = construction.initial_lstm_states(self)
        self.variance_gradient_scaler = construction.make_scaler(self)
        self.entropy_schedule = EntropySchedule(self)
        self.kl_penalty = KLPenalty(self)
        self._is_set_up = True

    def set_random_seed(self, seed: int | None = None) -> None:
        """Do what Stable-Baselines3 does. Noise of an optimizer without a seed in its settings is reseeded as well."""
        super().set_random_seed(seed)
        optimizer = self.policy.optimizer if hasattr(self, "policy") else None
        if seed is not None and isinstance(optimizer, UPGD) and "seed" not in self.optimizer_kwargs:
            optimizer.reseed()

    def _setup_network(self) -> None:
        """The policy and what its values are scaled by: as much of a model as acting needs."""
        self._setup_lr_schedule()
        scaling = self.return_scale, self.return_scale_decay, self.return_scale_min_std
        self.value_scale = adaptive.ReturnScale(*scaling)
        self.policy = construction.make_policy(self)

    @staticmethod
    def _wrap_env(env: Any, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
        if isinstance(env, gym.Env | VecEnv):
            construction.require_spaces(env.observation_space, env.action_space)
        return RecurrentPPO._wrap_env(env, verbose, monitor_wrapper)

    def _relink_scaler(self) -> None:
        """Point the scaler at the parameters that the policy has now."""
        if self.variance_gradient_scaler is not None:
            self.variance_gradient_scaler.update_parameters(self.policy.named_parameters())

    def rebuild_optimizer(self) -> None:
        """Start a fresh optimizer over the policy's parameters; call it after replacing a module of the policy."""
        self.policy.rebuild_optimizer()
        self._relink_scaler()

    def reset_lstm_states_to_initial(self) -> None:
        """Set the LSTM states of every environment to zero, mid-episode too; a loaded run resumes from them as well."""
        self._last_lstm_states = construction.initial_lstm_states(self)
        state_parts.forget_lstm_states(self.pending_state)
        state_parts.forget_lstm_states(self._boundary or {})

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        """Fill the buffer; until the update on it is complete, a save holds the state in which this rollout started."""
        self._boundary = self._training_state().capture(Scope.COLLECTED, Scope.PROGRESS, Scope.RUN)
        self.value_scale.before_rollout()
        with self._normalizer_unspoilt():
            return super().collect_rollouts(env, callback, rollout_buffer, n_rollout_steps)

    @contextmanager
    def _normalizer_unspoilt(self) -> Iterator[None]:
        """Restore what VecNormalize had learnt if it reads an observation that cannot be used."""
        before = self._training_state().capture(Scope.COLLECTED)
        try:
            yield
        except NonFiniteObservationError:
            self._training_state().restore(before, exact_match=False)
            raise

    def train(self) -> None:
        """Update the policy from the rollout buffer; an update that is interrupted or fails leaves no trace."""
        before = self._training_state().capture(Scope.LEARNER, Scope.PROGRESS)
        try:
            self._update()
        except BaseException:
            self._training_state().restore(before, exact_match=False, expected=tuple(Scope))
            raise
        self._boundary = None

    def _update(self) -> None:
        adaptive.require_finite(self.rollout_buffer.returns)
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        self._scale_returns()
        explained = logging.explained_variance_of(self.rollout_buffer)
        self.entropy_schedule.observe(explained)
        log = UpdateLog()
        for _ in range(self.n_epochs):
            complete = self._train_epoch(log)
            self._n_updates += 1
            if not complete:
                break
        self.value_scale.after_update(self.rollout_buffer.returns)
        logging.record(self, log, explained)
        self.kl_penalty.adapt(log.kl_of_last_epoch())

    def _scale_returns(self) -> None:
        """Let the return scale measure the rollout, and rescale the optimizer's utilities of the critics with it."""
        layers = self.policy.value_net.output_layers()
        factor = self.value_scale.before_update(self.rollout_buffer.returns, layers)
        if isinstance(self.policy.optimizer, UPGD):
            self.policy.optimizer.rescale_utilities((each for layer in layers for each in layer.parameters()), factor)

    def _train_epoch(self, log: UpdateLog) -> bool:
        """One pass over the rollout; False if the policy moved too far and the update is to stop."""
        log.begin_epoch()
        for samples in self.rollout_buffer.get(self.batch_size):
            minibatch = self._minibatch_losses(samples)
            log.add_losses(minibatch)
            if self.target_kl is not None and minibatch.approx_kl > 1.5 * self.target_kl:
                return False
            log.add_scaling_factor(self._optimize(minibatch.total))
        return True

    def _minibatch_losses(self, samples: RecurrentRolloutBufferSamples) -> losses.MinibatchLosses:
        valid = send((samples.mask > 1e-8).nonzero().flatten(), self.device)
        actions = samples.actions
        if isinstance(self.action_space, spaces.Discrete):
            actions = actions.long().flatten()
        observations: Any = samples.observations  # a dict of tensors where the space is a Dict
        with nullcontext() if self.device.type == "cpu" else _unchecked_distributions():
            predictions = losses.Predictions(
                *self.policy.evaluate_actions(observations, actions, samples.lstm_states, samples.episode_starts)
            )
        remaining = self._current_progress_remaining
        return losses.minibatch_losses(
            losses.valid_predictions(predictions, valid),
            losses.valid_targets(samples, valid),
            self.policy.values,
            clip_range=self.clip_range(remaining),
            clip_range_vf=None if self.clip_range_vf is None else self.clip_range_vf(remaining),
            ent_coef=self.entropy_schedule.coefficient(remaining),
            vf_coef=self.vf_coef,
            normalize_advantage=self.normalize_advantage,
            kl_penalty_coef=self.kl_penalty.coefficient,
        )

    def _optimize(self, loss: torch.Tensor) -> float:
        """Backward, scale, clip, optimizer step, scaler step; returns the factor of the scaling."""
        scaler = self.variance_gradient_scaler
        self.policy.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        factor = 1.0 if scaler is None else scaler.scale_gradients()
        known = math.inf if scaler is None else scaler.measured_norm
        losses.clip_norm(self.policy.named_parameters(), self.max_grad_norm, known)
        self.policy.optimizer.step()
        if scaler is not None:
            scaler.step()
        return factor

    def _update_current_progress_remaining(self, num_timesteps: int, total_timesteps: int) -> None:
        """Do what Stable-Baselines3 does, but not below 0, as the last rollout may go beyond the total."""
        super()._update_current_progress_remaining(num_timesteps, total_timesteps)
        self._current_progress_remaining = max(0.0, self._current_progress_remaining)

    def _update_learning_rate(self, optimizers: list[torch.optim.Optimizer] | torch.optim.Optimizer) -> None:
        """Give every group the scheduled learning rate, the critics' multiplied by ``critic_lr_multiplier``."""
        lr = check_schedule("learning_rate", self.lr_schedule, self._current_progress_remaining)
        self.logger.record("train/learning_rate", lr)
        for optimizer in optimizers if isinstance(optimizers, list) else [optimizers]:
            set_learning_rate(optimizer, lr, self.critic_lr_multiplier)

    def _setup_learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        reset_num_timesteps: bool = True,
        tb_log_name: str = "run",
        progress_bar: bool = False,
    ) -> tuple[int, BaseCallback]:
        """Prepare training: with ``reset_num_timesteps=False`` where a loaded run was interrupted."""
        total_timesteps = whole_number("total_timesteps", total_timesteps)
        tb_log_name = "DistributionalPPO" if tb_log_name == RecurrentPPO.__name__ else tb_log_name
        if self.env is None:
            raise SettingError("env", "the model has no environment; call set_env(env), or load(path, env=env)")
        self._boundary = None
        if not reset_num_timesteps and self.pending_state and (reason := state_parts.resume_run(self)):
            warn_caller(f"the environments start from a reset: {reason}; training goes on, not exactly", ResumeWarning)
        with self._normalizer_unspoilt():
            prepared = super()._setup_learn(total_timesteps, callback, reset_num_timesteps, tb_log_name, progress_bar)
        self.pending_state.clear()
        return prepared

    def _state_parts(self) -> list[StatePart]:
        return state_parts.state_parts(self)

    def _training_state(self) -> TrainingState:
        return TrainingState(self._state_parts(), self.pending_state)

    def get_parameters(self, include_optimizer: bool = True) -> dict[str, Any]:
        """Return a snapshot of everything learnt: network, optimizer, scaler, normaliser.

        :param include_optimizer: False leaves it out, for ``set_parameters(..., exact_match=False)``
        :return: state by key; tensors and plain Python values only; a part that the model lacks is None
        """
        learnt = self._training_state().capture(*LEARNT)
        return learnt if include_optimizer else {key: learnt[key] for key in learnt if key != "policy.optimizer"}

    def set_parameters(
        self,
        load_path_or_dict: Any,
        exact_match: bool = True,
        device: torch.device | str = "auto",  # noqa: ARG002
    ) -> None:
        """Restore what ``get_parameters()`` gave, or the parameters in a file; settings and device stay as they are.

        :param load_path_or_dict: a mapping from ``get_parameters()``, or the path of a checkpoint or model file
        :param exact_match: require every part, and start fresh (with one warning) what optional part is absent; False
            restores what is there and leaves the rest alone. Statistics of another estimator start fresh with a warning
        :raises StateError: a state does not fit, or is no parameter; the model is unchanged, as by the other errors
        :raises CheckpointError: the file cannot be read or does not fit
        """
        if not isinstance(load_path_or_dict, Mapping):
            with refusals_name(load_path_or_dict):
                self.set_parameters(self.read_parameters(load_path_or_dict), exact_match)
            return
        ruling = saving.SCALER_SETTINGS | saving.OPTIMIZER_SETTINGS
        with unusable("the parameters"):
            fitted = saving.under_settings(self, load_path_or_dict, ruling, self.optimizer_class)
        self._restore(fitted, exact_match=exact_match)

    def set_env(self, env: GymEnv, force_reset: bool = True) -> None:
        """Do what Stable-Baselines3 does; until learn(), what a loaded normaliser had learnt is restored into it."""
        wrapped, waiting = self._wrap_env(env, self.verbose), self.pending_state.get("normalizer_state")
        if waiting is not None and env_state.capture_normalizer(wrapped) is None:
            raise StateError("the model was trained behind VecNormalize and this environment has none; wrap it in one")
        super().set_env(wrapped, force_reset)
        if waiting is not None:
            env_state.restore_normalizer(wrapped, waiting)
        self._boundary = None


DistributionalPPO.__doc__ = f"{DistributionalPPO.__doc__}{described()}"
