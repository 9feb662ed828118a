"""Settings of the UPGD optimizers: what is accepted, and what is said of the rest."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor

from rlcore.errors import SettingError

_FLOAT32 = torch.finfo(torch.float32)


@dataclass(frozen=True)
class Rule:
    """What one setting may be.

    :param consequence: what an unusable value does
    :param wanted: what to give instead
    """

    accepts: Callable[[object], bool]
    default: object
    consequence: str
    wanted: str


def _is_real(value: object) -> TypeGuard[float]:
    return not isinstance(value, bool) and isinstance(value, numbers.Real)


def _is_number(value: object, low: float = 0.0, high: float = _FLOAT32.max) -> bool:
    return _is_real(value) and value >= low and value <= high


def _is_decay(value: object) -> bool:
    return _is_number(value, high=1.0) and value != 1.0


def _is_pair_of_decays(value: object) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == 2 and all(_is_decay(decay) for decay in value)


def _is_divisor(value: object) -> bool:
    return _is_number(value, low=_FLOAT32.tiny)


def _is_seed(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, numbers.Integral) and 0 <= int(value) < 2**64


def _is_switch(value: object) -> bool:
    return isinstance(value, bool)


_NUMBER = "a finite number of at least 0"
_DECAY = "a number in [0, 1)"
_NO_AVERAGE = "the average it decays would grow without bound, stand still or be undefined"

RULES: dict[str, Rule] = {
    "lr": Rule(_is_number, 1e-5, "the step would climb the loss or destroy the parameters", _NUMBER),
    "weight_decay": Rule(_is_number, 1e-3, "the weights would grow without bound or be undefined", _NUMBER),
    "beta_utility": Rule(_is_decay, 0.999, _NO_AVERAGE, _DECAY),
    "sigma": Rule(_is_number, 1e-3, "the noise would have no standard deviation", f"{_NUMBER}; 0 means no noise"),
    "adaptive_noise": Rule(_is_switch, False, "any text or number that is not 0 would switch it on", "True or False"),
    "noise_beta": Rule(_is_decay, 0.999, _NO_AVERAGE, _DECAY),
    "min_noise_std": Rule(_is_number, 1e-6, "the noise would have no standard deviation", _NUMBER),
    "seed": Rule(_is_seed, None, "the noise generator takes 64 bits", "a whole number in [0, 2**64)"),
    "betas": Rule(_is_pair_of_decays, (0.9, 0.999), _NO_AVERAGE, "two numbers in [0, 1)"),
    "eps": Rule(
        _is_divisor, 1e-8, "a gradient of 0 would be divided by 0", f"a number of at least {_FLOAT32.tiny:.2g}"
    ),
}

SHARED = ("lr", "weight_decay", "beta_utility", "sigma", "adaptive_noise", "noise_beta", "min_noise_std", "seed")


def check(name: str, where: str, value: object) -> None:
    """Accept a value of the setting ``name``, which stands at ``where``.

    :raises SettingError: with the value, what it breaks and what to give
    """
    rule = RULES[name]
    if not rule.accepts(value):
        raise SettingError(
            where, f"{where}={value!r}: {rule.consequence}. Give {rule.wanted} (default {rule.default})."
        )


def check_group(group: dict[str, Any], names: Iterable[str], where: str) -> None:
    """Accept those settings of a parameter group that it holds.

    :raises SettingError: for the first that is unusable
    """
    for name in names:
        if name in group:
            check(name, f"{where}[{name!r}]", group[name])


def plain_group(group: dict[str, Any], names: tuple[str, ...], where: str) -> dict[str, Any]:
    """A copy of a parameter group with its settings checked and made plain; other keys are kept as they are.

    :raises SettingError: for the first setting that is unusable
    """
    check_group(group, names, where)
    return {key: plain(key, value) if key in names else value for key, value in group.items()}


def plain(name: str, value: object) -> object:
    """A checked value of the setting ``name`` as plain Python, so that a saved state holds no foreign number types."""
    if isinstance(value, (tuple, list)):
        return tuple(plain(name, item) for item in value)
    if name == "seed":
        return int(value)  # type: ignore[call-overload]
    return float(value) if _is_real(value) else value


def check_parameters(parameters: Iterable[object], where: str) -> None:
    """Accept real floating-point parameters, alone or as pairs of name and parameter; leave other types to torch.

    :raises SettingError: for the first that is complex or integer
    """
    for index, entry in enumerate(parameters):
        parameter = entry[1] if isinstance(entry, tuple) and len(entry) == 2 else entry
        if isinstance(parameter, Tensor) and not parameter.is_floating_point():
            raise SettingError(
                f"{where}['params']",
                f"{where}['params'][{index}] has the dtype {parameter.dtype}: utilities are ordered, so only real "
                "floating-point parameters can be optimized. Pass torch.view_as_real of a complex one.",
            )
