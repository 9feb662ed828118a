"""Checks of single arguments: names, numbers, schedules, devices."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rlcore.errors import SettingError, UnknownSettingError

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


OTHER_NAMES = {
    "use_twin_critics": "n_critics=2",
    "twin_critics": "n_critics=2",
    "vgs_enabled": "variance_gradient_scaling",
    "use_vgs": "variance_gradient_scaling",
    "vgs_warmup": "vgs_warmup_steps",
    "critic_lr": "critic_lr_multiplier",
    "vgs_floor": "vgs_min_scaling_factor",
    "vgs_cap": "vgs_max_normalized_variance",
    "entropy_coef": "ent_coef",
    "value_coef": "vf_coef",
    "env": "the section environment, or env=... where the model is made",
    "device": "--device of the command, or device=... where the model is made",
    "total_timesteps": "learn(total_timesteps=...)",
}


def reject_unknown(given: Iterable[str], where: str, homes: Mapping[str, Sequence[str]]) -> None:
    """Refuse the first name that does not belong ``where`` it was written.

    :param given: the names written there
    :param where: the level, a key of ``homes``
    :param homes: for every level, the names that belong to it
    :raises UnknownSettingError: naming the right place or the nearest name
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
