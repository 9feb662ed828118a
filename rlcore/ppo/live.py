"""Change settings of a model that exists, as exploring does in population based training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from stable_baselines3.common.utils import FloatSchedule
from torch import nn

from rlcore.errors import ResumeWarning, SettingError, reject_unknown
from rlcore.ppo import construction
from rlcore.ppo.arguments import check_optimizer, check_schedule, resolve_together
from rlcore.ppo.configured import ConfiguredPPO
from rlcore.ppo.optimizers import (
    default_learning_rate,
    find_optimizer,
    make_optimizer,
    optimizer_options,
)
from rlcore.ppo.policy import set_learning_rate
from rlcore.ppo.settings import LIVE, MARKS, SCALER, PPOSettings, idle_under, part_of
from rlcore.state.optimizer_state import missing_moments
from rlcore.types import StateDict
from rlcore.warn import warn_caller

SCHEDULES = ("learning_rate", "clip_range", "clip_range_vf")
RATES = {"learning_rate", "critic_lr_multiplier", "optimizer_kwargs"}
PENALTY_SETTINGS, SCALER_SETTINGS = part_of("kl_penalty_target"), part_of(SCALER)


@dataclass(frozen=True)
class SettingsChange:
    """A change that has been checked: applying it to the model that it was planned for cannot fail.

    :param settings: all settings of the model after the change
    :param names: the settings that change
    :param optimizer_options: every option of the optimizer's groups but ``lr`` and ``seed``; empty if none changes
    """

    settings: PPOSettings
    names: frozenset[str]
    optimizer_options: Mapping[str, Any]

    def warn_of_losses(self, model: ConfiguredPPO, state: Mapping[str, Any]) -> None:
        """Warn of moments and statistics that cannot go on and start fresh.

        :param state: parts of a training state by key, of the model or about to be restored into it; a part that is
            missing or damaged is ignored
        :raises ResumeWarning: where a filter makes an error of it
        """
        moments, statistics = state.get("policy.optimizer"), state.get("vgs_state")
        if "optimizer_kwargs" in self.names and isinstance(moments, Mapping):
            missing = missing_moments(moments.get("state"), model.policy.optimizer, self.optimizer_options)
            if missing:
                kwargs = self.settings.optimizer_kwargs
                words = f"the optimizer has no {', '.join(missing)}, which optimizer_kwargs={kwargs!r} needs"
                warn_caller(f"{words}: it starts fresh", ResumeWarning)
        estimator = self.settings.vgs_estimator
        if isinstance(statistics, Mapping) and statistics.get("estimator") == model.vgs_estimator != estimator:
            words = f"vgs_state: the gradient statistics of {statistics.get('step_count')} steps start fresh"
            if statistics.get("step_count") != 0:
                warn_caller(f"{words}, as vgs_estimator={estimator!r} measures something else", ResumeWarning)

    def apply(self, model: ConfiguredPPO) -> None:
        """Write the settings to everything that holds a copy, without a warning."""
        restarts_penalty = model.kl_penalty_coef != self.settings.kl_penalty_coef
        values = vars(model)
        for name in self.names:
            values[name] = getattr(self.settings, name)
            if name in ("clip_range", "clip_range_vf") and values[name] is not None:
                values[name] = FloatSchedule(values[name])
        model.rollout_buffer.gamma, model.rollout_buffer.gae_lambda = model.gamma, model.gae_lambda
        if "optimizer_kwargs" in self.names:
            _apply_optimizer_options(model, self.optimizer_options)
        if self.names & RATES:
            apply_learning_rate(model)
        if restarts_penalty:
            model.kl_penalty.restart()
        if self.names & PENALTY_SETTINGS:
            model.kl_penalty.keep_within_bounds()
        if "huber_kappa" in self.names:
            model.policy.values = construction.make_values(model)
        if self.names & SCALER_SETTINGS:
            _apply_scaler_settings(model)


def set_hyperparameters(model: ConfiguredPPO, hyperparams: Mapping[str, Any]) -> None:
    """Change settings of a live model; weights, moments, statistics and progress stay.

    The change reaches everything that holds a copy: schedules, every group of the optimizer, the rollout buffer, the
    scaler, and what ``model.save()`` writes. The settings of an environment (the discount by which VecNormalize scales
    rewards) stay.

    :param hyperparams: settings by name, of :class:`rlcore.ppo.settings.PPOSettings` or of the model's optimizer
        (``sigma``, ``weight_decay``, ``lr``)
    :raises UnknownSettingError: for a name that the model does not know, with the nearest; nothing is changed
    :raises SettingError: for a value that cannot be used, and for a setting that needs another network, buffer or
        optimizer; nothing is changed
    :raises ResumeWarning: where a filter makes an error of the warning that moments or statistics start fresh; nothing
        is changed
    """
    change = plan_change(model, hyperparams)
    if change.names & {"optimizer_kwargs", "vgs_estimator"}:
        parts = model._training_state().parts
        change.warn_of_losses(model, {key: parts[key].capture() for key in ("policy.optimizer", "vgs_state")})
    change.apply(model)


def assign(model: ConfiguredPPO, name: str, value: Any) -> None:
    """Change the setting that a user assigns to as an attribute, which must have an effect.

    :raises SettingError: as :func:`set_hyperparameters`, and for a setting of something that is switched off
    """
    switch = idle_under(name, model)
    if switch is not None:
        raise SettingError(
            name, f"{name}={value!r} would do nothing, as {switch}={getattr(model, switch)!r}; give {switch} first"
        )
    set_hyperparameters(model, {name: value})


def plan_change(model: ConfiguredPPO, hyperparams: Mapping[str, Any]) -> SettingsChange:
    """Check a change without making it; raises as :func:`set_hyperparameters`."""
    return plan_settings(model, hyperparams, model._current_progress_remaining)


def plan_settings(present: Any, hyperparams: Mapping[str, Any], remaining: float = 1.0) -> SettingsChange:
    """Check a change of settings without a model.

    :param present: has every setting as an attribute
    :param remaining: remaining progress at which changed schedules are asked for their value
    """
    changes = _placed(hyperparams, present)
    merged = dict(changes)
    for name in MARKS.keys() - changes.keys():
        merged[name] = getattr(present, name)
    settings = resolve_together(PPOSettings(**merged))
    for name in SCHEDULES:
        if name in changes and callable(getattr(settings, name)):
            for progress in (1.0, remaining):
                check_schedule(name, getattr(settings, name), progress)
    options = _optimizer_options(settings) if "optimizer_kwargs" in changes else {}
    return SettingsChange(settings, frozenset(changes), options)


def _placed(hyperparams: Mapping[str, Any], present: Any) -> dict[str, Any]:
    """The changes by top-level setting: options of the optimizer belong in ``optimizer_kwargs``."""
    changes: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, value in hyperparams.items():
        (changes if name in MARKS else options)[name] = value
    given = changes.get("optimizer_kwargs", present.optimizer_kwargs)
    if options:
        known = optimizer_options(find_optimizer(present.optimizer_class)).keys() - {"seed"}
        reject_unknown(options, "DistributionalPPO", {"DistributionalPPO": [*LIVE, *known]})
    if options and isinstance(given, Mapping):  # any other value is refused as optimizer_kwargs
        changes["optimizer_kwargs"] = {**given, **options}
    for name, value in changes.items():
        if name not in LIVE:
            raise SettingError(
                name,
                f"{name}={value!r} cannot change in a model that exists: {MARKS[name]['why']}; build another model "
                "with it",
            )
    if changes.get("ent_coef_initial") is not None:
        changes.setdefault("ent_coef", None)
    given = changes.get("optimizer_kwargs")
    if isinstance(given, Mapping):
        changes["optimizer_kwargs"] = _with_present_seed(given, present.optimizer_kwargs or {})
        if "lr" in given:
            changes.setdefault("learning_rate", None)
    return changes


def _with_present_seed(given: Mapping[str, Any], present: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the optimizer with the seed that its noise keeps.

    :raises SettingError: if ``given`` has another seed
    """
    seed = {"seed": present["seed"]} if "seed" in present else {}
    if "seed" in given and given["seed"] != seed.get("seed"):
        raise SettingError(
            "optimizer_kwargs['seed']",
            f"optimizer_kwargs['seed']={given['seed']!r} cannot change in a model that exists: its noise goes on from "
            "the seed that it has; build another model with it",
        )
    return {**given, **seed}


def _optimizer_options(settings: PPOSettings) -> dict[str, Any]:
    """Every option that the optimizer's groups would have if it were built with the settings, but ``lr`` and ``seed``.

    :raises SettingError: if it could not be built
    """
    optimizer_class, given = find_optimizer(settings.optimizer_class), settings.optimizer_kwargs or {}
    check_optimizer(optimizer_class, given)
    stand_in = {"params": [nn.Parameter(torch.zeros(1))], "lr": default_learning_rate(optimizer_class)}
    seed = {"seed": 0} if "seed" in optimizer_options(optimizer_class) else {}  # else one would be drawn
    group = make_optimizer(optimizer_class, [stand_in], {**seed, **given}).param_groups[0]
    return {name: value for name, value in group.items() if name not in ("params", "lr", "seed")}


def _apply_optimizer_options(model: ConfiguredPPO, options: Mapping[str, Any]) -> None:
    model.policy.optimizer_kwargs = dict(model.optimizer_kwargs)
    optimizer = model.policy.optimizer
    for group in optimizer.param_groups:
        group.update(options)
    if missing_moments(optimizer.state_dict()["state"], optimizer):
        model.rebuild_optimizer()


def apply_learning_rate(model: ConfiguredPPO) -> None:
    """Write the present rate into every group, as the next update will."""
    model._setup_lr_schedule()
    model.policy.critic_lr_multiplier = model.critic_lr_multiplier
    lr = model.lr_schedule(model._current_progress_remaining)
    set_learning_rate(model.policy.optimizer, lr, model.critic_lr_multiplier)


def _apply_scaler_settings(model: ConfiguredPPO) -> None:
    """Give the scaler its settings; its statistics stay unless another estimator is to measure."""
    scaler = model.variance_gradient_scaler
    if scaler is None:
        return
    state = scaler.state_dict()
    given: StateDict = {name.removeprefix("vgs_"): getattr(model, name) for name in SCALER_SETTINGS}
    if state["estimator"] == model.vgs_estimator:
        scaler.load_state_dict({**state, **given})
    else:
        model.variance_gradient_scaler = construction.make_scaler(model)
