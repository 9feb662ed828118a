"""Checks of what the constructor takes: numbers, schedules, devices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from rlcore.errors import SettingError

Schedule = Callable[[float], float]


def plain(value: Any) -> Any:
    """NumPy scalars as the Python values they stand for."""
    return value.item() if isinstance(value, np.generic) else value


def check_schedules(settings: Any) -> None:
    """Ask every schedule for its first value.

    :raises SettingError: if one gives no number of at least 0
    """
    for name in ("learning_rate", "clip_range", "clip_range_vf"):
        schedule = getattr(settings, name)
        if callable(schedule):
            check_schedule(name, schedule, 1.0)


def check_schedule(setting: str, schedule: Schedule, remaining: float) -> float:
    """The value of a schedule, which must be a number of at least 0.

    :raises SettingError: naming the setting
    """
    value = plain(schedule(remaining))
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        raise SettingError(
            setting,
            f"{setting} gives {value!r} at remaining progress {remaining:g}, so nothing could be learnt; "
            "a schedule must give a number of at least 0",
        )
    return float(value)


def whole_number(setting: str, value: object) -> int:
    """The value as an int; 1e6 and NumPy's integers count as whole.

    :raises SettingError: for anything else, and below 0
    """
    number = plain(value)
    if isinstance(number, bool) or not isinstance(number, int | float) or number != number // 1 or number < 0:
        raise SettingError(setting, f"{setting}={value!r} is no whole number of at least 0; give one")
    return int(number)


def check_device(device: torch.device | str, setting: str = "device") -> None:
    """
    :param setting: where the device was given, for the error
    :raises SettingError: for a device that torch does not know or this machine does not have
    """
    if device == "auto":
        return
    try:
        wanted = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise SettingError(setting, f"{setting}={device!r} is no device; use 'cpu', 'cuda' or 'auto'") from error
    if wanted.type not in ("cpu", "cuda"):
        raise SettingError(setting, f"{setting}={device!r} is not supported; use 'cpu', 'cuda' or 'auto'")
    present = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted.type == "cuda" and (wanted.index or 0) >= present:
        raise SettingError(
            setting,
            f"{setting}={device!r}, but this machine has {present or 'no'} CUDA device{'s' * (present > 1)} for torch; "
            "use 'cpu' or 'auto'",
        )
