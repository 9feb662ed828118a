"""Change settings of a model that exists, as exploring does in population based training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stable_baselines3.common.utils import FloatSchedule

from rlcore.errors import ResumeWarning, SettingError, reject_unknown, warn_caller
from rlcore.ppo import construction
from rlcore.ppo.construction import ConfiguredPPO
from rlcore.ppo.losses import make_values
from rlcore.ppo.policy import set_learning_rate
from rlcore.ppo.settings import (
    LIVE,
    MARKS,
    PENALTY,
    SCALER,
    TOP,
    PPOSettings,
    find_optimizer,
    group_options,
    optimizer_options,
    part_of,
    resolve_together,
)
from rlcore.state.tree import missing_moments
from rlcore.types import StateDict

RATES = {"learning_rate", "critic_lr_multiplier", "optimizer_kwargs"}
PENALTY_SETTINGS, SCALER_SETTINGS = part_of(PENALTY), part_of(SCALER)


@dataclass(frozen=True)
class SettingsChange:
    """A change that has been checked: all settings after it, and the names of those that change.

    Applying it to the model that it was planned for cannot fail.
    """

    settings: PPOSettings
    names: frozenset[str]

    @property
    def optimizer_options(self) -> dict[str, Any]:
        """Every option of the optimizer's groups but ``lr`` and ``seed``."""
        return group_options(find_optimizer(self.settings.optimizer_class), self.settings.optimizer_kwargs or {})

    def warn_of_losses(self, model: ConfiguredPPO, state: Mapping[str, Any]) -> None:
        """Warn of moments and statistics that cannot go on and start fresh.

        :param state: parts of a training state by key, of the model or about to be restored into it
        :raises ResumeWarning: where a filter makes an error of it
        """
        moments, statistics = state.get("policy.optimizer"), state.get("vgs_state")
        if "optimizer_kwargs" in self.names and isinstance(moments, Mapping):
            missing = missing_moments(moments.get("state"), model.policy.optimizer, self.optimizer_options)
            if missing:
                fresh = f"the optimizer has no {', '.join(missing)} for its new options: it starts fresh"
                warn_caller(fresh, ResumeWarning)
        estimator = self.settings.vgs_estimator
        if isinstance(statistics, Mapping) and statistics.get("estimator") == model.vgs_estimator != estimator:
            fresh = f"the gradient statistics of {statistics.get('step_count')} steps start fresh"
            if statistics.get("step_count") != 0:
                warn_caller(
                    f"vgs_state: {fresh}, as vgs_estimator={estimator!r} measures something else", ResumeWarning
                )

    def apply(self, model: ConfiguredPPO) -> None:
        """Write the settings to everything that holds a copy, without a warning."""
        restarts_penalty = model.kl_penalty_coef != self.settings.kl_penalty_coef
        for name in self.names:
            value = getattr(self.settings, name)
            is_schedule = name.startswith("clip_range") and value is not None
            vars(model)[name] = FloatSchedule(value) if is_schedule else value
        model.rollout_buffer.gamma, model.rollout_buffer.gae_lambda = model.gamma, model.gae_lambda
        if "optimizer_kwargs" in self.names:
            model.policy.optimizer_kwargs = dict(model.optimizer_kwargs)
            optimizer, options = model.policy.optimizer, self.optimizer_options
            for group in optimizer.param_groups:
                group.update(options)
            if missing_moments(optimizer.state_dict()["state"], optimizer):
                model.rebuild_optimizer()
        if self.names & RATES:
            apply_learning_rate(model)
        if self.names & PENALTY_SETTINGS:
            model.kl_penalty.move_to(model.kl_penalty_coef if restarts_penalty else model.kl_penalty.adapted)
        if "huber_kappa" in self.names:
            model.policy.values = make_values(model, model.value_scale)
        if self.names & SCALER_SETTINGS:
            _apply_scaler_settings(model)


def _apply_scaler_settings(model: ConfiguredPPO) -> None:
    """Give the scaler its settings; its statistics stay unless another estimator is to measure."""
    scaler = model.variance_gradient_scaler
    if scaler is not None and scaler.settings.estimator != model.vgs_estimator:
        model.variance_gradient_scaler = construction.make_scaler(model)
    elif scaler is not None:
        given: StateDict = {name.removeprefix("vgs_"): getattr(model, name) for name in SCALER_SETTINGS}
        scaler.load_state_dict({**scaler.state_dict(), **given})


def set_hyperparameters(model: ConfiguredPPO, hyperparams: Mapping[str, Any]) -> None:
    """Change settings of a live model; weights, moments, statistics and progress stay.

    The change reaches everything that holds a copy, and what ``model.save()`` writes. The discount by which
    VecNormalize scales rewards stays, and so does the seed of an optimizer's noise: another one is refused.

    :param hyperparams: settings by name, of :class:`rlcore.ppo.settings.PPOSettings` or of the model's optimizer
        (``sigma``, ``weight_decay``, ``lr``)
    :raises UnknownSettingError: for a name that the model does not know, with the nearest; nothing is changed
    :raises SettingError: for a value that cannot be used, or a setting that is fixed; nothing is changed
    :raises ResumeWarning: where a filter makes an error of a loss of moments or statistics; nothing is changed
    """
    change = plan_change(model, hyperparams)
    if change.names & {"optimizer_kwargs", "vgs_estimator"}:
        parts = model._training_state().parts
        change.warn_of_losses(model, {key: parts[key].capture() for key in ("policy.optimizer", "vgs_state")})
    change.apply(model)


def plan_change(present: Any, hyperparams: Mapping[str, Any]) -> SettingsChange:
    """Check a change without making it; raises as :func:`set_hyperparameters`.

    :param present: the model, or anything else that has every setting as an attribute
    """
    changes = _placed(hyperparams, present)
    merged = dict(changes)
    for name in MARKS.keys() - changes.keys():
        merged[name] = getattr(present, name)
    settings = PPOSettings(**merged)
    if "optimizer_kwargs" in changes:
        group_options(find_optimizer(settings.optimizer_class), settings.optimizer_kwargs or {})
    resolved = resolve_together(settings)
    follow = {name for name in ("learning_rate", "ent_coef") if getattr(resolved, name) != getattr(present, name)}
    return SettingsChange(resolved, frozenset(changes) | follow)


def _placed(hyperparams: Mapping[str, Any], present: Any) -> dict[str, Any]:
    """Return the changes by top-level setting: options of the optimizer belong in ``optimizer_kwargs``."""
    changes: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, value in hyperparams.items():
        (changes if name in MARKS else options)[name] = value
    if options:
        known = optimizer_options(find_optimizer(present.optimizer_class)).keys() - {"seed"}
        reject_unknown(options, TOP, {TOP: [*LIVE, *known]})
    for name, value in changes.items():
        if name not in LIVE:
            reason = f"{name}={value!r} cannot change in a model that exists: {MARKS[name]['fixed']}"
            raise SettingError(name, f"{reason}; build another model with it")
    before = present.optimizer_kwargs or {}
    given = changes.get("optimizer_kwargs", before if options else None)
    if isinstance(given, Mapping):  # any other value is refused as optimizer_kwargs
        kept = {"seed": before["seed"]} if "seed" in before else {}
        if given.get("seed") not in (None, kept.get("seed")):
            reason = f"optimizer_kwargs['seed']={given['seed']!r} cannot change in a model that exists"
            raise SettingError("optimizer_kwargs['seed']", f"{reason}: its noise goes on; build another model with it")
        changes["optimizer_kwargs"] = {**{name: given[name] for name in given if name != "seed"}, **options, **kept}
    return changes


def apply_learning_rate(model: ConfiguredPPO) -> None:
    """Write the present rate into every group, as the next update will."""
    model._setup_lr_schedule()
    model.policy.critic_lr_multiplier = model.critic_lr_multiplier
    lr = model.lr_schedule(model._current_progress_remaining)
    set_learning_rate(model.policy.optimizer, lr, model.critic_lr_multiplier)
