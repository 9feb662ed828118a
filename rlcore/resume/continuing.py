"""Going on to the end of a run that was interrupted."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback, ConvertCallback
from stable_baselines3.common.type_aliases import MaybeCallback

from rlcore.errors import CallOrderError, SettingError
from rlcore.resume.log import capture_log, put_into_log
from rlcore.resume.noise import capture_noise, restore_noise
from rlcore.types import StateDict


def continue_learning(
    model: BaseAlgorithm, callback: MaybeCallback = None, *, total_timesteps: int | None = None, **learn_arguments: Any
) -> BaseAlgorithm:
    """Call ``model.learn()`` so that it ends as the interrupted call would have, schedules included.

    ``learn(remaining, reset_num_timesteps=False)`` alone resets the action noise, and forgets values that were recorded
    for the next row of the log; this restores both. A model that has reached its total is returned unchanged.

    :param model: of :func:`load_exact`, or one whose ``learn()`` was interrupted in this process
    :param callback: as for ``learn()``; callbacks keep their own state, which no file of ours holds
    :param total_timesteps: of the whole run, counted from its beginning; None for the one that it was begun with.
        Schedules go by it, so with another one they do not continue exactly
    :param learn_arguments: the other arguments of ``learn()``, as the run was begun with: ``log_interval``,
        ``tb_log_name``, ``progress_bar``, ``use_masking``
    :raises CallOrderError: training has not begun, so there is nothing to continue
    :raises SettingError: ``reset_num_timesteps`` is given
    """
    if "reset_num_timesteps" in learn_arguments:
        raise SettingError(
            "reset_num_timesteps",
            f"reset_num_timesteps={learn_arguments['reset_num_timesteps']!r} is given, and continuing counts on; "
            "leave it out, or call model.learn() to begin again",
        )
    if model._last_obs is None and not getattr(model, "pending_state", None):  # which DistributionalPPO resumes from
        raise CallOrderError(
            "training has not begun, so there is nothing to continue; call model.learn(total_timesteps)"
        )
    remaining = (model._total_timesteps if total_timesteps is None else total_timesteps) - model.num_timesteps
    if remaining > 0:
        callbacks = [_PutBack(capture_noise(model.action_noise), capture_log(model)), *_listed(callback)]
        model.learn(remaining, callback=callbacks, reset_num_timesteps=False, **learn_arguments)
    return model


class _PutBack(BaseCallback):
    """Restores what ``learn()`` resets when it begins."""

    def __init__(self, noise: StateDict | None, log: StateDict | None) -> None:
        super().__init__()
        self._noise, self._log = noise, log

    def _on_training_start(self) -> None:
        restore_noise(self.model.action_noise, self._noise)
        if self._log is not None:
            put_into_log(self.logger, self._log)

    def _on_step(self) -> bool:
        return True


def _listed(callback: MaybeCallback) -> list[BaseCallback]:
    if callback is None:
        return []
    if isinstance(callback, list):
        return callback
    return [callback if isinstance(callback, BaseCallback) else ConvertCallback(callback)]
