"""Every error that rlcore raises on purpose, with the value, what it breaks and what to do; and how it warns."""

from __future__ import annotations

import copyreg
import difflib
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any

TOP = "the top level"


def shortened(text: str, limit: int) -> str:
    """Return a text of at most ``limit`` characters, without its middle if it is longer."""
    if len(text) <= limit:
        return text
    start = 2 * limit // 3
    return f"{text[:start]} ... {text[start + 5 - limit :]}"


def quoted(text: object, limit: int = 80) -> str:
    """Return ``text`` as printable ASCII of bounded length, for texts that a file supplies."""
    # Cut before escaping too, so that a text of a gigabyte costs no more than a short one.
    escaped = ascii(text[: limit + 1] if isinstance(text, str | bytes) else text)
    return escaped if len(escaped) <= limit else f"{escaped[: limit - 3]}..."


class RLCoreError(Exception):
    """Root of the errors below, so that a caller can catch them together. They can be pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


class SettingError(RLCoreError, ValueError):
    """A value of ``setting``, as the user writes it (``optimizer_kwargs['lr']``), cannot be used."""

    def __init__(self, setting: str, message: str) -> None:
        super().__init__(message)
        self.setting = setting


class UnknownSettingError(SettingError, TypeError):
    """A setting is misspelt or in the wrong place; the message names the right one where there is one."""


OTHER_NAMES = {"use_twin_critics": "n_critics", "vgs_enabled": "variance_gradient_scaling"}


def reject_unknown(given: Iterable[str], where: str, homes: Mapping[str, Sequence[str]]) -> None:
    """Raise UnknownSettingError, with the right place or the nearest name, for the first that does not belong here.

    :param where: the level at which the names are given, a key of ``homes``
    :param homes: for every level, the names that belong to it
    """
    for name in given:
        if name not in homes[where]:
            raise UnknownSettingError(
                name if where == "DistributionalPPO" else f"{where}[{name!r}]",
                f"{where} knows no setting {name!r}, so it would have no effect; {_remedy(name, where, homes)}",
            )


def _remedy(name: str, where: str, homes: Mapping[str, Sequence[str]]) -> str:
    elsewhere = [home for home, names in homes.items() if home != where and name in names]
    if elsewhere:
        return f"{name!r} belongs in {elsewhere[0]}"
    if name in OTHER_NAMES:
        return f"use {OTHER_NAMES[name]}"
    for home in (where, *(home for home in homes if home != where)):
        spelt = {known.lower(): known for known in homes[home]}
        nearest = difflib.get_close_matches(name.lower(), spelt, n=1, cutoff=0.6 if home == where else 0.75)
        if nearest:
            return f"did you mean {spelt[nearest[0]]!r}" + (f" in {home}?" if home != where else "?")
    return f"known here: {', '.join(sorted(homes[where])) or 'none'}"


class NonFiniteError(RLCoreError, ArithmeticError):
    """Training met NaN or infinity; nothing that was learnt has changed."""


class NonFiniteGradientError(NonFiniteError):
    """The gradient of ``parameter`` (its name, or position and shape) holds NaN or infinity; nothing was changed."""

    def __init__(self, parameter: str, message: str) -> None:
        super().__init__(message)
        self.parameter = parameter


class NonFiniteReturnError(NonFiniteError):
    """A rollout has returns that are NaN or infinite; nothing was changed."""


class NonFiniteObservationError(NonFiniteError):
    """The ``environments``, counted from 0, returned NaN or infinity; nothing that was learnt has changed."""

    def __init__(self, environments: tuple[int, ...], message: str) -> None:
        super().__init__(message)
        self.environments = environments


class CallOrderError(RLCoreError, RuntimeError):
    """A call came before the one that it builds on; nothing was changed."""


class StateError(RLCoreError, ValueError):
    """A state does not fit the object it belongs to, or is to be restored into; the object is unchanged."""


class CheckpointError(RLCoreError, ValueError):
    """A file (None for a file object) cannot be read as a checkpoint or not be written; at most 500 characters."""

    def __init__(self, path: str | PathLike[str] | None, reason: str) -> None:
        name = shortened(str(path), 200) if path is not None else "file object"
        super().__init__(f"{name}: {shortened(reason, 498 - len(name))}")
        self.path = path
        self.reason = reason


class WorkerError(RLCoreError, RuntimeError):
    """A task cannot be done in another process: its workers died again and again, or what it gives cannot be sent."""


class ResumeWarning(UserWarning):
    """Part of a training state is missing: it starts fresh, or is kept though the rest was replaced."""


class ConfigFileError(RLCoreError, ValueError):
    """A configuration file cannot be read; ``line`` says where in it, counted from 1, if that is known."""

    def __init__(self, path: str | PathLike[str], line: int | None, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if line is None else f"{path}, line {line}: {reason}")
        self.path = path
        self.line = line
        self.reason = reason


BENEATH = frozenset({"rlcore", "stable_baselines3", "sb3_contrib", "torch", "contextlib"})
"""Packages whose lines a caller can do nothing about: this one, and those through which it is called back."""


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn of ``message`` at the innermost line that belongs to none of the packages :data:`BENEATH`.

    :raises Warning: ``category``, where a filter makes an error of it
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in BENEATH:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
