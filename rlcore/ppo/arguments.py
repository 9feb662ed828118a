"""From the arguments that a user gives to the settings that train; checks of schedules, whole numbers and devices."""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection, Mapping
from typing import Any

import torch
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, FlattenExtractor

from rlcore.errors import SettingError
from rlcore.ppo import settings as tables
from rlcore.ppo.optimizers import default_learning_rate, find_optimizer, optimizer_options
from rlcore.ppo.settings import (
    MARKS,
    LstmSettings,
    NetArch,
    PolicySettings,
    PPOSettings,
    Schedule,
    Table,
    idle_under,
    plain,
)


def resolve_settings(
    given: Mapping[str, Any],
    default_extractor: type[BaseFeaturesExtractor] = FlattenExtractor,
    asked: Collection[str] | None = None,
) -> PPOSettings:
    """Check every level, and write each setting in one place.

    ``optimizer_class`` and ``optimizer_kwargs`` may be in ``policy_kwargs``, as in Stable-Baselines3, and ``lr`` in
    ``optimizer_kwargs``. The result has them at the top and in ``learning_rate``, and ``ent_coef_initial`` in
    ``ent_coef``.

    :param default_extractor: the policy's features extractor, for ``features_extractor_kwargs`` without a class
    :param asked: settings that must have an effect; None for all that differ from their default
    :raises UnknownSettingError: for a misspelt or misplaced setting at any level, with the right one
    :raises SettingError: for a value that cannot be used, and for settings that contradict each other
    """
    settings = PPOSettings(**given)
    network, lifted = dict(settings.policy_kwargs or {}), {}
    for name in {"optimizer_class", "optimizer_kwargs"} & network.keys():
        lifted[name] = network.pop(name)
        above = getattr(settings, name)
        if above != lifted[name] and (name in (asked or ()) or above != PPOSettings.model_fields[name].default):
            raise contradiction(f"policy_kwargs[{name!r}]", lifted[name], name, above, "give one of them")
    if lifted:
        given = {name: getattr(settings, name) for name in settings.model_fields_set}
        settings = PPOSettings(**{**given, **lifted, "policy_kwargs": network})
    _check_network({"features_extractor_class": default_extractor, **network})
    check_optimizer(find_optimizer(settings.optimizer_class), settings.optimizer_kwargs or {})
    resolved = resolve_together(settings)
    changed = [name for name, field in PPOSettings.model_fields.items() if getattr(settings, name) != field.default]
    for name in sorted(changed if asked is None else asked):
        switch = idle_under(name, resolved)
        if switch is not None:
            remedy = f"it would do nothing; give {switch}, or leave {name} out"
            raise contradiction(name, getattr(resolved, name), switch, getattr(resolved, switch), remedy)
    return resolved


def resolve_together(settings: PPOSettings) -> PPOSettings:
    """Fill in what follows from several settings that have been checked one by one.

    :raises SettingError: if they contradict each other
    """
    options = dict(settings.optimizer_kwargs or {})
    rate, start, initial = settings.learning_rate, settings.ent_coef, settings.ent_coef_initial
    if rate is None or "lr" in options:
        rate = resolve_learning_rate(rate, options, default_learning_rate(find_optimizer(settings.optimizer_class)))
    if start is not None and initial is not None and start != initial:
        raise contradiction("ent_coef_initial", initial, "ent_coef", start, "give one of them")
    start = initial if start is None else start
    if start is None and settings.ent_coef_final is not None:
        raise SettingError(
            "ent_coef_final",
            f"ent_coef_final={settings.ent_coef_final!r} is where a schedule ends, and none begins; "
            "give ent_coef_initial as well, or the constant ent_coef instead",
        )
    low, coefficient, high = settings.kl_penalty_min_coef, settings.kl_penalty_coef, settings.kl_penalty_max_coef
    if not low <= coefficient <= high:
        raise SettingError(
            "kl_penalty_coef",
            f"kl_penalty_coef={coefficient!r} does not lie between kl_penalty_min_coef={low!r} and "
            f"kl_penalty_max_coef={high!r}; give a start within the bounds",
        )
    target, stop = settings.kl_penalty_target, settings.target_kl
    if target is not None and stop is not None and stop <= target:
        raise SettingError(
            "kl_penalty_target",
            f"target_kl={stop!r} stops an update before its divergence exceeds kl_penalty_target={target!r}, so the "
            "penalty could only fall; give a larger target_kl, or one of the two",
        )
    options.pop("lr", None)
    update = {
        "policy_kwargs": dict(settings.policy_kwargs or {}),
        "optimizer_kwargs": options,
        "learning_rate": rate,
        "ent_coef": 0.0 if start is None else start,
        "ent_coef_initial": None,
    }
    return settings.model_copy(update={**update, **_resolve_values(settings)})


def resolve_learning_rate(
    learning_rate: float | Schedule | None, optimizer_kwargs: Mapping[str, Any], default: float
) -> float | Schedule:
    """The rate that trains: ``optimizer_kwargs['lr']`` where it is given, else ``learning_rate``, else ``default``.

    :raises SettingError: if both are given and differ
    """
    if "lr" not in optimizer_kwargs:
        return default if learning_rate is None else learning_rate
    lr = plain(optimizer_kwargs["lr"])
    if not isinstance(lr, float | int) or isinstance(lr, bool) or not math.isfinite(lr) or lr <= 0:
        raise SettingError(
            "optimizer_kwargs['lr']",
            f"optimizer_kwargs['lr']={lr!r} is no positive number; give a number here or a schedule as learning_rate",
        )
    if learning_rate is not None and learning_rate != lr:
        raise contradiction("optimizer_kwargs['lr']", lr, "learning_rate", learning_rate, "give one of them")
    return float(lr)


def contradiction(name: str, value: object, other: str, value_of_other: object, remedy: str) -> SettingError:
    """The error about two settings that exclude each other; its ``setting`` is ``name``."""
    return SettingError(name, f"{name}={value!r} and {other}={value_of_other!r} contradict each other: {remedy}")


def _resolve_values(settings: PPOSettings) -> dict[str, Any]:
    kind, scale = settings.value_distribution, settings.return_scale
    for name, marks in MARKS.items():
        value = getattr(settings, name)
        other = marks["part_of"]
        if other in {"quantile", "categorical"} - {kind} and value != PPOSettings.model_fields[name].default:
            remedy = f"only {other} values have {name}; leave it out, or set value_distribution={other!r}"
            raise contradiction(name, value, "value_distribution", kind, remedy)
    if kind == "quantile":
        return {"return_scale": "zero_lag"} if scale == "auto" else {}
    if scale not in (None, "auto"):
        remedy = "atoms lie at fixed returns; leave return_scale out, or set value_distribution='quantile'"
        raise contradiction("return_scale", scale, "value_distribution", kind, remedy)
    low, high = settings.v_min, settings.v_max
    if low is None or high is None:
        name = "v_min" if low is None else "v_max"
        raise SettingError(
            name,
            f"value_distribution='categorical' needs v_min and v_max, and {name} is not given: returns outside are cut "
            "off; give the smallest and the largest return that can occur",
        )
    if low >= high:
        raise SettingError("v_min", f"v_min={low!r} and v_max={high!r} leave no range for atoms; give a smaller v_min")
    return {"num_atoms": 51 if settings.num_atoms is None else settings.num_atoms, "return_scale": None}


def _check_network(policy_kwargs: Mapping[str, Any]) -> None:
    nested: dict[str, type[Table]] = {"lstm_kwargs": LstmSettings, "net_arch": NetArch}
    flat = dict(policy_kwargs)
    for name, table in nested.items():
        if isinstance(flat.get(name), Mapping):
            table.checked(flat.pop(name), f"policy_kwargs[{name!r}]")
    network, shared = PolicySettings.checked(flat, "policy_kwargs"), "policy_kwargs['shared_lstm']"
    if network.shared_lstm and network.enable_critic_lstm:
        remedy = "set enable_critic_lstm=False to let the critics use the actor's LSTM"
        raise contradiction(shared, True, "policy_kwargs['enable_critic_lstm']", True, remedy)
    if network.shared_lstm and not network.share_features_extractor:
        remedy = "one LSTM reads one set of features; leave one of them at its default"
        raise contradiction(shared, True, "policy_kwargs['share_features_extractor']", False, remedy)
    known = inspect.signature(network.features_extractor_class).parameters
    where = "policy_kwargs['features_extractor_kwargs']"
    takes = [name for name, each in known.items() if name != "observation_space" and each.kind is not each.VAR_KEYWORD]
    tables.reject_unknown(network.features_extractor_kwargs, where, {where: takes})


def check_optimizer(optimizer_class: type[torch.optim.Optimizer], options: Mapping[str, Any]) -> None:
    """
    :raises SettingError: for an option that the optimizer lacks, a flag that is no bool, and NaN or infinity
    """
    known = optimizer_options(optimizer_class)
    tables.reject_unknown(options, "optimizer_kwargs", {**tables.homes({}), "optimizer_kwargs": list(known)})
    parameters = inspect.signature(optimizer_class).parameters
    for name, value in options.items():
        setting = f"optimizer_kwargs[{name!r}]"
        is_flag = isinstance(known[name], bool) or "bool" in str(parameters[name].annotation).replace(" ", "")
        if is_flag and not isinstance(tables.flag_value(value), bool | None):
            raise SettingError(setting, f"{setting}={value!r} is neither True nor False; give a bool")
        if isinstance(value, float) and not math.isfinite(value):
            raise SettingError(setting, f"{setting}={value!r} would make every parameter NaN; give a finite number")


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
