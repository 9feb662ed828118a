"""What the settings of the value distribution say together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlcore.errors import SettingError

if TYPE_CHECKING:
    from rlcore.ppo.config import PPOSettings

DEFAULT_NUM_ATOMS = 51
OF_CATEGORICAL = ("v_min", "v_max", "num_atoms")
OF_QUANTILE = ("n_quantiles", "huber_kappa")


def resolve_values(settings: PPOSettings) -> dict[str, Any]:
    """What follows for the settings of the value distribution and the return scale; changes nothing.

    :return: settings by name that take another value than is written there
    :raises SettingError: if two of them contradict each other, or a range is missing
    """
    if settings.value_distribution == "quantile":
        for name in OF_CATEGORICAL:
            if getattr(settings, name) is not None:
                raise _contradiction(settings, name, "quantiles have no atoms and no range", "categorical")
        return {}
    for name in OF_QUANTILE:
        if getattr(settings, name) != type(settings).model_fields[name].default:
            raise _contradiction(settings, name, "atoms are no quantiles", "quantile")
    if settings.return_scale is not None and "return_scale" in settings.model_fields_set:
        raise SettingError(
            "return_scale",
            f"return_scale={settings.return_scale!r} and value_distribution='categorical' contradict each other: atoms "
            "lie at fixed returns, and no change of the heads would preserve the values when the scale moves; "
            "leave return_scale out, or set value_distribution='quantile'",
        )
    _check_range(settings)
    atoms = DEFAULT_NUM_ATOMS if settings.num_atoms is None else settings.num_atoms
    return {"num_atoms": atoms, "return_scale": None}


def _check_range(settings: PPOSettings) -> None:
    for name in ("v_min", "v_max"):
        if getattr(settings, name) is None:
            raise SettingError(
                name,
                f"value_distribution='categorical' needs v_min and v_max, and {name} is not given: returns outside are "
                "cut off, so there is no honest default; give the smallest and the largest return that can occur",
            )
    assert settings.v_min is not None
    assert settings.v_max is not None
    if settings.v_min >= settings.v_max:
        raise SettingError(
            "v_min",
            f"v_min={settings.v_min!r} and v_max={settings.v_max!r} leave no room for atoms between them; "
            "v_min must be the smaller",
        )


def _contradiction(settings: PPOSettings, name: str, reason: str, other: str) -> SettingError:
    return SettingError(
        name,
        f"{name}={getattr(settings, name)!r} and value_distribution={settings.value_distribution!r} contradict each "
        f"other: {reason}; leave {name} out, or set value_distribution={other!r}",
    )
