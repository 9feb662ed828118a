"""From what a user gives to the settings that train: every level is checked, and what is given twice is folded."""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import torch
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, FlattenExtractor

from rlcore.errors import SettingError
from rlcore.ppo import settings as tables
from rlcore.ppo.arguments import Schedule, plain
from rlcore.ppo.optimizers import default_learning_rate, find_optimizer, optimizer_options
from rlcore.ppo.settings import (
    LstmSettings,
    NetArch,
    PolicySettings,
    PPOSettings,
    Table,
    clear_errors,
    homes,
)
from rlcore.ppo.values import DEFAULT_NUM_ATOMS, OF_CATEGORICAL, OF_QUANTILE


def resolve_settings(
    given: Mapping[str, Any],
    default_extractor: type[BaseFeaturesExtractor] = FlattenExtractor,
    asked: Collection[str] | None = None,
) -> PPOSettings:
    """Check every level and fold what may be said in two places into one.

    ``optimizer_class`` and ``optimizer_kwargs`` may stand in ``policy_kwargs`` as Stable-Baselines3 has them, and
    ``lr`` in ``optimizer_kwargs``; the result has them at the top and in ``learning_rate``, and ``ent_coef_initial`` in
    ``ent_coef``.

    :param default_extractor: the policy's features extractor, for ``features_extractor_kwargs`` without a class
    :param asked: settings that must have an effect; None for all that differ from their default
    :raises UnknownSettingError: for a misspelt or misplaced setting at any level, with the right one
    :raises SettingError: for a value that cannot be used, and for one setting given twice with different values
    """
    settings = PPOSettings(**given)
    policy_kwargs = dict(settings.policy_kwargs or {})
    lifted = _lift_optimizer(settings, policy_kwargs, asked or ())
    _check_policy({"features_extractor_class": default_extractor, **policy_kwargs})
    options = dict(lifted.optimizer_kwargs or {})
    optimizer_class = find_optimizer(lifted.optimizer_class)
    _check_optimizer(optimizer_class, options)
    learning_rate = resolve_learning_rate(lifted.learning_rate, options, default_learning_rate(optimizer_class))
    options.pop("lr", None)
    check_kl_penalty(lifted)
    folded: dict[str, Any] = {
        "policy_kwargs": policy_kwargs,
        "optimizer_kwargs": options,
        "learning_rate": learning_rate,
    }
    folded |= {"ent_coef": resolve_entropy_start(lifted), "ent_coef_initial": None}
    resolved = lifted.model_copy(update={**folded, **resolve_values(lifted)})
    refuse_idle(_changed(settings) if asked is None else asked, resolved)
    return resolved


def _changed(settings: PPOSettings) -> list[str]:
    """The settings that differ from their default."""
    return [name for name, field in PPOSettings.model_fields.items() if getattr(settings, name) != field.default]


def resolve_learning_rate(
    learning_rate: float | Schedule | None, optimizer_kwargs: Mapping[str, Any], default: float
) -> float | Schedule:
    """What trains: ``optimizer_kwargs['lr']`` where it is given, else ``learning_rate``, else ``default``.

    :raises SettingError: if both are given and differ
    """
    if "lr" not in optimizer_kwargs:
        return default if learning_rate is None else learning_rate
    lr = plain(optimizer_kwargs["lr"])
    if not isinstance(lr, float | int) or isinstance(lr, bool) or not math.isfinite(lr) or lr <= 0:
        raise SettingError(
            "optimizer_kwargs['lr']",
            f"optimizer_kwargs['lr']={lr!r} is no positive number, so no step could be taken; "
            "give a number here or a schedule as learning_rate",
        )
    if learning_rate is not None and learning_rate != lr:
        raise SettingError(
            "optimizer_kwargs['lr']",
            f"learning_rate={learning_rate!r} and optimizer_kwargs['lr']={lr!r} contradict each other; "
            "give one of them",
        )
    return float(lr)


def _lift_optimizer(settings: PPOSettings, policy_kwargs: dict[str, Any], asked: Collection[str]) -> PPOSettings:
    """Move the optimizer's settings out of ``policy_kwargs``, where Stable-Baselines3 users write them.

    A keyword at its default does not count as given unless it is in ``asked``: a constructor cannot tell.
    """
    lifted: dict[str, Any] = {}
    for name in ("optimizer_class", "optimizer_kwargs"):
        if name not in policy_kwargs:
            continue
        value = policy_kwargs.pop(name)
        above = getattr(settings, name)
        if above != value and (name in asked or above != PPOSettings.model_fields[name].default):
            raise SettingError(
                f"policy_kwargs[{name!r}]",
                f"{name}={above!r} and policy_kwargs[{name!r}]={value!r} contradict each other; give one of them",
            )
        lifted[name] = value
    if not lifted:
        return settings
    given = {name: getattr(settings, name) for name in settings.model_fields_set}
    return PPOSettings(**{**given, **lifted, "policy_kwargs": policy_kwargs})


def _check(table: type[Table], given: Mapping[str, Any], where: str) -> Any:
    """Validate one level inside the settings."""
    tables.reject_unknown(given, where, homes({}))
    with clear_errors(table, given, where):
        return table(**given)


def _check_policy(policy_kwargs: Mapping[str, Any]) -> None:
    for nested, table in (("lstm_kwargs", LstmSettings), ("net_arch", NetArch)):
        if isinstance(policy_kwargs.get(nested), Mapping):
            _check(table, policy_kwargs[nested], f"policy_kwargs[{nested!r}]")
    nested_names = [n for n in ("lstm_kwargs", "net_arch") if isinstance(policy_kwargs.get(n), Mapping)]
    flat = {name: value for name, value in policy_kwargs.items() if name not in nested_names}
    checked: PolicySettings = _check(PolicySettings, flat, "policy_kwargs")
    if checked.shared_lstm and checked.enable_critic_lstm:
        raise SettingError(
            "policy_kwargs['shared_lstm']",
            "policy_kwargs['shared_lstm']=True and policy_kwargs['enable_critic_lstm']=True contradict each other; "
            "set enable_critic_lstm=False to let the critics use the actor's LSTM",
        )
    if checked.shared_lstm and not checked.share_features_extractor:
        raise SettingError(
            "policy_kwargs['shared_lstm']",
            "policy_kwargs['shared_lstm']=True and policy_kwargs['share_features_extractor']=False contradict each "
            "other: one LSTM reads one set of features; leave one of them at its default",
        )
    extractor_options = optimizer_options(checked.features_extractor_class)  # type: ignore[arg-type]
    extractor_options.pop("observation_space", None)
    where = "policy_kwargs['features_extractor_kwargs']"
    tables.reject_unknown(checked.features_extractor_kwargs, where, {where: list(extractor_options)})


def _check_optimizer(optimizer_class: type[torch.optim.Optimizer], options: Mapping[str, Any]) -> None:
    known = optimizer_options(optimizer_class)
    tables.reject_unknown(options, "optimizer_kwargs", {**homes({}), "optimizer_kwargs": list(known)})
    for name, value in options.items():
        setting = f"optimizer_kwargs[{name!r}]"
        if _is_flag(optimizer_class, name, known[name]) and not isinstance(tables.flag_value(value), bool | None):
            raise SettingError(
                setting, f"{setting}={value!r} is neither True nor False, and any text would count as True; give a bool"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise SettingError(setting, f"{setting}={value!r} would make every parameter NaN; give a finite number")


def _is_flag(optimizer_class: type[torch.optim.Optimizer], name: str, default: object) -> bool:
    """Whether an option is a bool, by its default or, where that is None, by its annotation."""
    annotation = inspect.signature(optimizer_class).parameters[name].annotation
    return isinstance(default, bool) or str(annotation).replace(" ", "") in ("bool|None", "typing.Optional[bool]")


def resolve_values(settings: PPOSettings) -> dict[str, Any]:
    """What follows for the settings of the value distribution and the return scale; changes nothing.

    :return: settings by name that take another value than is written there
    :raises SettingError: if two of them contradict each other, or a range is missing
    """
    if settings.value_distribution == "quantile":
        for name in OF_CATEGORICAL:
            if getattr(settings, name) is not None:
                raise _contradiction(settings, name, "quantiles have no atoms and no range", "categorical")
        return {"return_scale": "zero_lag"} if settings.return_scale == "auto" else {}
    for name in OF_QUANTILE:
        if getattr(settings, name) != type(settings).model_fields[name].default:
            raise _contradiction(settings, name, "atoms are no quantiles", "quantile")
    if settings.return_scale not in (None, "auto"):
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


def resolve_entropy_start(settings: PPOSettings) -> float:
    """The coefficient that training starts from: ``ent_coef`` or ``ent_coef_initial``, which mean the same, else 0.

    :raises SettingError: if both are given and differ, or if a final value has no start
    """
    start, initial = settings.ent_coef, settings.ent_coef_initial
    if start is not None and initial is not None and start != initial:
        raise SettingError(
            "ent_coef_initial",
            f"ent_coef={start!r} and ent_coef_initial={initial!r} contradict each other; give one of them",
        )
    given = initial if start is None else start
    if given is None and settings.ent_coef_final is not None:
        raise SettingError(
            "ent_coef_final",
            f"ent_coef_final={settings.ent_coef_final!r} is where a schedule ends, and none begins; "
            "give ent_coef_initial as well, or the constant ent_coef instead",
        )
    return 0.0 if given is None else given


def check_kl_penalty(settings: PPOSettings) -> None:
    """
    :raises SettingError: if the bounds do not contain the coefficient, or ``target_kl`` stops every update before the
        divergence could reach the target of the penalty
    """
    low, start, high = settings.kl_penalty_min_coef, settings.kl_penalty_coef, settings.kl_penalty_max_coef
    if not low <= start <= high:
        raise SettingError(
            "kl_penalty_coef",
            f"kl_penalty_coef={start!r} does not lie between kl_penalty_min_coef={low!r} and "
            f"kl_penalty_max_coef={high!r}, so it could never hold; give a start within the bounds",
        )
    target, stop = settings.kl_penalty_target, settings.target_kl
    if target is not None and stop is not None and stop <= target:
        raise SettingError(
            "kl_penalty_target",
            f"target_kl={stop!r} stops an update before its divergence could grow beyond "
            f"kl_penalty_target={target!r}, so the penalty could only fall; give a larger target_kl, or one of the two",
        )


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
