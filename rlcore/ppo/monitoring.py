"""What a model says to the logger after an update, beside the losses.

Of the settings, as they were during the update:

- ``train/ent_coef``, ``train/clip_range``, ``train/clip_range_vf``: coefficient and clipping that trained
- ``train/std``: mean standard deviation of the actions, where they are continuous
- ``train/n_updates``: epochs since the start
- ``train/kl_penalty_coef``: coefficient that trained, as the two below only with a KL penalty
- ``train/kl_penalty``: that coefficient times the mean divergence of the update
- ``train/kl_last_epoch``: mean divergence of the last epoch, by which the coefficient moves

Of the values that acted, over the whole rollout:

- ``train/explained_variance``: 1 - Var(returns - values) / Var(returns); NaN where all returns are equal
- ``train/value_variance``: their population variance
- ``twin_critics/divergence``: mean magnitude of the difference between the two critics' values, where there are two

Of the return scale, after the update (only with one):

- ``train/return_mean``, ``train/return_std``: mean and standard deviation of the returns, as measured up to now

Of the LSTM layer {i}'s hidden states at the end of the rollout, all environments together (the critic's only where it
has an LSTM of its own):

- ``lstm/actor_hidden_layer{i}_norm``, ``lstm/critic_hidden_layer{i}_norm``: L2 norm
- ``lstm/actor_hidden_layer{i}_mean``, ``lstm/critic_hidden_layer{i}_mean``: mean
- ``lstm/actor_hidden_layer{i}_std``, ``lstm/critic_hidden_layer{i}_std``: population standard deviation

Of the last optimizer step:

- ``optim/noise_to_signal``: see :func:`rlcore.optim.noise.noise_to_signal`; UPGD and AdaptiveUPGD only
- ``vgs/warmup_complete``: 1 once the factor of the scaling may differ from 1, else 0; only with scaling

:class:`UpdateLog` adds the means of the losses over the minibatches, and of the scaling over the
steps ``vgs/scaling_factor`` (mean), ``vgs/scaling_factor_min``, ``_median`` and ``_max``, ``vgs/step_count`` and
``vgs/normalized_variance``.

There is no key for a reduction of variance by the scaling. One common factor shrinks the mean of the gradient and its
deviations alike, so the variance in proportion to the mean, which is what matters to a step, is the same with and
without it; the factor itself is all there is to tell.
"""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.utils import explained_variance

from rlcore.errors import SettingError
from rlcore.optim.noise import noise_to_signal
from rlcore.optim.scaler import VarianceGradientScaler
from rlcore.ppo.buffer import TwinCriticBuffer
from rlcore.ppo.configured import ConfiguredPPO
from rlcore.ppo.losses import MinibatchLosses

Measures = Iterator[tuple[str, float]]


def require_log_folder(folder: str | None) -> None:
    """Make the folder of TensorBoard's files where it is missing.

    :raises SettingError: if it cannot be made or written in
    """
    if folder is None:
        return
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK | os.X_OK)
    except OSError as error:
        raise _unusable_log_folder(folder, str(error.strerror)) from error
    if not writable:
        raise _unusable_log_folder(folder, "Permission denied")


def _unusable_log_folder(folder: str, reason: str) -> SettingError:
    return SettingError(
        "tensorboard_log", f"tensorboard_log={folder!r} is no folder to write in ({reason}); give another, or None"
    )


def explained_variance_of(buffer: TwinCriticBuffer) -> float:
    """Share of the returns' variance that the values that acted explain, at most 1; NaN where all returns are equal."""
    return float(explained_variance(buffer.values.flatten(), buffer.returns.flatten()))


def record(model: ConfiguredPPO, log: UpdateLog, explained: float) -> None:
    """Tell the logger of ``model`` everything that is listed above.

    :param explained: the rollout's explained variance
    """
    model.logger.record("train/explained_variance", explained)
    for measures in (_of_settings(model), _of_kl(model, log), _of_values(model), _of_lstm(model), _of_steps(model)):
        for key, value in measures:
            model.logger.record(key, value)
    model.logger.record("train/n_updates", model._n_updates, exclude="tensorboard")


def _of_settings(model: ConfiguredPPO) -> Measures:
    remaining = model._current_progress_remaining
    yield "train/ent_coef", model.entropy_schedule.coefficient(remaining)
    yield "train/clip_range", model.clip_range(remaining)
    if model.clip_range_vf is not None:
        yield "train/clip_range_vf", model.clip_range_vf(remaining)
    if hasattr(model.policy, "log_std"):
        yield "train/std", model.policy.log_std.exp().mean().item()


def _of_kl(model: ConfiguredPPO, log: UpdateLog) -> Measures:
    if model.kl_penalty.is_on:
        coefficient = model.kl_penalty.coefficient
        yield "train/kl_penalty_coef", coefficient
        yield "train/kl_penalty", coefficient * log.mean("approx_kl")
        yield "train/kl_last_epoch", log.kl_of_last_epoch()


def _of_values(model: ConfiguredPPO) -> Measures:
    buffer = model.rollout_buffer
    yield "train/value_variance", float(np.var(buffer.values, dtype=np.float64))
    if model.n_critics == 2:
        yield "twin_critics/divergence", float(np.abs(np.diff(buffer.critic_values, axis=-1)).mean(dtype=np.float64))


def _of_lstm(model: ConfiguredPPO) -> Measures:
    hidden = {"actor": model._last_lstm_states.pi[0]}
    if model.policy.lstm_critic is not None:
        hidden["critic"] = model._last_lstm_states.vf[0]
    for name, layers in hidden.items():
        for index, layer in enumerate(layers):
            key = f"lstm/{name}_hidden_layer{index}"
            yield f"{key}_norm", float(torch.linalg.vector_norm(layer))
            yield f"{key}_mean", float(layer.mean())
            yield f"{key}_std", float(layer.std(correction=0))


def _of_steps(model: ConfiguredPPO) -> Measures:
    ratio = noise_to_signal(model.policy.optimizer)
    if ratio is not None:
        yield "optim/noise_to_signal", ratio
    if model.variance_gradient_scaler is not None:
        yield "vgs/warmup_complete", float(not model.variance_gradient_scaler.is_warming_up)


KEYS = {
    "policy": "train/policy_gradient_loss",
    "value": "train/value_loss",
    "entropy": "train/entropy_loss",
    "approx_kl": "train/approx_kl",
    "clip_fraction": "train/clip_fraction",
    "total": "train/loss",
}


class UpdateLog:
    """Collects the measures of every minibatch of one update and records their means."""

    def __init__(self) -> None:
        self._measured: dict[str, list[torch.Tensor]] = defaultdict(list)
        self._factors: list[float] = []
        self._epoch_start = 0

    def begin_epoch(self) -> None:
        """Note that what follows belongs to another pass over the rollout."""
        self._epoch_start = len(self._measured[KEYS["approx_kl"]])

    def add_losses(self, losses: MinibatchLosses) -> None:
        """Note the losses of a minibatch, whether or not a step follows."""
        for name, value in losses._asdict().items():
            self._measured[KEYS[name]].append(value.detach())

    def add_scaling_factor(self, factor: float) -> None:
        """Note the factor by which the gradients of a step were scaled."""
        self._factors.append(factor)

    def mean(self, loss: str) -> float:
        """Mean over the minibatches of the update.

        :param loss: a field of :class:`rlcore.ppo.losses.MinibatchLosses`
        """
        return float(torch.stack(self._measured[KEYS[loss]]).mean())

    def kl_of_last_epoch(self) -> float:
        """Mean divergence over the minibatches since ``begin_epoch``, each measured before its own step."""
        return float(torch.stack(self._measured[KEYS["approx_kl"]][self._epoch_start :]).mean())

    def record(self, logger: Logger, scaler: VarianceGradientScaler | None) -> None:
        """Record the means over the update, the spread of the scaling, and where the scaler stands after it."""
        for key, values in self._measured.items():
            logger.record(key, float(torch.stack(values).mean()))
        if scaler is None:
            return
        if self._factors:
            logger.record("vgs/scaling_factor", sum(self._factors) / len(self._factors))
            logger.record("vgs/scaling_factor_min", min(self._factors))
            logger.record("vgs/scaling_factor_median", statistics.median(self._factors))
            logger.record("vgs/scaling_factor_max", max(self._factors))
        logger.record("vgs/step_count", scaler.step_count)
        logger.record("vgs/normalized_variance", scaler.get_normalized_variance())
