"""Settings that do nothing while another is off."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from rlcore.errors import SettingError

SWITCHES: Final = {
    "vgs_": "variance_gradient_scaling",
    "kl_penalty_": "kl_penalty_target",
    "ent_coef_plateau_": "ent_coef_boost",
    "return_scale_": "return_scale",
}
"""How settings begin that do nothing while another is off."""


def idle_under(name: str, settings: Any) -> str | None:
    """The switch that is off in ``settings``, so that the setting ``name`` does nothing; None if there is none."""
    for prefix, switch in SWITCHES.items():
        value = getattr(settings, switch)
        if name.startswith(prefix) and name != switch and (value is None or value is False):
            return switch
    return None


def refuse_idle(asked: Iterable[str], settings: Any) -> None:
    """
    :param asked: the settings that somebody asked for; what stands at its default, or comes from a file, may be idle
    :param settings: what has every setting as an attribute
    :raises SettingError: for a setting of something that is switched off
    """
    for name in sorted(asked):
        switch = idle_under(name, settings)
        if switch is not None:
            raise SettingError(
                name,
                f"{name}={getattr(settings, name)!r} and {switch}={getattr(settings, switch)!r} contradict each other: "
                f"it would do nothing; give {switch}, or leave {name} out",
            )
