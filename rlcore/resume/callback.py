"""Saves a training while it runs and when it is asked to stop, and goes on to the end of one that was interrupted."""

from __future__ import annotations

import re
import signal
import sys
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final
from weakref import WeakKeyDictionary

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback, ConvertCallback, EventCallback
from stable_baselines3.common.type_aliases import MaybeCallback
from stable_baselines3.common.vec_env import SubprocVecEnv

from rlcore.checkpoint import torch_file
from rlcore.checkpoint.container import locked, refusals_name
from rlcore.checkpoint.formats import read_model_file
from rlcore.errors import CallOrderError, CheckpointError, SettingError
from rlcore.resume.file import LOADED, is_in_rollout, is_running, require_exact, write_exact
from rlcore.resume.parts import (
    capture_generators_of,
    capture_log,
    capture_noise,
    put_into_log,
    restore_generators_of,
    restore_noise,
    training_state,
)
from rlcore.state.training import capture_generators, snapshot
from rlcore.types import StateDict

_HOLDERS: Final[dict[Path, SaveExactly]] = {}
"""Who holds a lock of this process, by its file."""
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class _Drawing:
    """Draws exploration noise, and has the global generators from before; a pickle of the policy may hold it."""

    def __init__(self, owner: Any) -> None:
        self.draw: Any = getattr(owner, "reset_noise", None)
        self.before: StateDict = {}

    def reset_noise(self, *arguments: Any, **named: Any) -> None:
        self.before = capture_generators()
        self.draw(*arguments, **named)


class SaveExactly(BaseCallback):
    """Saves what :func:`load_exact` continues: every ``every`` timesteps, on SIGTERM and Ctrl-C, and at the end, unless
    another callback stops ``learn()`` inside of a rollout.

    Give it first in a list of callbacks. It saves between an update and the next rollout, as the middle of a rollout
    cannot be continued. After a signal, ``learn()`` saves there and returns; ``stopped_by`` has the signal's number
    then. The model in memory has made one more step, so continue with the file. A second signal does at once what it
    did before training. With SubprocVecEnv it saves only on a SIGTERM that is sent to the main process alone: Ctrl-C
    ends the workers before they give their state.

    :param folder: for the files ``<name>_<timesteps>.zip``
    :param every: timesteps, as ``num_timesteps`` counts them, between two files
    :param keep: number of files that stay, at least 1; older ones are removed
    :param name: start of the files' names
    :raises SettingError: ``every`` or ``keep`` is no integer, or below 1, or ``name`` is in a folder of its own
    """

    def __init__(self, folder: str | Path, every: int, *, keep: int = 2, name: str = "exact") -> None:
        super().__init__()
        for setting, value in (("every", every), ("keep", keep)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SettingError(setting, f"{setting}={value!r} is no integer of at least 1; correct it")
        if not name or Path(name).name != name:
            raise SettingError("name", f"name={name!r} is not the start of a file's name; put folders into folder")
        self.folder, self.every, self.keep, self.name = Path(folder).absolute(), every, keep, name
        self.stopped_by: int | None = None
        self._stopping = self._in_rollout = False
        self._held = ExitStack()
        self._saved_at = self._began_at = 0
        self._place = self.folder / f".{name}.lock"

    def _on_training_start(self) -> None:
        """
        :raises CallOrderError: a signal stopped an earlier ``learn()`` of this model
        :raises CheckpointError: the model cannot be saved exactly, another process saves files of this name there, or
            the folder has some of another run
        :raises SettingError: the callback is the child of another, which does not pass on when rollouts begin
        """
        if isinstance(self.parent, EventCallback):
            parent = type(self.parent).__name__
            raise SettingError("callback", f"{parent} does not report rollouts to SaveExactly; give both to learn()")
        if _STOPPED.get(self.model) == self.model.num_timesteps:
            words = "a signal stopped the training of this model inside of a rollout, so it cannot go on exactly"
            raise CallOrderError(f"{words}; end the program, and continue with load_exact and the newest file")
        self._saved_at = self.model.num_timesteps
        path = path_of_step(self.folder, self.name, self._saved_at)
        with refusals_name(path):
            torch_file.plain(require_exact(self.model, path))
        self._began_at = self._saved_at
        self._lock().close()  # refuse at once; it is held from the first file on
        self.stopped_by, self._stopping, self._in_rollout = None, False, False
        self._remember_generators()
        if threading.current_thread() is not threading.main_thread():
            return  # where no handler can be installed
        _WATCHING.append(self)
        in_workers = isinstance(self.training_env.unwrapped, SubprocVecEnv)
        for number in SIGNALS[:1] if in_workers else SIGNALS:
            former = signal.getsignal(number)
            if former not in (None, signal.SIG_IGN, _note):  # None: not Python's, so it could not be restored
                signal.signal(number, _note)
                _FORMER.setdefault(number, former)

    def _lock(self) -> ExitStack:
        """Keep others from saving under this name, and refuse files of another run; remove what killed writers left."""
        holder, frames = _HOLDERS.get(self._place, self), sys._current_frames().values()
        if holder.model is self.model or not any(is_running(holder.model, "learn", each) for each in frames):
            holder._let_go()
        with ExitStack() as held:
            held.enter_context(locked(self._place))
            later = [step for step in saved_steps(self.folder, self.name) if step > self._began_at]
            paths = (path_of_step(self.folder, self.name, step) for step in reversed(later))
            if (path := next(filter(_is_whole, paths), None)) is not None:
                words = (
                    f"is of a later timestep than {self._began_at}, at which this training begins, so of another run"
                )
                raise CheckpointError(path, f"{words}; continue it with load_exact, or give another folder or name")
            left = re.compile(rf"\.{re.escape(self.name)}_[0-9]+\.zip\.[0-9a-f]{{16}}\.tmp")
            for path in self.folder.iterdir():
                if left.fullmatch(path.name):
                    path.unlink(missing_ok=True)
            return held.pop_all()

    def _let_go(self) -> None:
        if _HOLDERS.get(self._place) is self:
            _HOLDERS.pop(self._place)._held.close()

    def _remember_generators(self) -> None:
        """Remember the global generators whenever exploration noise is about to be drawn.

        With gSDE ``collect_rollouts`` draws noise before it calls ``on_rollout_start``, and draws it again when it is
        continued. So what is saved there has to hold the generators from before.
        """
        self._owner: Any = getattr(self.model, "actor", self.model.policy)
        self._drawing = _Drawing(self._owner)
        if self.model.use_sde:
            self._owner.reset_noise, self._drawing.before = self._drawing.reset_noise, capture_generators()

    def _on_rollout_start(self) -> None:
        self._in_rollout = True
        self._stopping = self.stopped_by is not None
        if self._stopping or self.model.num_timesteps - self._saved_at >= self.every:
            self._save(self._drawing.before or capture_generators())

    def _on_step(self) -> bool:
        return not self._stopping

    def _on_rollout_end(self) -> None:
        self._in_rollout = False

    def _on_training_end(self) -> None:
        if not self._in_rollout:
            self._save(capture_generators())
        elif self.stopped_by is not None:
            _STOPPED[self.model] = self.model.num_timesteps
        self._leave()
        vars(self._owner).pop("reset_noise", None)
        self._let_go()

    def _save(self, generators: StateDict) -> None:
        self._saved_at = self.model.num_timesteps
        try:
            if _HOLDERS.get(self._place) is not self:
                self._held = self._lock()
                _HOLDERS[self._place] = self
            write_exact(self.model, path_of_step(self.folder, self.name, self._saved_at), generators)
        except BaseException:  # learn() ends by it, without a call of _on_training_end
            self._leave()
            raise
        older = [step for step in saved_steps(self.folder, self.name) if step < self._saved_at]
        for step in older[: len(older) + 1 - self.keep]:
            path_of_step(self.folder, self.name, step).unlink(missing_ok=True)

    def _leave(self) -> None:
        """Put back the handlers of signals, unless another callback of a training that goes on needs them."""
        _WATCHING[:] = [each for each in _WATCHING if each is not self and is_running(each.model, "learn")]
        if not _WATCHING:
            _put_back_handlers()


_STOPPED: Final[WeakKeyDictionary[BaseAlgorithm, int]] = WeakKeyDictionary()
"""Models that a signal has stopped inside of a rollout, with the timestep."""
_WATCHING: Final[list[SaveExactly]] = []
_FORMER: Final[dict[int, Any]] = {}
"""The handlers before training, by signal."""


def _note(number: int, frame: FrameType | None) -> None:
    """Let all that watch stop; without any that trains, or at a second signal, do what the signal did before."""
    trains = [each for each in _WATCHING if frame is not None and is_running(each.model, "learn", frame)]
    if not trains or any(each.stopped_by is not None for each in trains):  # no callback hears that learn() has failed
        _put_back_handlers()
        signal.raise_signal(number)
    for each in trains:
        each.stopped_by = number


def _put_back_handlers() -> None:
    for number, former in _FORMER.items():
        if signal.getsignal(number) is _note:
            signal.signal(number, former)
    _FORMER.clear()
    _WATCHING.clear()


def continue_learning(
    model: BaseAlgorithm, callback: MaybeCallback = None, *, total_timesteps: int | None = None, **learn_arguments: Any
) -> BaseAlgorithm:
    """Call ``model.learn()`` so that it ends as the interrupted call would have, schedules included.

    ``learn(remaining, reset_num_timesteps=False)`` alone resets the action noise, and forgets values that were recorded
    for the next row of the log; this restores both. It also puts environments, with the statistics of VecNormalize, and
    random generators back to where the file has them, whatever they did since the load, and the generators again when
    callbacks have begun. What changes the model stays, also noise of a DistributionalPPO's optimizer that
    ``set_random_seed`` seeds. A model that has reached its total is returned unchanged.

    :param model: of :func:`load_exact`, or one whose ``learn()`` ended between two rollouts in this process
    :param callback: as for ``learn()``; callbacks keep their own state, which no file of ours holds
    :param total_timesteps: of the whole run, counted from its beginning; None for the one that it was begun with.
        Schedules go by it, so with another one they do not continue exactly
    :param learn_arguments: the other arguments of ``learn()``, as the run was begun with: ``log_interval``,
        ``tb_log_name``, ``progress_bar``, ``use_masking``
    :raises CallOrderError: ``learn()`` of this model is, or has ended, inside of a rollout, as far as can be seen
    :raises StateError: the model was given environments since the load that the state in the file does not fit
    """
    remaining = (model._total_timesteps if total_timesteps is None else total_timesteps) - model.num_timesteps
    if remaining > 0:
        if is_in_rollout(model):
            words = "learn() of this model ended inside of a rollout, which cannot be continued in its middle"
            raise CallOrderError(f"{words}; continue with load_exact and the newest file of SaveExactly")
        step, state = LOADED.get(model, (None, {}))
        for key in state if step == model.num_timesteps else ():
            training_state(model).parts[str(key)].restore(snapshot(state[key]))  # type: ignore[arg-type]
        given = callback if isinstance(callback, list) else [] if callback is None else [callback]
        callbacks = [each if isinstance(each, BaseCallback) else ConvertCallback(each) for each in given]
        model.learn(remaining, callback=[*callbacks, _PutBack(model)], reset_num_timesteps=False, **learn_arguments)
    return model


class _PutBack(BaseCallback):
    """Restores what ``learn()`` resets when it begins, and the generators, from which other callbacks may draw."""

    def __init__(self, model: BaseAlgorithm) -> None:
        super().__init__()
        self._generators, self._log = capture_generators_of(model), capture_log(model)
        self._noise, self._noise_state = model.action_noise, capture_noise(model.action_noise)

    def _on_training_start(self) -> None:
        if self.model.action_noise is self._noise:  # else learn() has made one of it for each environment
            restore_noise(self._noise, self._noise_state)
        if self._log is not None:
            put_into_log(self.logger, self._log)
        restore_generators_of(self.model, self._generators)

    def _on_step(self) -> bool:
        return True


def path_of_step(folder: Path, name: str, step: int) -> Path:
    """Return where the training is saved at a timestep."""
    return folder / f"{name}_{step}.zip"


def saved_steps(folder: Path, name: str) -> list[int]:
    """Return the timesteps of the files that are there, in ascending order."""
    pattern = re.compile(rf"{re.escape(name)}_(0|[1-9][0-9]*)\.zip")
    files = [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
    found = [pattern.fullmatch(path.name) for path in files]
    return sorted(int(match.group(1)) for match in found if match)


def newest_exact(folder: str | Path, name: str = "exact") -> Path | None:
    """Return the file of the latest timestep that ``SaveExactly(folder, name=name)`` has saved and that is whole.

    A run that is saving may remove the file before you read it; give its SaveExactly ``keep=2`` or more.

    :return: None if there is no file
    :raises CheckpointError: there are files, and not one of them can be loaded
    """
    steps = saved_steps(Path(folder), name)
    while steps:
        paths = [path_of_step(Path(folder), name, step) for step in reversed(steps)]
        if (newest := next(filter(_is_whole, paths), None)) is not None:
            return newest
        before, steps = steps, saved_steps(Path(folder), name)  # a run may have replaced them
        if steps == before:
            words = f"is the newest of {len(paths)} files of this run, all of which fail to load"
            raise CheckpointError(paths[0], f"{words}; restore a copy, or move the files away to begin the run again")
    return None


def _is_whole(path: Path) -> bool:
    """Return whether a file can be read to its end, and is what was written."""
    with suppress(CheckpointError):
        read_model_file(path, require_digest=True)
        return True
    return False
