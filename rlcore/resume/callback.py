"""The callback that saves a training while it runs, and when it is asked to stop."""

from __future__ import annotations

import signal
from pathlib import Path

from stable_baselines3.common.callbacks import BaseCallback, EventCallback
from stable_baselines3.common.vec_env import SubprocVecEnv

from rlcore.errors import SettingError
from rlcore.resume.exploration_noise import BeforeNoise
from rlcore.resume.file import require_exact, write_exact
from rlcore.resume.saved_files import path_of_step, prune, require_none_later
from rlcore.resume.signals import SIGNALS, StopRequest
from rlcore.state.generators import capture_generators


class SaveExactly(BaseCallback):
    """Saves what :func:`load_exact` continues: every ``every`` timesteps, on SIGTERM and Ctrl-C, and at the end.

    It saves between an update and the next rollout, as the middle of a rollout cannot be continued. After a signal,
    ``learn()`` saves there and returns; ``stopped_by`` has the signal's number then. The model in memory has made one
    more step, so continue with the file. A second signal does at once what it did before training.

    :param folder: for the files ``<name>_<timesteps>.zip``
    :param every: timesteps, as ``num_timesteps`` counts them, between two files
    :param keep: number of files that stay; older ones are removed
    :param name: start of the files' names
    :param on_signals: whether to save and stop on SIGTERM and SIGINT, in the main thread. With SubprocVecEnv only on
        SIGTERM, sent to the main process alone: Ctrl-C ends its workers before they give their state.
    :raises SettingError: ``every`` or ``keep`` is no positive integer, or ``name`` is no name of a file
    """

    def __init__(
        self,
        folder: str | Path,
        every: int,
        *,
        keep: int = 2,
        name: str = "exact",
        on_signals: bool = True,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        for setting, value in (("every", every), ("keep", keep)):
            if type(value) is not int or value < 1:
                raise SettingError(setting, f"{setting}={value!r} is no integer of at least 1; give one")
        if not name or Path(name).name != name:
            raise SettingError("name", f"name={name!r} is no name of a file; give one without a folder")
        self.folder, self.every, self.keep, self.name = Path(folder), every, keep, name
        self.on_signals = on_signals
        self.stopped_by: int | None = None
        self._stopping = False
        self._in_rollout = False
        self._saved_at = 0
        self._before_noise: BeforeNoise | None = None

    def _on_training_start(self) -> None:
        """
        :raises CheckpointError: the model cannot be saved exactly, or the folder has files of another run
        :raises SettingError: the callback is the child of another, which does not pass on when rollouts begin
        """
        if isinstance(self.parent, EventCallback):
            raise SettingError(
                "callback",
                f"SaveExactly was given to {type(self.parent).__name__}, which does not report the start of a rollout, "
                "so nothing would be saved; pass it to learn() itself, in a list",
            )
        require_exact(self.model, path_of_step(self.folder, self.name, self.model.num_timesteps))
        require_none_later(self.folder, self.name, self.model.num_timesteps)
        self.stopped_by, self._stopping, self._in_rollout = None, False, False
        self._saved_at = self.model.num_timesteps
        self._before_noise = BeforeNoise(self.model) if self.model.use_sde else None
        self._request = StopRequest(self.model, self._signals())
        if self.on_signals:
            self._request.install()

    def _on_rollout_start(self) -> None:
        self._in_rollout = True
        self._stopping = self._request.signal is not None
        if self._stopping or self.model.num_timesteps - self._saved_at >= self.every:
            self._save()

    def _on_step(self) -> bool:
        return not self._stopping

    def _on_rollout_end(self) -> None:
        self._in_rollout = False

    def _on_training_end(self) -> None:
        if not self._in_rollout:
            self._save()
        self.stopped_by = self._request.signal
        self._request.remove()
        if self._before_noise is not None:
            self._before_noise.remove()

    def _save(self) -> None:
        step = self.model.num_timesteps
        in_noise = self._in_rollout and self._before_noise is not None
        generators = self._before_noise.generators if in_noise and self._before_noise else capture_generators()
        path = path_of_step(self.folder, self.name, step)
        write_exact(self.model, path, generators)
        prune(self.folder, self.name, self.keep)
        self._saved_at = step
        if self.verbose > 0:
            self.logger.log(f"saved {path}")

    def _signals(self) -> tuple[int, ...]:
        """The signals that leave the environments alive; Ctrl-C ends the workers of SubprocVecEnv."""
        in_workers = isinstance(self.training_env.unwrapped, SubprocVecEnv)
        return (signal.SIGTERM,) if in_workers else SIGNALS
