"""Saves a training while it runs and when it is asked to stop, and goes on to the end of one that was interrupted."""

from __future__ import annotations

import logging
import re
import signal
import threading
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any, Final

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback, ConvertCallback, EventCallback
from stable_baselines3.common.type_aliases import MaybeCallback
from stable_baselines3.common.vec_env import SubprocVecEnv

from rlcore.errors import CallOrderError, CheckpointError, SettingError
from rlcore.resume.file import is_running, require_exact, write_exact
from rlcore.resume.parts import capture_log, capture_noise, put_into_log, restore_noise
from rlcore.state.generators import capture_generators
from rlcore.types import StateDict

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

_logger = logging.getLogger("rlcore.resume")


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


def path_of_step(folder: Path, name: str, step: int) -> Path:
    """Where the training is saved at a timestep."""
    return folder / f"{name}_{step}.zip"


def saved_steps(folder: Path, name: str) -> list[int]:
    """Return the timesteps of the files that are there, in ascending order.

    :raises CheckpointError: the folder cannot be listed
    """
    pattern = re.compile(rf"{re.escape(name)}_(\d+)\.zip")
    try:
        found = [pattern.fullmatch(path.name) for path in folder.iterdir()] if folder.exists() else []
    except OSError as error:
        raise CheckpointError(folder, f"cannot be listed ({error.strerror}); give another folder") from error
    return sorted(int(match.group(1)) for match in found if match)


def newest_exact(folder: str | Path, name: str = "exact") -> Path | None:
    """Return the file of the latest timestep that ``SaveExactly(folder, name=name)`` has saved, or None.

    :raises CheckpointError: the folder cannot be listed
    """
    steps = saved_steps(Path(folder), name)
    return path_of_step(Path(folder), name, steps[-1]) if steps else None


def require_none_later(folder: Path, name: str, step: int) -> None:
    """
    :raises CheckpointError: the folder has files of a later timestep, which are of another run and would be mixed up
    """
    later = [each for each in saved_steps(folder, name) if each > step]
    if later:
        raise CheckpointError(
            path_of_step(folder, name, later[-1]),
            f"is of a later timestep than {step}, at which this training begins, so it belongs to another run; "
            "continue it with load_exact, move it away, or give another folder or name",
        )


def prune(folder: Path, name: str, keep: int) -> None:
    """Remove all files but those of the last ``keep`` timesteps."""
    for step in saved_steps(folder, name)[:-keep]:
        path = path_of_step(folder, name, step)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            _logger.warning("%s could not be removed and is tried again later: %s", path, error)


class StopRequest:
    """Notes the first SIGTERM or SIGINT that arrives while ``model.learn()`` runs; a second one does what it did.

    :param model: whose ``learn()`` it is
    :param numbers: the signals
    """

    def __init__(self, model: object, numbers: Iterable[int] = SIGNALS) -> None:
        self._model = model
        self._numbers = tuple(numbers)
        self._former: dict[int, Any] = {}
        self.signal: int | None = None

    def install(self) -> None:
        """Take over the signals that are not ignored; do nothing outside the main thread, where Python cannot."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in self._numbers:
            former = signal.getsignal(number)
            if former is not None and former is not signal.SIG_IGN:  # None: not Python's, so it could not be restored
                self._former[number] = signal.signal(number, self._note)

    def remove(self) -> None:
        """Put the former handlers back, except where another handler has been installed since."""
        for number, former in self._former.items():
            if signal.getsignal(number) == self._note:
                signal.signal(number, former)
        self._former.clear()

    def _note(self, number: int, frame: FrameType | None) -> None:
        # Not training: learn() has ended with an error, which no callback hears of.
        if self.signal is not None or frame is None or not is_running(self._model, "learn", frame):
            self.remove()
            signal.raise_signal(number)
        else:
            self.signal = number


class BeforeNoise:
    """Remembers the global generators whenever exploration noise is about to be drawn.

    With gSDE ``collect_rollouts`` draws noise before it calls ``on_rollout_start``, and draws it again when training is
    continued. So what is saved there has to hold the generators from before.

    :param model: with ``use_sde=True``
    """

    def __init__(self, model: BaseAlgorithm) -> None:
        self._owner: Any = getattr(model, "actor", model.policy)
        self._draw = self._owner.reset_noise
        self._owner.reset_noise = self._reset_noise
        self.generators: StateDict = capture_generators()

    def remove(self) -> None:
        """Stop remembering."""
        if vars(self._owner).get("reset_noise") == self._reset_noise:
            del self._owner.reset_noise

    def _reset_noise(self, *arguments: Any, **named: Any) -> None:
        self.generators = capture_generators()
        self._draw(*arguments, **named)
